"""What a scheduler knows of the cluster when it plans: the catalog, who is alive, and where to reach them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import pyarrow as pa
from attrs import Factory, frozen

from ballista_py.errors import BallistaError
from ballista_py.partitions.scanned_table import AT, ScannedTable, scanned_name
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import Catalog, QueryPlan

_PLAIN = re.compile("[a-z_][a-z0-9_]*")  # a name that stands as it is in whatever names it


_WORD = re.compile(r"\w+")


@frozen(kw_only=True)
class ClusterView:
    """The catalog, the members (executor id, instance id) and the data address of each executor, as last read.

    `locations` are URIs at which clients may fetch parts of answers, by executor; one that gives none is missing.
    `unusable` are tables that cannot be used because a document of theirs is lost or older than it was, and why.
    `dropped` are tables that are no more, each with the revision that its map has. `formers` are the folders of tables
    that had a name and have it no more, by name, the one that lost it last first. `sql_views` are the views that
    statements can read, `scanned` the tables that are scanned where they lie. `policies` is the number of those that
    have to be known at least; 0: there are none.
    """

    catalog: Catalog
    members: frozenset[tuple[str, str]]
    addresses: Mapping[str, str]
    dropped: Mapping[str, tuple[TableSpec, int]] = Factory(dict)
    locations: Mapping[str, str] = Factory(dict)
    unusable: Mapping[str, BallistaError] = Factory(dict)
    formers: Mapping[str, tuple[str, ...]] = Factory(dict)
    sql_views: Mapping[str, SqlView] = Factory(dict)
    policies: int = 0
    scanned: Mapping[str, ScannedTable] = Factory(dict)

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of all that a statement can read, tables and views."""
        if not self.sql_views:
            return self.catalog.schemas
        return {**self.catalog.schemas, **{name: view.schema for name, view in self.sql_views.items()}}

    def named_views(self, words: Collection[str]) -> dict[str, SqlView]:
        """The views among these names (in lower case)."""
        return {name: view for name, view in self.sql_views.items() if name in words}

    def marks(self, words: Collection[str]) -> dict[str, str]:
        """What tells the tables and views among these names (in lower case) from what they were and will be."""
        tables = {name: table.mark for name, table in self.catalog.tables.items() if name in words}
        if self.scanned:
            tables |= {name: table.mark for name, table in self.scanned.items() if name in words}
        return {**tables, **{name: view.mark for name, view in self.named_views(words).items()}}

    def names_scanned(self, words: Collection[str]) -> bool:
        """Whether a table that is scanned where it lies, or a snapshot of one, is among these names."""
        return bool(self.scanned) and any(word in self.scanned or AT in word for word in words)

    def schemas_before(self) -> dict[str, pa.Schema]:
        """The columns of tables by names that they had, as far as they are known: of each name those of the last."""
        tables = [*self.catalog.tables.values(), *(table for table, _ in self.dropped.values())]
        known = {table.folder: table.schema for table in tables}
        return {name: known[folders[0]] for name, folders in self.formers.items() if folders[0] in known}

    def listed(self, lakes: Lakes | None) -> Mapping[str, TableSpec]:
        """All tables that lists show, those too that are scanned where they lie."""
        tables = self.catalog.tables
        return tables if not self.scanned or lakes is None else {**tables, **lakes.listed(self)}

    def kept(self, plan: QueryPlan) -> QueryPlan:
        """The plan, if all that it reads is kept by the cluster. Raises `SqlError` for one of scanned tables: whoever
        reads the partitions of others himself finds none of those."""
        if self.catalog.scanned:
            for fragment in plan.fragments:
                for name in {table.table for table in fragment.tables} & self.catalog.scanned.keys():
                    raise self.scanned[scanned_name(name)].refused("it is read by queries alone: send one")
        return plan

    def require_usable(self, words: Collection[str]) -> None:
        """Raises why a table among these names (in lower case) cannot be used, if there is such a one."""
        for name, error in self.unusable.items():
            if name in words:
                raise error


