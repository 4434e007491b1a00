"""What the tables are that the query of a materialized view reads, told without reading a row of them.

Every change of a table writes one of its manifests, or its decisions: the versions of those documents tell two states
of a table apart. A compaction writes a manifest, too; then a view is made anew that had no need of it.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import orjson

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.written_views import all_read
from ballista_py.coordinator.tables.materialized_views import changes_by_itself, reads_of, tables_read
from ballista_py.errors import ObjectMissing
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import statements_key
from ballista_py.state.documents.documents import SNAPSHOTS_PREFIX
from ballista_py.state.stores.store import ConditionalStore

_MANIFEST = "/manifest.json"


def look_at_tables(query: str, view: ClusterView, store: ConditionalStore) -> str:
    """Another text for another state of the tables and views that the query reads; nothing if rows change without them.

    Raises what the store raises.
    """
    names = all_read(reads_of(query), view.sql_views) & view.sql_views.keys()
    texts = [query, *(view.sql_views[name].sql for name in sorted(names))]
    if changes_by_itself(texts):
        return ""
    seen: list[object] = [texts]
    for name, table in tables_read(query, view).items():
        seen.append([name, None if table is None else _state_of(table, store)])
    return sha256(orjson.dumps(seen)).hexdigest()


def _state_of(table: TableSpec, store: ConditionalStore) -> list[object]:
    found: list[object] = [table.folder, table.definition]
    decisions = statements_key(table.folder)
    found.append([decisions, _version(store, decisions)])
    found += (
        [entry.key, entry.version or _version(store, entry.key)]
        for entry in store.list(f"{SNAPSHOTS_PREFIX}{table.folder}/")
        if entry.key.endswith(_MANIFEST)
    )
    return found


def _version(store: ConditionalStore, key: str) -> str:
    with suppress(ObjectMissing):
        return store.get(key).version
    return ""
