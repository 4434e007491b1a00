"""The scheduler's view of tables, partition maps and executors, cached between changes.

A stale view is safe: every leg carries epochs, and an executor that is not the owner says so, after which the
query service refreshes and plans again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import evolve, frozen

from ballista_py.errors import ObjectMissing
from ballista_py.node.cluster_view import ClusterView
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.query_plan import BroadcastLimits, Catalog
from ballista_py.planning.table import TableSpec
from ballista_py.planning.table_sizes import TableSizes
from ballista_py.runtime import Runtime
from ballista_py.state.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    partition_map_key,
)
from ballista_py.state.object_state import ObjectState
from ballista_py.state.statements import StatementsDocument, statements_key
from ballista_py.state.store import ConditionalStore
from ballista_py.state.table_sizes import table_sizes
from ballista_py.state.table_status import Held

RUNS_MS = 1_000.0


@frozen
class _CachedMap:
    version: str
    incarnation: str
    map: PartitionMap


class Catalogs:
    """Reads `cluster.json` and every table's map; unchanged documents are not parsed again. Thread-safe."""

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._lock = runtime.lock()
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime)
        self._maps: dict[str, _CachedMap] = {}
        self._view: ClusterView | None = None
        self._statements: dict[str, tuple[str, int]] = {}
        self._held: Held = {}
        self._sizes: dict[str, TableSizes] = {}
        self._runs: dict[str, tuple[float, int]] = {}  # table -> when asked, sequence

    def current(self) -> ClusterView:
        """The view as last read; read now if there is none yet.

        The maps of tables whose partitions come with their rows are always the newest: by an older one a query
        would miss rows that were acknowledged.
        """
        view = self._view
        if view is None:
            return self.refresh()
        growing = [name for name, t in view.catalog.tables.items() if t.source is None and not t.spec.is_static]
        if growing and any(self._changed(name) for name in growing):
            return self.refresh()
        return view

    def measure(self, held: Held) -> None:
        """Take in what executors report of the sizes of their partitions; asks nothing of the store.

        Plans made from now on estimate by it.
        """
        with self._lock:
            self._held = held
            view = self._view
            if view is None:
                return
            sizes = self._measured(view.catalog.tables, view.catalog.maps)
            if any(found is not view.catalog.sizes.get(name) for name, found in sizes.items()):
                self._view = evolve(view, catalog=evolve(view.catalog, sizes=sizes))

    def _measured(
        self, tables: Mapping[str, TableSpec], maps: Mapping[str, PartitionMap]
    ) -> dict[str, TableSizes]:
        self._sizes = table_sizes(tables, maps, self._held, self._sizes)
        return self._sizes

    def sequences(self, tables: Collection[str]) -> dict[str, int]:
        """How many statements over several partitions are committed now, by table.

        None yet is told as well: a query must not see the first one in some partitions only. Where a table is
        filled from a source that is as of the last second: the store need not be asked for each query.
        """
        view = self._view or self.refresh()
        found = {}
        for name in tables:
            spec = view.catalog.tables.get(name)
            if spec is not None:
                found[name] = self._sequence(spec.folder) if spec.source is None else self._last_run(spec)
        return found

    def _last_run(self, table: TableSpec) -> int:
        now_ms, known = self._runtime.monotonic_ms(), self._runs.get(table.folder)
        if known is not None and now_ms - known[0] < RUNS_MS:
            return known[1]
        sequence = self._sequence(table.folder)
        if not table.spec.is_static and (known is None or known[1] != sequence):
            self.refresh()  # the map names a run's new partitions before the run counts
        self._runs[table.folder] = (now_ms, sequence)
        return sequence

    def _sequence(self, folder: str) -> int:
        key = statements_key(folder)
        cached = self._statements.get(key)
        try:
            if cached is not None and self._store.get_if_changed(key, cached[0]) is None:
                return cached[1]
            read = ObjectState(self._store, key, StatementsDocument, runtime=self._runtime).read()
        except ObjectMissing:
            return 0
        self._statements[key] = (read.version, read.document.sequence)
        return read.document.sequence

    def refresh(self) -> ClusterView:
        """Read what changed and return the new view. Errors of the store pass through."""
        with self._lock:
            # What is asked next is asked of the store: whoever refreshed the view wants to see something new.
            self._runs = {folder: (-RUNS_MS, sequence) for folder, (_, sequence) in self._runs.items()}
            cluster = self._cluster.read().document
            maps = {
                name: found
                for name, table in sorted(cluster.tables.items())
                if (found := self._map(name, table.incarnation)) is not None
            }
            dropped = {name: found for name in cluster.dropped if (found := self._map(name)) is not None}
            tables = {name: cluster.tables[name] for name in maps}
            self._view = ClusterView(
                catalog=Catalog(
                    tables=tables, maps=maps, broadcasts=BroadcastLimits(), sizes=self._measured(tables, maps)
                ),
                addresses={id_: e.info.data_address for id_, e in sorted(cluster.executors.items())},
                locations={
                    id_: e.info.parts_location for id_, e in cluster.executors.items() if e.info.parts_location
                },
                members=cluster.members(),
                dropped={name: (cluster.dropped[name], found.revision) for name, found in dropped.items()},
            )
            return self._view

    def _changed(self, table: str) -> bool:
        cached = self._maps.get(table)
        key = partition_map_key(table)
        return cached is None or self._store.get_if_changed(key, cached.version) is not None

    def _map(self, table: str, incarnation: str | None = None) -> PartitionMap | None:
        """The map under that name, or None if there is none, or only that of another incarnation."""
        found = self._newest(table)
        if found is None or incarnation not in (None, found.incarnation):
            return None
        return found.map

    def _newest(self, table: str) -> _CachedMap | None:
        state = ObjectState(self._store, partition_map_key(table), PartitionMapDocument, runtime=self._runtime)
        cached = self._maps.get(table)
        try:
            if cached is not None and self._store.get_if_changed(state.key, cached.version) is None:
                return cached
            read = state.read()
        except ObjectMissing:
            self._maps.pop(table, None)
            return None
        found = read.document.map.with_revision(read.header.revision)
        self._maps[table] = _CachedMap(read.version, read.document.incarnation, found)
        return self._maps[table]
