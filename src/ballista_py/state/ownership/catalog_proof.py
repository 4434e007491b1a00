"""Whether `cluster.json` is the catalog of what lies in its state location, and not an older one, or none at all.

Each partition map names the revision of `cluster.json` at which its table's name was last made or dropped, or its
partitions were last assigned. So a catalog that knows less than what lies there is found out wherever the two meet:
when a map is committed or read, when a scheduler joins, and before anything is collected. Definitions of tables are
compared besides: with what was announced to their readers, and with what their folders say they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from ballista_py.errors import DocumentError, DocumentLost, ObjectMissing
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.decisions import statements_key
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    MAPS_PREFIX,
    SNAPSHOTS_PREFIX,
    ClusterDocument,
    PartitionMapDocument,
    TableDocument,
    map_name_of,
    partition_map_key,
    table_key,
    table_of_map,
)
from ballista_py.state.documents.lost_documents import require_proven, way_out
from ballista_py.state.documents.object_state import ObjectState, Versioned
from ballista_py.state.stores.store import ConditionalStore

KEPT_BY_TABLES = (MAPS_PREFIX, "accelerations/commits/", SNAPSHOTS_PREFIX)


def require_unused(store: ConditionalStore) -> None:
    """Return if nothing of a table lies in the location, so that its first `cluster.json` may be made.

    Raises `DocumentLost`: the location is no new one, its catalog is gone.
    """
    for prefix in KEPT_BY_TABLES:
        first = next(iter(store.list(prefix)), None)
        if first is not None:
            raise DocumentLost(
                f"document '{CLUSTER_KEY}' is gone: '{first.key}' lies here, so this is no new state location: "
                f"{way_out()}",
                key=CLUSTER_KEY,
            )


def require_proven_catalog(revision: int, map_name: str, proven: int) -> None:
    """Raises `DocumentOlder` when `cluster.json`, read after the map of that name which proves a revision, is older."""
    table = table_of_map(map_name)
    require_proven(CLUSTER_KEY, "revision", revision, proven, f"the partition map of table '{table}'")


def require_announced(folder: str, announced: int, definition: int) -> None:
    """Raises `DocumentOlder` when the decisions of a table know of no `definition` so new.

    One is announced there before it is committed to the catalog, which must have been read before them.
    """
    require_proven(statements_key(folder), "definition", announced, definition, f"'{CLUSTER_KEY}'")


def require_described(store: ConditionalStore, table: TableSpec, newest: Callable[[], TableSpec | None]) -> None:
    """Raises `DocumentOlder` when the table's folder knows of a newer definition of it than the catalog.

    It is told of a definition once that is committed. `newest` reads the catalog again, should it have changed since
    `table` was read. What is not there, or cannot be read, proves nothing.
    """
    try:
        described = ObjectState(store, table_key(table.folder), TableDocument).read().document.table
    except (ObjectMissing, DocumentError):
        return
    if described.definition > table.definition:
        now = newest()
        if now is not None:
            what = f"definition of table '{now.name}'"
            require_proven(CLUSTER_KEY, what, now.definition, described.definition, f"'{table_key(table.folder)}'")


def read_catalog(
    store: ConditionalStore, *, runtime: Runtime | None = None
) -> tuple[Versioned[ClusterDocument], Mapping[str, PartitionMapDocument]]:
    """The catalog, which is no older than any map proves, and the maps that can be read, by their names.

    Raises `DocumentLost` and `DocumentOlder`, and what reading a document raises. Reads all maps.
    """
    runtime = runtime or SystemRuntime()
    names = [map_name_of(entry.key) for entry in store.list(MAPS_PREFIX)]
    maps: dict[str, PartitionMapDocument] = {}
    for name in sorted(names):
        with suppress(DocumentError):  # proves nothing; its table is left out
            state = ObjectState(store, partition_map_key(name), PartitionMapDocument, runtime=runtime)
            maps[name] = state.read().document
    try:
        cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime).read()
    except ObjectMissing:
        require_unused(store)
        raise
    for name, document in maps.items():
        require_proven_catalog(cluster.header.revision, name, document.catalog_revision)
    return cluster, maps
