"""The scheduler's view of tables, partition maps and executors, cached between changes.

A stale view is safe: every leg carries epochs, and an executor that is not the owner says so, after which the
query service refreshes and plans again.
"""

from __future__ import annotations

from attrs import frozen

from ballista_py.errors import ObjectMissing
from ballista_py.node.query_service import ClusterView
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.query_plan import Catalog
from ballista_py.runtime import Runtime
from ballista_py.state.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    partition_map_key,
)
from ballista_py.state.object_state import ObjectState
from ballista_py.state.store import ConditionalStore


@frozen
class _CachedMap:
    version: str
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

    def current(self) -> ClusterView:
        """The view as last read; read now if there is none yet."""
        return self._view or self.refresh()

    def refresh(self) -> ClusterView:
        """Read what changed and return the new view. Errors of the store pass through."""
        with self._lock:
            cluster = self._cluster.read().document
            maps = {name: found for name in sorted(cluster.tables) if (found := self._map(name)) is not None}
            self._view = ClusterView(
                catalog=Catalog(tables={name: cluster.tables[name] for name in maps}, maps=maps),
                addresses={id_: e.info.data_address for id_, e in sorted(cluster.executors.items())},
                members=cluster.members(),
            )
            return self._view

    def _map(self, table: str) -> PartitionMap | None:
        """The table's map, or None for a table whose map is not written yet."""
        state = ObjectState(self._store, partition_map_key(table), PartitionMapDocument, runtime=self._runtime)
        cached = self._maps.get(table)
        try:
            if cached is not None and self._store.get_if_changed(state.key, cached.version) is None:
                return cached.map
            read = state.read()
        except ObjectMissing:
            self._maps.pop(table, None)
            return None
        self._maps[table] = _CachedMap(read.version, read.document.map.with_revision(read.header.revision))
        return self._maps[table].map
