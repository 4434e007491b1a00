"""The scheduler's view of tables, partition maps and executors, cached between changes.

A stale view is safe: every leg carries epochs, and an executor that is not the owner says so, after which the
query service refreshes and plans again. A table that cannot be read, or that no engine can hold, is left out, with
the reason, and stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.cluster_view import ClusterView, is_among
from ballista_py.engines.duckdb.tables import require_held
from ballista_py.errors import (
    BallistaError,
    DocumentError,
    DocumentLost,
    DocumentOlder,
    ObjectMissing,
    SchemaMismatch,
    TryLater,
    to_wire,
)
from ballista_py.logs import log_event
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.estimate.statistics import TableSizes
from ballista_py.sql.plan import BroadcastLimits, Catalog
from ballista_py.state.documents.decisions import StatementsDocument, statements_key
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    partition_map_key,
)
from ballista_py.state.documents.lost_documents import DocumentMemory, way_out
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.ownership.catalog_proof import (
    require_announced,
    require_described,
    require_proven_catalog,
)
from ballista_py.state.ownership.table_sizes import KnownSizes, is_same_held
from ballista_py.state.ownership.table_status import Held
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.upkeep.unplaced import require_placed

RUNS_MS = 1_000.0
MAX_SCHEMAS = 4_096
UNREADABLE = "this release cannot read what the cluster keeps of it: use the one that wrote it, or drop the table"

_log = logging.getLogger(__name__)

T = TypeVar("T")


@frozen
class _CachedMap:
    version: str
    incarnation: str
    map: PartitionMap
    catalog_revision: int


@frozen
class _KnownStatements:
    """What is known of the statements of a table; set as a whole, so that threads mix nothing."""

    version: str
    sequence: int
    announced: int
    is_copied: bool  # from a source, once


_NOTHING_SAID = _KnownStatements("", 0, 0, is_copied=False)


class Catalogs:
    """Reads `cluster.json` and every table's map; unchanged documents are not parsed again. Thread-safe."""

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._lock = runtime.lock()
        self._memory = DocumentMemory()
        self._refused: dict[str, BallistaError] = {}  # by folder
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime, memory=self._memory)
        self._maps: dict[str, _CachedMap] = {}  # by their names
        self._view: ClusterView | None = None
        self._catalog_version = ""
        self._words: Collection[str] | None = None  # of the refresh under way
        self._statements: dict[str, _KnownStatements] = {}  # by folder
        self._held: Held = {}
        self._sizes = KnownSizes()
        self._runs: dict[str, tuple[float, int]] = {}  # table -> when asked, sequence
        self._unfit: dict[
            tuple[str, pa.Schema], str | None
        ] = {}  # why no engine can hold these columns, if that is so
        self._left_out: Mapping[str, str] = {}

    def known(self) -> ClusterView:
        """The view as last read, without asking the store; read now if there is none yet."""
        return self._view or self.refresh()

    def current(self, words: Collection[str] | None = None) -> ClusterView:
        """The view as last read; read now if there is none yet.

        The maps of tables whose partitions come with their rows are always the newest, of those that `words` may name:
        by an older one a query would miss rows that were acknowledged. So are views and scanned tables that `words` may
        name.
        """
        view = self._view
        if view is None:
            return self.refresh()
        told = bool(words) and (view.named_views(words or ()) or view.names_scanned(words or ()))
        # Nothing but the catalog tells of another query of a view, or of another place of files.
        if told and self._differs(CLUSTER_KEY, self._catalog_version):
            return self.refresh(words)
        named = _among(view.catalog.tables, words)
        changed = [t.name for t in named if not t.is_piped and not t.spec.is_static and self._changed(t)]
        return self.refresh(changed) if changed else view

    def examine(self) -> Mapping[str, BallistaError]:
        """Find the tables of which a partition with rows is in no map, or whose folder knows of a newer definition than
        the catalog, and refuse them from now on; why, by table.

        To be called once, when nothing is known yet. Errors of the store pass through.
        """
        for table in self.refresh().catalog.tables.values():
            try:
                require_placed(self._store, table, self._runtime)
                require_described(self._store, table, partial(self._of_folder, table.folder))
            except DocumentError as error:
                self._refused[table.folder] = error
        return self.refresh().unusable

    def _of_folder(self, folder: str) -> TableSpec | None:
        """The table of a folder as the catalog has it now."""
        tables = self.refresh().catalog.tables.values()
        return next((table for table in tables if table.folder == folder), None)

    def measure(self, held: Held) -> None:
        """Take in what executors report of the sizes of their partitions; asks nothing of the store.

        Plans made from now on estimate by it.
        """
        with self._lock:
            view, before, self._held = self._view, self._held, held
            if view is None or is_same_held(before, held):
                return
            sizes = self._measured(view.catalog.tables, view.catalog.maps)
            if any(found is not view.catalog.sizes.get(name) for name, found in sizes.items()):
                self._view = evolve(view, catalog=evolve(view.catalog, sizes=sizes))

    def _measured(
        self, tables: Mapping[str, TableSpec], maps: Mapping[str, PartitionMap]
    ) -> dict[str, TableSizes]:
        return self._sizes.measured(tables, maps, self._held)

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
                found[name] = self._sequence(spec) if not spec.is_piped else self._last_run(spec)
        return found

    def definitions(self, tables: Collection[str]) -> dict[str, int]:
        """The newest definition that there may be of tables, as of the last look at their `sequences`."""
        view = self._view or self.refresh()
        found = (view.catalog.tables[name] for name in tables if name in view.catalog.tables)
        known = {table.name: self._statements.get(table.folder) for table in found}
        return {name: 0 if one is None else one.announced for name, one in known.items()}

    def _last_run(self, table: TableSpec) -> int:
        now_ms, known = self._runtime.monotonic_ms(), self._runs.get(table.folder)
        if known is not None and now_ms - known[0] < RUNS_MS:
            return known[1]
        sequence = self._sequence(table)
        if not table.spec.is_static and (known is None or known[1] != sequence):
            self.refresh()  # the map names a run's new partitions before the run counts
        self._runs[table.folder] = (now_ms, sequence)
        return sequence

    def _sequence(self, table: TableSpec) -> int:
        """As of now; `table` was read before. Raises `DocumentLost` and `DocumentOlder` as its definition proves, and
        `TryLater` for a table that was never filled.
        """
        key = statements_key(table.folder)
        known = self._statements.get(table.folder)
        try:
            if known is None or self._differs(key, known.version):
                read = self._state(key, StatementsDocument).read()
                said = read.document
                known = _KnownStatements(
                    read.version, said.sequence, said.announced, is_copied=said.position is not None
                )
                self._statements[table.folder] = known
        except ObjectMissing:
            if table.definition:
                raise DocumentLost(f"document '{key}' is gone: {way_out()}", key=key) from None
            known = _NOTHING_SAID
        else:
            require_announced(table.folder, known.announced, table.definition)
        if table.by_changes and not known.is_copied:
            raise TryLater(
                f"table '{table.name}' has no rows yet: its source is being copied; tables() tells what fails"
            )
        if table.is_filled_later and not known.sequence:
            raise TryLater(
                f"materialized view '{table.name}' has no rows yet: its query runs; tables() tells what fails"
            )
        return known.sequence

    def refresh(self, words: Collection[str] | None = None) -> ClusterView:
        """Read what changed and return the new view. Errors of the store pass through.

        With `words`, the store is asked for the maps of the tables that those may name, and of those that the catalog
        has as the last view did not: a statement costs as many requests as it has tables. The others stay as known.
        """
        with self._lock:
            self._words = words
            # What is asked next is asked of the store: whoever refreshed the view wants to see something new.
            self._runs = {folder: (-RUNS_MS, sequence) for folder, (_, sequence) in self._runs.items()}
            left_out: dict[str, str] = {}
            cluster, maps, unusable = self._cluster_and_maps(left_out)
            dropped = self._dropped(cluster)
            self._forget_all_but(cluster)
            self._tell(left_out)
            tables = {name: cluster.tables[name] for name in maps}
            self._view = ClusterView(
                catalog=Catalog(
                    tables=tables,
                    maps=maps,
                    broadcasts=BroadcastLimits(),
                    sizes=self._measured(tables, maps),
                    left_out=left_out,
                ),
                addresses={id_: e.info.data_address for id_, e in sorted(cluster.executors.items())},
                locations={
                    id_: e.info.parts_location for id_, e in cluster.executors.items() if e.info.parts_location
                },
                members=cluster.members(),
                dropped=dropped,
                unusable=unusable,
                formers=_formers(cluster),
                sql_views=cluster.views,
                scanned=cluster.scanned,
                policies=0 if cluster.policies is None else cluster.policies.number,
            )
            return self._view

    def _cluster_and_maps(
        self, left_out: dict[str, str]
    ) -> tuple[ClusterDocument, dict[str, PartitionMap], dict[str, BallistaError]]:
        """The catalog, the maps of its tables, and the errors of those of which a document is lost or older.

        Why another table cannot be used goes into `left_out`. Raises `DocumentOlder` when a map knows of a newer
        catalog.
        """
        read = self._cluster.read()
        known = self._view.catalog.tables if self._view is not None else {}
        while True:
            found: dict[str, _CachedMap] = {}
            unusable: dict[str, BallistaError] = {}
            left_out.clear()
            left_out.update(dict.fromkeys(read.document.unreadable, UNREADABLE))
            for name, table in sorted(read.document.tables.items()):
                reason = None if known.get(name) is table else self._why_unfit(name, table.schema)
                if reason is not None:
                    left_out[name] = reason
                    continue
                if table.folder in self._refused:
                    unusable[name] = self._refused[table.folder]
                    continue
                try:
                    found[name] = self._newest(table)
                except ObjectMissing:
                    key = partition_map_key(table.map_name)
                    unusable[name] = DocumentLost(f"document '{key}' is gone: {way_out()}", key=key)
                except (DocumentLost, DocumentOlder) as error:
                    unusable[name] = error
                except DocumentError as error:
                    left_out[name] = str(to_wire(error)["message"])
                    self._maps.pop(table.map_name, None)
            if all(one.catalog_revision <= read.header.revision for one in found.values()):
                break
            read = self._cluster.read()  # after the maps: it may have changed since
            for name, one in found.items():
                require_proven_catalog(read.header.revision, name, one.catalog_revision)
        self._catalog_version = read.version
        tables = read.document.tables
        # A map of another incarnation is that of a table that is being made, or was dropped a moment ago.
        return (
            read.document,
            {name: one.map for name, one in found.items() if one.incarnation == tables[name].incarnation},
            unusable,
        )

    def _dropped(self, cluster: ClusterDocument) -> dict[str, tuple[TableSpec, int]]:
        """The tables that were dropped last, each with the revision that its map has."""
        dropped = {}
        for name, table in cluster.dropped.items():
            with suppress(ObjectMissing, DocumentError):
                dropped[name] = (table, self._newest(table).map.revision)
        return dropped

    def _forget_all_but(self, cluster: ClusterDocument) -> None:
        """Keep nothing of tables that were dropped, but of those of which executors may still have to be told."""
        tables = [*cluster.tables.values(), *cluster.dropped.values()]
        names = {table.map_name for table in tables}
        folders = {table.folder for table in tables}
        for kept, known in (
            (names, self._maps),
            (folders, self._statements),
            (folders, self._runs),
            (folders, self._refused),
        ):
            for gone in set(known) - kept:
                known.pop(gone, None)

    def _why_unfit(self, table: str, schema: pa.Schema) -> str | None:
        asked = (table, schema)
        if asked not in self._unfit:
            reason = None
            try:
                require_held(schema, table)
            except SchemaMismatch as error:
                reason = f"{error.message}: drop it"
            if len(self._unfit) >= MAX_SCHEMAS:
                self._unfit.clear()
            self._unfit[asked] = reason
        return self._unfit[asked]

    def _tell(self, left_out: Mapping[str, str]) -> None:
        """Say once of each table that it is left out."""
        for name, reason in left_out.items():
            if self._left_out.get(name) != reason:
                log_event(_log, "table_left_out", logging.ERROR, table=name, reason=reason)
        self._left_out = left_out

    def _changed(self, table: TableSpec) -> bool:
        cached = self._maps.get(table.map_name)
        key = partition_map_key(table.map_name)
        return cached is None or self._differs(key, cached.version)

    def _newest(self, table: TableSpec) -> _CachedMap:
        """The map where the table has it. Raises `ObjectMissing`, and `DocumentError` for one that cannot be used."""
        key, cached = partition_map_key(table.map_name), self._maps.get(table.map_name)
        if cached is not None and not (self._is_asked_for(table) and self._differs(key, cached.version)):
            return cached
        read = self._state(key, PartitionMapDocument).read()
        document = read.document
        found = _CachedMap(
            read.version,
            document.incarnation,
            document.map.of_table(table.name).with_revision(read.header.revision),
            document.catalog_revision,
        )
        self._maps[table.map_name] = found
        return found

    def _is_asked_for(self, table: TableSpec) -> bool:
        """Whether the refresh under way is to ask the store for the map of the table."""
        view, words = self._view, self._words
        if view is None or is_among(table.name, words):
            return True
        if view.catalog.tables.get(table.name) is table:
            return False
        return all(former is not table for former, _ in view.dropped.values())

    def _differs(self, key: str, version: str) -> bool:
        """Whether a document is another one than the one of that version, or gone."""
        try:
            return self._store.get_if_changed(key, version) is not None
        except ObjectMissing:
            return True

    def _state(self, key: str, kind: type[T]) -> ObjectState[T]:
        return ObjectState(self._store, key, kind, runtime=self._runtime, memory=self._memory)


def _formers(cluster: ClusterDocument) -> dict[str, tuple[str, ...]]:
    """The folders of tables that lost a name, by name, the last one first."""
    found: dict[str, tuple[str, ...]] = {}
    for lost in cluster.former_names:
        found[lost.name] = (lost.folder, *found.get(lost.name, ()))
    return found


def _among(tables: Mapping[str, TableSpec], words: Collection[str] | None) -> list[TableSpec]:
    return [table for name, table in tables.items() if is_among(name, words)]
