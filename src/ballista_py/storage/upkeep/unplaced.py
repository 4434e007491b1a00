"""Whether a partition map has a place for every partition with rows, or is an older one from before some were added.

A partition gets its manifest first, then its place in the map, then rows. So a manifest with rows whose partition the
map, read afterwards, does not have proves that the map is an older copy: a query by it would miss those rows.
"""

from __future__ import annotations

from ballista_py.errors import DocumentOlder
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.documents import PartitionMapDocument, partition_map_key
from ballista_py.state.documents.lost_documents import way_out
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.replicas import with_committed
from ballista_py.storage.partition_storage import PartitionStorage, partition_paths


def require_placed(store: ConditionalStore, table: TableSpec, runtime: Runtime) -> None:
    """Raise `DocumentOlder` when the table's map lacks a partition that has rows. Lists the table's objects.

    Keys that are static have all their partitions from the beginning: nothing is asked of them. Raises what the store
    and reading documents raise.
    """
    if table.spec.is_static:
        return
    missing = partition_paths(store, table.folder) - _places(store, table, runtime)
    if not missing:
        return
    found = {
        path: PartitionStorage(store, table.folder, path, runtime=runtime).read().document for path in missing
    }
    decisions = TableDecisions(
        store, table.folder, runtime=runtime
    ).read()  # after the manifests, of which some wait for it
    with_rows = {path for path, manifest in found.items() if with_committed(manifest, decisions).files}
    lost = sorted(with_rows - _places(store, table, runtime)) if with_rows else []
    if lost:
        key = partition_map_key(table.map_name)
        raise DocumentOlder(
            f"document '{key}' lacks partition '{lost[0]}', which has rows: it is an older copy: {way_out()}",
            key=key,
        )


def _places(store: ConditionalStore, table: TableSpec, runtime: Runtime) -> set[str]:
    found = (
        ObjectState(store, partition_map_key(table.map_name), PartitionMapDocument, runtime=runtime)
        .read()
        .document
    )
    pmap = found.map
    return {pmap.path(partition) for partition in range(len(pmap))}