class Views(Protocol):
    """Where the service takes its view from; `refresh` reads the store.

    With `words` the maps of tables of other names may be as they were known; the catalog never is.
    """

    def current(self, words: Collection[str] | None = None) -> ClusterView: ...
    def refresh(self, words: Collection[str] | None = None) -> ClusterView: ...


class Decides(Protocol):
    """What decides for the client of this thread (`policies.Gate`). While it is not `on` it has nothing to decide."""

    @property
    def on(self) -> bool: ...
    def seen(self, view: ClusterView) -> ClusterView: ...
    def snapshot_shown(self, table: TableSpec, least: int) -> tuple[TableSpec, str | None]: ...
    def require_change(self, change: Any, whole: Views) -> None: ...
    def require_rows(self, table: str, mode: str, whole: Views) -> None: ...
    def require_beside(self, table: str) -> None: ...


class Lakes(Protocol):
    """What knows snapshots of scanned tables (`lake.snapshots.LakeSnapshots`)."""

    def pinned(self, table: ScannedTable, version: str | None = None, timestamp: str | None = None) -> str: ...
    def with_snapshots(self, view: ClusterView, names: Collection[str], gate: Decides | None) -> ClusterView: ...
    def listed(self, view: ClusterView) -> Mapping[str, TableSpec]: ...
    def described(self, table: ScannedTable) -> TableSpec: ...


class ChangeDoor(Protocol):
    """Lets changes of the client of this thread through. Raises `SqlError` for what its rights do not cover."""

    def require_change(self, change: Any) -> None: ...
    def require_rows(self, table: str, mode: str, beside: str | None = None) -> None: ...


class OpenDoor:
    """The `ChangeDoor` of whoever has no clients, or no policies."""

    def require_change(self, change: Any) -> None:
        """Everything may be changed."""

    def require_rows(self, table: str, mode: str, beside: str | None = None) -> None:
        """Every table may take rows."""


@frozen
class ClientViews:
    """`Views` of what the client of this thread may know, with barriers in front of what he does not see all of, and
    the `ChangeDoor` for his changes. All raise what `gate` raises."""

    views: Views
    gate: Decides
    lakes: Lakes | None = None

    def current(self, words: Collection[str] | None = None) -> ClusterView:
        """See `Views`; with the snapshots among the words."""
        return self._seen(self.views.current(words), words)

    def refresh(self, words: Collection[str] | None = None) -> ClusterView:
        """See `Views`; with the snapshots among the words."""
        return self._seen(self.views.refresh(words), words)

    def _seen(self, view: ClusterView, words: Collection[str] | None) -> ClusterView:
        decides = self.gate.on or bool(view.policies)
        view = self.gate.seen(view) if decides else view
        if not view.scanned or self.lakes is None or not any(AT in word for word in words or ()):
            return view
        return self.lakes.with_snapshots(view, words or (), self.gate if decides else None)

    def require_change(self, change: Any) -> None:
        """See `ChangeDoor`; `change` is what was read of a statement."""
        if self.gate.on or self.views.current(()).policies:
            self.gate.require_change(change, self.views)

    def require_rows(self, table: str, mode: str, beside: str | None = None) -> None:
        """See `ChangeDoor`; `mode` is that of an ingest or of a write, `beside` a table that a new one is to be
        co-located with."""
        if self.gate.on or self.views.current(()).policies:
            if beside is not None:
                self.gate.require_beside(beside)
            self.gate.require_rows(table, mode, self.views)


def is_among(name: str, words: Collection[str] | None) -> bool:
    """Whether words taken from a statement, in lower case, may name the table; None stands for all words.

    >>> is_among("orders", {"from", "orders"}), is_among("orders", {"lines"}), is_among("Two words", {"lines"})
    (True, False, True)
    """
    return words is None or name in words or _PLAIN.fullmatch(name) is None


def words_of(statement: str) -> frozenset[str]:
    """The words of a statement in lower case, and what stands in quotes; the names of its tables are among them."""
    text = statement.lower()
    return frozenset((*_WORD.findall(text), *(text.split('"') if '"' in text else ())))
