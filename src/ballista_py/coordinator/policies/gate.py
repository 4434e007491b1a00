"""The one place that decides what a client may: its rights by the newest policies, and the catalog as it sees it.

What a thread does for no call is the scheduler's own, and so is what says so (`Work.is_own`); a viewer reaches nothing
but what is there to be looked at (`security.access`). Everything else is for a client, of whom nothing but his name may
be known. While policies cannot be read, or are older than the catalog says,
clients are refused: nobody guesses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView, Views
from ballista_py.coordinator.policies.changes import require_change, require_rows
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.partitions.policies import Action, Policies, Rights
from ballista_py.partitions.scanned_table import ScannedTable, scanned_name
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.principal import groups_of
from ballista_py.runtime import Runtime
from ballista_py.sql.barriers import barrier_of, shown_spec
from ballista_py.sql.parse.changes import Change
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.policies import PoliciesDocument, PolicyShelf
from ballista_py.work import current_work

LOOK_MS = 1_000.0  # how old the policies are at most by which a statement is decided
IDLE_LOOK_MS = 10_000.0  # between looks whether there are any, where the catalog knows of none
MAX_CATALOGS = 64
_COUNTS = ("rows", "bytes", "refresh_rows", "retention_rows")


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

    shelf: PolicyShelf
    engine: Engine
    runtime: Runtime
    on: bool = field(default=True, init=False)  # until it is known that there are none
    _document: PoliciesDocument | None = field(default=None, init=False)
    _looked_ms: float | None = field(default=None, init=False)
    _seen: OrderedDict[Any, _Seen] = field(factory=OrderedDict, init=False)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def tick(self) -> None:
        """Look whether there are policies by now, whatever the catalog says."""
        self._policies(0)

    def rights(self, least: int = 0) -> Rights | None:
        """What the client of this thread may; None: everything.

        Raises what reading policies raises, and `DocumentOlder` or `DocumentLost` where they are below `least`.
        """
        work = current_work()
        if work is None or work.is_own or work.is_viewer:
            return None
        policies = self._policies(least)
        if policies is None:
            return None
        rights = policies.of(str(work.client), groups_of(work.client))
        return None if rights.is_operator else rights

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

    def _policies(self, least: int) -> Policies | None:
        with self._lock:
            now_ms, known = self.runtime.monotonic_ms(), self._document
            every_ms = LOOK_MS if known is not None or least else IDLE_LOOK_MS
            is_due = self._looked_ms is None or now_ms - self._looked_ms >= every_ms
            if is_due or (0 if known is None else known.number) < least:
                found = self.shelf.read(max(least, 0 if known is None else known.number))
                # The same values stay the same object, by which what is seen is remembered.
                self._document = known if found == known else found
                self._looked_ms = now_ms
                self.on = self._document is not None
            return self._document.policies if self._document is not None and self._document.on else None

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

    def require(self, action: Action, table: str) -> None:
        """Raise `SqlError` unless the action is granted to the client of this thread. Raises as `rights`."""
        rights = self.rights()
        if rights is not None:
            rights.require(action, table)

    def require_operator(self, what: str) -> None:
        """Raise `SqlError` for a client that is no operator."""
        rights = self.rights()
        if rights is not None:
            rights.require_operator(what)


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
