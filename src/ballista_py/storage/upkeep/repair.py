"""Makes lost and outdated documents of a state location anew from the manifests, which are what rows are told by.

Promises: only documents that something else proves to be lost or older are written, each at a revision and with epochs
and sequences above all that lie there, so that nothing given out before is given out again; what cannot be made anew
(a manifest) is named. A document that lies in the place of another is named too, and nothing that it could prove or
disprove is written: what it took the place of may only have been moved. It is for a location without live nodes:
`require_nobody_alive`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import Factory, evolve, frozen

from ballista_py.errors import BallistaError, DocumentError, DocumentOlder, ObjectMissing, TryLater
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec, table_folder
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.codec import is_misplaced
from ballista_py.state.documents.decisions import StatementsDocument, statements_key
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    HEARTBEATS_PREFIX,
    MAPS_PREFIX,
    SNAPSHOTS_PREFIX,
    ClusterDocument,
    HeartbeatDocument,
    PartitionMapDocument,
    TableDocument,
    map_name_of,
    partition_map_key,
    table_key,
    table_of_map,
)
from ballista_py.state.documents.lost_documents import DocumentMemory, way_out
from ballista_py.state.documents.object_state import ObjectState, Versioned
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.held.seen import SEEN_PREFIX, SeenManifests
from ballista_py.storage.manifest import ManifestDocument, manifest_key
from ballista_py.storage.partition_storage import PartitionStorage, partition_paths
from ballista_py.storage.token_pages import TokenPages, is_whole
from ballista_py.storage.upkeep.repaired import decisions_after, is_behind, rows_of

_TABLE = "/table.json"
COUNTED_APART = 1_000_000  # nobody knows how many admissions, or names of tables, there were after an older copy


@frozen(kw_only=True)
class Repair:
    """What would be done to one document, in words; `apply` does it."""

    key: str
    what: str
    apply: Callable[[], object]


@frozen(kw_only=True)
class Repairs:
    """What a look found: `repairs`, in the order in which they must be made, and `beyond`, what nobody can repair."""

    repairs: tuple[Repair, ...] = ()
    beyond: tuple[str, ...] = Factory(tuple)


def require_nobody_alive(store: ConditionalStore, patience_ms: float, runtime: Runtime | None = None) -> None:
    """Return once no scheduler can be alive: none has beaten for `patience_ms`, which is waited for.

    Returns at once if all have left. Raises `TryLater` when one beats.
    """
    runtime = runtime or SystemRuntime()

    def beating() -> dict[str, str]:
        found = {}
        for entry in store.list(HEARTBEATS_PREFIX):
            try:
                read = ObjectState(store, entry.key, HeartbeatDocument, runtime=runtime).read()
            except (ObjectMissing, DocumentError):
                continue
            if read.document.ended_by is None:
                found[read.document.scheduler_id] = read.version
        return found

    before = beating()
    if not before:
        return
    runtime.sleep_ms(patience_ms)
    alive = sorted(name for name, version in beating().items() if before.get(name) != version)
    if alive:
        raise TryLater(f"scheduler '{alive[0]}' is alive: stop all nodes, then repair")


def find_repairs(store: ConditionalStore, runtime: Runtime | None = None) -> Repairs:
    """What is lost or older than something else proves it to be; nothing is changed. Raises what the store raises."""
    return _Look(store, runtime or SystemRuntime()).repairs()


class _Look:
    """All documents of a location as they lie there; what cannot be read counts as lost."""

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._beyond: list[str] = []
        self._misplaced: set[str] = set()
        self._older: set[str] = set()
        self._undescribed: set[str] = set()
        self._all_manifests: dict[str, dict[str, ManifestDocument]] = {}
        self._cluster = self._read(CLUSTER_KEY, ClusterDocument)
        names = [map_name_of(entry.key) for entry in store.list(MAPS_PREFIX)]
        self._maps = {name: self._read(partition_map_key(name), PartitionMapDocument) for name in names}
        self._folders: dict[str, TableSpec] = {}
        self._made: dict[str, int] = {}  # by folder, the revision of the catalog under which it was described
        for entry in store.list(SNAPSHOTS_PREFIX):
            if entry.key.endswith(_TABLE) and entry.key.count("/") == 2:
                found = self._read(entry.key, TableDocument)
                if found is not None:
                    self._folders[found.document.table.folder] = found.document.table
                    self._made[found.document.table.folder] = found.document.catalog_revision

    def repairs(self) -> Repairs:
        """The decisions first, the catalog last: without it no node starts.

        Where a document lies in the place of another, nothing of the tables of both is written, nor the catalog.
        """
        catalog, tables = self._catalog()
        repairs: list[Repair] = []
        for _, table in sorted(tables.items()):  # all are read before anything is said to be lost
            self._manifests(table)
            self._read(statements_key(table.folder), StatementsDocument)
        for _, table in sorted(tables.items()):
            if self._is_mixed_up(table):
                continue
            manifests = self._manifests(table)
            repairs += self._pages(table, manifests)
            repairs += self._decisions(table, manifests)
            repairs += self._map(table, manifests)
        if not self._misplaced:
            repairs += catalog
        return Repairs(repairs=tuple(repairs), beyond=tuple(dict.fromkeys(self._beyond)))

    def _is_mixed_up(self, table: TableSpec) -> bool:
        """Whether a document of the table lies elsewhere, or one of another table in its place."""
        of_table = f"{SNAPSHOTS_PREFIX}{table.folder}/", f"{SEEN_PREFIX}{table.folder}/"
        single = statements_key(table.folder), partition_map_key(table.map_name)
        return any(key in single or key.startswith(of_table) for key in self._misplaced)

    def _catalog(self) -> tuple[list[Repair], Mapping[str, TableSpec]]:
        found = self._cluster
        of_maps = (read.document.catalog_revision for read in self._maps.values() if read is not None)
        proven = max((0, *of_maps, *self._made.values()))
        behind = [] if found is None else self._behind(found.document.tables)
        if found is not None and found.header.revision >= proven and not behind:
            return self._describe(
                self._known(found.document.tables, ()), found.header.revision
            ), found.document.tables
        if found is None and not self._folders and not self._maps:
            return [], {}
        before = ClusterDocument() if found is None else found.document
        found_tables = [self._of_map(name, read.document, before) for name, read in self._maps.items() if read]
        tables = {table.name: table for table in found_tables if table is not None}
        tables |= self._without_map(tables, before)
        if self._undescribed:  # a catalog without it would be taken for one in which it was dropped
            self._beyond.append(
                f"'{CLUSTER_KEY}' is not made anew before each table can be described: put "
                f"{', '.join(sorted(map(repr, self._undescribed)))} back, or delete the partition map of a table that "
                "is to be given up, and of several folders those that are no table's"
            )
            return [], tables
        newer = {name: self._newer(table) for name, table in tables.items()}
        tables |= {name: table for name, table in newer.items() if table is not None}
        lacking = {name for name, table in tables.items() if table.folder not in self._folders}
        if self._known(tables, lacking) != tables:
            return [], tables
        namings = before.namings + COUNTED_APART
        after = evolve(
            before,
            schedulers={},
            executors={},
            tables={name: evolve(table, named=namings) for name, table in tables.items()},
            namings=namings,
            dropped={name: table for name, table in before.dropped.items() if name not in tables},
            views={name: view for name, view in before.views.items() if name not in tables},
            admissions=before.admissions + COUNTED_APART,
        )
        state = "lost" if found is None else f"older than revision {proven}"
        if behind:
            state = f"older than '{table_key(behind[0].folder)}'"
        what = f"is {state}: make it anew with {len(tables)} table(s): {', '.join(sorted(tables)) or 'none'}"
        catalog = self._repair(CLUSTER_KEY, ClusterDocument, after, what, proven)
        return [catalog, *self._describe(tables, proven)], tables

    def _behind(self, tables: Mapping[str, TableSpec]) -> list[TableSpec]:
        """What folders know that the catalog does not, however high its revision is by now: nodes may have joined.

        These are tables with a newer definition, and those that have the name of an older one.
        """
        known = {table.folder: table.definition for table in tables.values()}
        altered = [
            table
            for folder, table in sorted(self._folders.items())
            if table.definition > known.get(folder, table.definition)
        ]
        return altered + [newer for table in tables.values() if (newer := self._newer(table)) is not None]

    def _known(self, tables: Mapping[str, TableSpec], announced: Collection[str]) -> Mapping[str, TableSpec]:
        """The tables whose definition is surely the newest that they had; the others are beyond repair.

        Files tell by which definition they were written. What was `announced` may have come to no end: it tells
        something of tables whose folders do not say what they are, beside a catalog that is older.
        """
        known = {}
        for name, table in tables.items():
            files = (file for manifest in self._manifests(table).values() for file in rows_of(manifest))
            newest = max((table.definition, *(file.definition for file in files)))
            if name in announced:
                decisions = self._read(statements_key(table.folder), StatementsDocument)
                newest = max(newest, 0 if decisions is None else decisions.document.announced)
            if newest == table.definition:
                known[name] = table
                continue
            self._beyond.append(
                f"table '{name}' was altered: there is a definition {newest} of it, and '{CLUSTER_KEY}' and "
                f"'{table_key(table.folder)}' know of {table.definition}: put the newest copy of one of them back"
            )
        return known

    def _describe(self, tables: Mapping[str, TableSpec], revision: int) -> list[Repair]:
        """Let every folder say what its table is, which the catalog knew at that revision."""
        lacking = [table for table in tables.values() if table.folder not in self._folders]
        self._folders.update((table.folder, table) for table in lacking)
        what = "is lost: write it again, as the catalog has it"
        return [
            self._repair(
                table_key(table.folder), TableDocument, TableDocument(table=table, catalog_revision=revision), what
            )
            for table in lacking
        ]

    def _of_map(self, map_name: str, document: PartitionMapDocument, before: ClusterDocument) -> TableSpec | None:
        """The table that a map is for, if it had its name to the end."""
        if document.dropped or not document.published:
            return None
        known = [*self._folders.values(), *before.tables.values()]
        same = [t for t in known if (t.map_name, t.incarnation) == (map_name, document.incarnation)]
        if same:
            newest = max(same, key=lambda table: table.definition)
            return None if newest.folder in self._replaced() else newest
        name = table_of_map(map_name)
        lost = table_key(table_folder(name, document.incarnation))
        self._undescribed.add(lost)
        self._beyond.append(f"table '{name}' cannot be described: '{lost}' is lost")
        return None

    def _newer(self, table: TableSpec) -> TableSpec | None:
        """The table that took the name of this one, where the map that says so is lost, or an older copy.

        It was made under a newer catalog, and an owner has served it: so it had the name. Of a table of which nothing
        says when it was made, nobody is known to be newer: that is named where there is another one.
        """
        since = self._made_under(table)
        later = [
            other
            for folder, other in self._folders.items()
            if other.name == table.name
            and folder != table.folder
            and self._made.get(folder, 0) > (since or 0)
            and not self._is_mapped(other)
            and any(manifest.epoch for manifest in self._manifests(other).values())
        ]
        if since is None and later:
            folders = ", ".join(sorted(f"'{other.folder}'" for other in later))
            self._beyond.append(
                f"table '{table.name}' is '{table.folder}' to the catalog, and nothing else says when that was made: "
                f"if it was before {folders}, the catalog is an older copy: put '{table_key(table.folder)}' back"
            )
            return None
        return max(later, key=lambda other: self._made[other.folder], default=None)

    def _made_under(self, table: TableSpec) -> int | None:
        """A revision that the catalog had when the table had its name already, or was about to get it."""
        if self._made.get(table.folder):  # 0: written again by a release that said nothing of it
            return self._made[table.folder]
        found = self._maps.get(table.map_name)
        return found.document.catalog_revision if found is not None and self._is_mapped(table) else None

    def _is_mapped(self, table: TableSpec) -> bool:
        found = self._maps.get(table.map_name)
        return found is not None and found.document.incarnation == table.incarnation

    def _replaced(self) -> set[str]:
        """The folders of tables that others took the place of."""
        return {m.document.replaced for m in self._maps.values() if m is not None and m.document.published}

    def _without_map(self, tables: Mapping[str, TableSpec], before: ClusterDocument) -> dict[str, TableSpec]:
        """The tables without a map, by names that no other table has.

        Of several folders of a name it is the one that was made under the newest catalog, of those that were served.
        """
        found: dict[str, list[TableSpec]] = {}
        for table in self._folders.values():
            is_known = table.name in tables or table.folder in self._replaced() or table in before.dropped.values()
            if self._maps.get(table.map_name) is None and not is_known:
                found.setdefault(table.name, []).append(table)
        chosen = {}
        for name, of_name in sorted(found.items()):
            served = [table for table in of_name if self._has_rows(table)]
            newest = max((self._made.get(table.folder, 0) for table in served), default=0)
            latest = [table for table in served if self._made.get(table.folder, 0) == newest]
            if len(latest) == 1 and (newest or len(served) == 1):
                chosen[name] = latest[0]
                continue
            folders = ", ".join(sorted(table.folder for table in of_name))
            self._beyond.append(f"table '{name}': no map says which of these it is, if any: {folders}")
            if served:
                self._undescribed.add(partition_map_key(served[0].map_name))
        return chosen

    def _has_rows(self, table: TableSpec) -> bool:
        return any(rows_of(manifest) or manifest.epoch for manifest in self._manifests(table).values())

    def _manifests(self, table: TableSpec) -> dict[str, ManifestDocument]:
        """Those of a table that can be read, by partition; what is wrong with others is said once."""
        if table.folder not in self._all_manifests:
            self._all_manifests[table.folder] = self._manifests_of(table)
        return self._all_manifests[table.folder]

    def _manifests_of(self, table: TableSpec) -> dict[str, ManifestDocument]:
        found = {}
        paths = sorted(partition_paths(self._store, table.folder))
        memory = DocumentMemory()
        try:
            SeenManifests(self._store, memory, "", self._runtime, map).take_in(table.folder, paths)
        except DocumentError as error:
            self._note_misplaced(error)
            self._beyond.append(_without_repair(error))
        for path in paths:
            storage = PartitionStorage(self._store, table.folder, path, runtime=self._runtime, memory=memory)
            try:
                found[path] = storage.read().document
            except BallistaError as error:
                self._note_misplaced(error)
                if isinstance(error, DocumentOlder):
                    self._older.add(error.details["key"])
                self._beyond.append(f"partition '{path}' of table '{table.name}': {_without_repair(error)}")
        return found

    def _pages(self, table: TableSpec, manifests: dict[str, ManifestDocument]) -> list[Repair]:
        """Let manifests go on without the pages of tokens that are lost; of `manifests` they are taken out at once."""
        repairs = []
        for path, manifest in manifests.items():
            kept = tuple(page for page in manifest.pages if is_whole(self._store, page))
            if kept == manifest.pages:
                continue
            count = sum(page.tokens for page in manifest.pages) - sum(page.tokens for page in kept)
            what = (
                f"names page(s) of {count} earlier statement(s) that are lost or damaged: go on without them; one that "
                "is sent again would count twice"
            )
            manifests[path] = evolve(manifest, pages=kept)
            repairs.append(self._repair(manifest_key(table.folder, path), ManifestDocument, manifests[path], what))
        return repairs

    def _decisions(self, table: TableSpec, manifests: Mapping[str, ManifestDocument]) -> list[Repair]:
        key = statements_key(table.folder)
        found = self._read(key, StatementsDocument)
        now = StatementsDocument() if found is None else found.document
        folded = max((manifest.sequence for manifest in manifests.values()), default=0)
        of_files = (file.definition for manifest in manifests.values() for file in rows_of(manifest))
        definition = max((table.definition, *of_files))
        is_missed = found is None and any(manifest.prepared for manifest in manifests.values())
        if now.sequence >= folded and now.announced >= definition and not is_missed:
            return []
        pages = TokenPages(self._store, self._runtime)

        def is_applied(token: str) -> bool:
            return any(pages.applied(manifest, token) is not None for manifest in manifests.values())

        after = decisions_after(now, folded, manifests, is_applied).announcing(definition)
        ended = len(after.decisions) - len(now.decisions)
        state = "lost" if found is None else f"at statement {now.sequence}"
        if found is not None and now.sequence >= folded:
            state = f"at definition {now.announced} of a table at {definition} and at statement {now.sequence}"
        what = f"is {state}, manifests know of {folded}: go on from there, {ended} open attempt(s) ended"
        return [self._repair(key, StatementsDocument, after, what)]

    def _map(self, table: TableSpec, manifests: Mapping[str, ManifestDocument]) -> list[Repair]:
        key = partition_map_key(table.map_name)
        found = self._maps.get(table.map_name)
        if found is not None and found.document.incarnation != table.incarnation:
            found = None
        known = None if found is None else found.document.map
        places = {} if known is None else {known.path(p): p for p in range(len(known))}
        for path, place in places.items():
            elsewhere = manifest_key(table.folder, path) in self._misplaced | self._older
            if known is not None and not known.is_removed(place) and path not in manifests and not elsewhere:
                self._beyond.append(
                    f"partition '{path}' of table '{table.name}': its manifest is lost: put it back"
                )
        lacking = {
            path: manifest
            for path, manifest in manifests.items()
            if path not in places and (known is None or rows_of(manifest) or manifest.epoch)
        }
        behind = [
            path
            for path, manifest in manifests.items()
            if known is not None and path in places and is_behind(known, places[path], manifest)
        ]
        if known is not None and not (lacking or behind):
            return []
        made = self._rebuilt(table, known, places, manifests, lacking)
        revision = 0 if self._cluster is None else self._cluster.header.revision
        document = PartitionMapDocument(
            map=made.with_revision(0), incarnation=table.incarnation, catalog_revision=revision
        )
        if known is None:
            what = f"is lost: make it anew with {len(made)} partition(s), none of them owned"
        else:
            what = (
                f"is older than manifests: {len(lacking)} partition(s) to add, "
                f"{len(behind)} epoch(s) to raise; all owners are given anew"
            )
        return [self._repair(key, PartitionMapDocument, document, what)]

    def _rebuilt(
        self,
        table: TableSpec,
        known: PartitionMap | None,
        places: Mapping[str, int],
        manifests: Mapping[str, ManifestDocument],
        lacking: Mapping[str, ManifestDocument],
    ) -> PartitionMap:
        """The map with what it lacks, nobody's, every epoch above those that were ever given out."""
        values = [] if known is None else [known.value(p) for p in range(len(known))]
        paths = [] if known is None else [known.path(p) for p in range(len(known))]
        static = table.spec.static_values()
        by_path = {} if static is None else {table.spec.path(value): value for value in static}
        wanted = by_path if known is None and by_path else lacking
        for path in wanted:
            value = by_path.get(path) if by_path else self._value_of(table, path, manifests[path])
            if value is not None:
                values.append(value)
                paths.append(path)
        made = PartitionMap.build(table.map_name, table.spec, values)
        epochs = made.epochs.copy()
        for place, path in enumerate(paths):
            before = 0 if known is None or path not in places else known.epoch(places[path])
            epochs[place] = max(before, manifests[path].epoch if path in manifests else 0) + 1
        flags, weights = made.flags.copy(), made.weights.copy()
        if known is not None:
            flags[: len(known)], weights[: len(known)] = known.flags, known.weights
        return evolve(made, epochs=epochs, flags=flags, weights=weights)

    def _value_of(self, table: TableSpec, path: str, manifest: ManifestDocument) -> tuple[Any, ...] | None:
        """The value of a partition, read from a row of it; None for one without rows."""
        for file in rows_of(manifest):
            rows = read_data_file(self._store, file, table.schema).slice(0, 1).combine_chunks()
            for batch in rows.to_batches():
                value = tuple(column[0].as_py() for column in table.spec.evaluate(batch))
                if table.spec.path(value) == path:
                    return value
                self._beyond.append(
                    f"partition '{path}' of table '{table.name}' holds rows of '{table.spec.path(value)}'"
                )
        return None

    def _read(self, key: str, kind: type[Any]) -> Versioned[Any] | None:
        try:
            return ObjectState(self._store, key, kind, runtime=self._runtime).read()
        except (ObjectMissing, DocumentError) as error:
            if self._note_misplaced(error):
                self._beyond.append(_without_repair(error))
            return None

    def _note_misplaced(self, error: BallistaError) -> bool:
        """Whether the error says that a document lies in the place of another, which is remembered."""
        if is_misplaced(error):
            self._misplaced |= {error.details["key"], error.details["belongs_to"]}
        return is_misplaced(error)

    def _repair(self, key: str, kind: type[Any], document: Any, what: str, above: int = 0) -> Repair:
        state = ObjectState(self._store, key, kind, runtime=self._runtime, committed_by="repair")
        return Repair(key=key, what=what, apply=lambda: state.restore(document, above=above))


def _without_repair(error: BallistaError) -> str:
    """What an error says, to whoever is repairing already."""
    also = "; if its own place has the newest copy, delete this one: it counts as lost then"
    return error.message.replace(way_out(), "put the newest copy back") + (also if is_misplaced(error) else "")
