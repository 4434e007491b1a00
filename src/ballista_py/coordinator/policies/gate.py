"""The one place that decides what a client may see and change of tables: the catalog as it sees it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView, Views
from ballista_py.coordinator.policies.changes import require_change, require_rows
from ballista_py.coordinator.policies.known import KnownPolicies
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.partitions.policies import Action, Rights
from ballista_py.partitions.scanned_table import ScannedTable, scanned_name
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.barriers import barrier_of, shown_spec
from ballista_py.sql.parse.changes import Change
from ballista_py.sql.plan import Catalog

MAX_CATALOGS = 64
_COUNTS = ("rows", "bytes", "refresh_rows", "retention_rows", "partitions", "serving", "revision")


@frozen
class _Seen:
    """What one client sees of one catalog; what it is of is kept, because that is known by its identity."""

    base: Catalog
    base_views: Mapping[str, SqlView]
    catalog: Catalog
    views: Mapping[str, SqlView]
    base_scanned: Mapping[str, ScannedTable]
    scanned: Mapping[str, ScannedTable]

    def is_of(self, view: ClusterView) -> bool:
        """Whether it is of this very catalog."""
        same = self.base is view.catalog and self.base_views is view.sql_views
        return same and self.base_scanned is view.scanned


@define(eq=False)
class Gate:
    """Decides for the client of this thread. Safe to share between threads; `engine` names types of columns."""

    known: KnownPolicies
    engine: Engine
    _seen: OrderedDict[Any, _Seen] = field(factory=OrderedDict, init=False)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.known.runtime.lock()

    @property
    def on(self) -> bool:
        """Whether there may be policies."""
        return self.known.on

    def rights(self, least: int = 0) -> Rights | None:
        """See `KnownPolicies`."""
        return self.known.rights(least)

    def seen(self, view: ClusterView) -> ClusterView:
        """The view as the client of this thread may know it. Raises as `rights`."""
        rights = self.rights(view.policies)
        if rights is None:
            return view
        bases = view.catalog, view.sql_views, view.scanned
        key = rights.name, rights.groups, id(rights.policies), *map(id, bases)
        with self._lock:
            found = self._seen.get(key)
            if found is not None:
                self._seen.move_to_end(key)
        if found is None or not found.is_of(view):
            found = self._of_client(view, rights)
            with self._lock:
                for old in [known for known, one in self._seen.items() if one.base is not view.catalog]:
                    del self._seen[old]  # they may be large
                self._seen[key] = found
                while len(self._seen) > MAX_CATALOGS:
                    self._seen.popitem(last=False)
        return evolve(
            view, catalog=found.catalog, sql_views=found.views, scanned=found.scanned, dropped={}, formers={}
        )

    def _of_client(self, view: ClusterView, rights: Rights) -> _Seen:
        catalog = self._catalog(view.catalog, rights)
        views = {name: one for name, one in view.sql_views.items() if rights.may("select", name)}
        scanned = {name: one for name, one in view.scanned.items() if rights.may("select", name)}
        hidden = {name: _not_let(rights) for name in view.scanned if name not in scanned}
        catalog = evolve(catalog, left_out={**catalog.left_out, **hidden}) if hidden else catalog
        return _Seen(view.catalog, view.sql_views, catalog, views, view.scanned, scanned)

    def snapshot_shown(self, table: TableSpec, least: int) -> tuple[TableSpec, str | None]:
        """A table that is in no catalog, a snapshot, as the client of this thread sees it; the barrier before it.

        Raises as `rights`, and `SqlError` for one that he may not select, or that its policies do not fit.
        """
        rights = self.rights(least)
        if rights is None:
            return table, None
        rights.require("select", scanned_name(table.name))
        if not rights.is_protected(table.name):
            return table, None
        barrier = barrier_of(table, rights, self.engine.sql_types(table.schema))
        return shown_spec(table, rights.masks(table.name)), barrier

    def _catalog(self, catalog: Catalog, rights: Rights) -> Catalog:
        tables: dict[str, TableSpec] = {}
        barriers: dict[str, str] = {}
        left_out = {name: reason for name, reason in catalog.left_out.items() if rights.may_anything(name)}
        for name, table in catalog.tables.items():
            if not rights.may("select", name):
                left_out[name] = _not_let(rights)
                continue
            if not rights.is_protected(name):
                tables[name] = table
                continue
            try:
                barriers[name] = barrier_of(table, rights, self.engine.sql_types(table.schema))
            except SqlError as error:
                left_out[name] = error.message
                continue
            tables[name] = shown_spec(table, rights.masks(name))
        return Catalog(
            tables=tables,
            maps={name: catalog.maps[name] for name in tables},
            broadcasts=catalog.broadcasts,
            # Estimates are of all rows, and between which values they lie: of no table that is not seen whole.
            sizes={n: size for n, size in catalog.sizes.items() if n in tables and n not in barriers},
            left_out=left_out,
            barriers=barriers,
            of_client=True,
        )

    def shown(self, rows: Iterable[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
        """Of rows about tables, which have their name under `key`, those that are the client's business.

        Of tables that he does not see all of it is not told how much is in them, nor where, nor what failed.
        """
        rights = self.rights()
        found: list[dict[str, Any]] = []
        for row in rows:
            name = row[key]
            if rights is None:
                found.append(dict(row))
            elif rights.may_anything(name) and not (rights.is_protected(name) and "partition" in row):
                found.append(_without_counts(row) if rights.is_protected(name) else dict(row))
        return found

    def sees_all(self) -> bool:
        """Whether the client of this thread may know how statements are carried out. Raises as `rights`."""
        return self.rights() is None

    def require_change(self, change: Change | None, whole: Views) -> None:
        """Raise `SqlError` unless the client of this thread may make the change. Raises as `rights`."""
        view = whole.current(())
        rights = self.rights(view.policies)
        if rights is not None:
            require_change(rights, change, view)

    def require_rows(self, table: str, mode: str, whole: Views) -> None:
        """Raise `SqlError` unless the client of this thread may have the table take rows. Raises as `rights`."""
        view = whole.current(())
        rights = self.rights(view.policies)
        if rights is not None:
            exists = table in view.catalog.tables or table in whole.refresh({table}).catalog.tables
            require_rows(rights, table, mode, exists=exists)

    def require_beside(self, table: str) -> None:
        """Raise `SqlError` unless the client of this thread may know how the table is split, and all of its rows."""
        rights = self.rights()
        if rights is not None:
            rights.require("select", table)
            rights.require_whole(table, "co-location")

    def require(self, action: Action, table: str) -> None:
        """Raise `SqlError` unless the action is granted to the client of this thread. Raises as `rights`."""
        rights = self.rights()
        if rights is not None:
            rights.require(action, table)

    def require_operator(self, what: str) -> None:
        """See `KnownPolicies`."""
        self.known.require_operator(what)


def _not_let(rights: Rights) -> str:
    return f"the policies of this cluster do not let client '{rights.name}' select it"


def _without_counts(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: None if name in _COUNTS or name.endswith("_error") else value for name, value in row.items()}
    failed = shown.get("failed")
    if isinstance(failed, Mapping):
        shown["failed"] = dict.fromkeys(failed, "an error, which operators are shown")
    for inner in ("refresh", "retention", "changes"):
        if isinstance(shown.get(inner), Mapping):
            shown[inner] = None
    return shown
