"""Files that no manifest names: found first, removed on request, never while they could still be needed.

A file is written before a manifest names it and read for a while after none does. So one is garbage only when it is
older than `min_age_ms`, and when it was found unnamed `min_age_ms` ago already: whoever pinned a manifest that names
it began before that. Both times are by the store's own clock; `min_age_ms` must be longer than the longest write
(`MAX_WRITE_MS`), hydration and query over files. Whoever may take longer holds a claim
(`state/documents/claims.py`), a read lease (`storage/reads/leases.py`) or a write lease (`storage/writes/leases.py`),
which count however old the files are. A table with a manifest that cannot be read keeps all of its files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar

from attrs import Factory, evolve, frozen

from ballista_py.errors import BallistaError, ConfigError, DocumentError, ObjectExists, ObjectMissing
from ballista_py.partitions.table import TableSpec, table_folder
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.claims import claimed_prefixes
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    MAPS_PREFIX,
    PartitionMapDocument,
    TableDocument,
    map_name_of,
    partition_map_key,
    table_key,
    table_of_map,
)
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.token_claims import CLAIMED_MS
from ballista_py.state.stores.clock import store_now_ms
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry
from ballista_py.storage.manifest import ManifestDocument, all_files
from ballista_py.storage.reads.leases import ReadLeases
from ballista_py.storage.writes.leases import WriteLeases

MAX_WRITE_MS = 1_800_000.0
MIN_AGE_MS = 2 * MAX_WRITE_MS
GARBAGE_KEY = "accelerations/garbage.json"
_ROOT = "snapshots/"
_MANIFEST = "/manifest.json"


@frozen(kw_only=True)
class GarbageMarks:
    """`accelerations/garbage.json`: since when each object is known to be named by no manifest."""

    document_kind: ClassVar[str] = "garbage"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # then everything is found for the first time

    unnamed: Mapping[str, int] = Factory(dict)

    def seen(self, keys: Collection[str], now_ms: int) -> GarbageMarks:
        """After a look that found exactly these."""
        return evolve(self, unnamed={key: min(now_ms, self.unnamed.get(key, now_ms)) for key in sorted(keys)})


@frozen(kw_only=True)
class Garbage:
    """What a collection found. `files` can go; `young` ones might still be needed, or were found for the first time
    not long enough ago; `kept` says why of whole tables."""

    files: tuple[ObjectEntry, ...] = ()
    young: int = 0
    kept: dict[str, str] = Factory(dict)

    @property
    def bytes(self) -> int:
        """How much the files take."""
        return sum(file.size for file in self.files)


def find_garbage(
    store: ConditionalStore,
    folders: Collection[str],
    *,
    min_age_ms: float = MIN_AGE_MS,
    runtime: Runtime | None = None,
    revision: int | None = None,
) -> Garbage:
    """The objects below `snapshots/` that no manifest of the tables (their `folders`) names; nothing is removed.

    `revision` is that of the catalog which knows of no other tables; one that was made under a newer one keeps its
    files. It notes what it finds, so that a later call, `min_age_ms` after, can tell. All of a folder that is no
    table's is garbage once its youngest object is old enough, to be removed no sooner than claims of tokens end. Raises
    `ConfigError` for a `min_age_ms` below `MAX_WRITE_MS`, and what the store raises.
    """
    if min_age_ms < MAX_WRITE_MS:
        raise ConfigError(f"files younger than {MAX_WRITE_MS / 60_000:.0f} minutes may be of a write under way")
    runtime = runtime or SystemRuntime()
    now_ms = store_now_ms(store, runtime, _ROOT)
    tables: dict[str, list[ObjectEntry]] = {}
    for entry in store.list(_ROOT):
        tables.setdefault(_folder_of(entry.key), []).append(entry)
    claimed = claimed_prefixes(store, runtime)  # after the listing: a file that was listed was claimed before
    claimed += WriteLeases(store, runtime).prefixes(now_ms)  # so, too
    read = ReadLeases(store, runtime).kept(now_ms)  # so, too, and before manifests: what is read was named by one
    garbage: list[ObjectEntry] = []
    kept: dict[str, str] = {}
    young = 0
    for folder, entries in sorted(tables.items()):
        if folder not in folders and any(e.key == table_key(folder) for e in entries):
            reason = _unproven(store, folder, runtime, revision)
            if reason:
                kept[folder] = reason
                continue
        if folder not in folders:
            needed = any(
                now_ms - e.modified_ms < min_age_ms or e.key.startswith(claimed) or e.key in read for e in entries
            )
            unnamed = [] if needed else entries
            young += len(entries) - len(unnamed)
            garbage.extend(unnamed)
            continue
        try:
            named = _named(store, entries, runtime) | read
        except BallistaError as error:
            kept[folder] = error.message
            continue
        named.add(table_key(folder))
        unnamed = [e for e in entries if not e.key.endswith(_MANIFEST) and e.key not in named]
        old = [e for e in unnamed if now_ms - e.modified_ms >= min_age_ms and not e.key.startswith(claimed)]
        young += len(unnamed) - len(old)
        garbage.extend(old)
    # Not as of the beginning: what took long may have been named until a moment ago.
    seen_ms = store_now_ms(store, runtime, _ROOT) if garbage else now_ms
    since = _marked(store, {file.key for file in garbage}, seen_ms, runtime)
    ended_ms = max(min_age_ms, CLAIMED_MS)  # what was applied in a table that ended may be sent again so long
    due = tuple(
        file
        for file in garbage
        if now_ms - since[file.key] >= (min_age_ms if _folder_of(file.key) in folders else ended_ms)
    )
    return Garbage(files=due, young=young + len(garbage) - len(due), kept=kept)


def _folder_of(key: str) -> str:
    return key.removeprefix(_ROOT).partition("/")[0]


def _unproven(store: ConditionalStore, folder: str, runtime: Runtime, revision: int | None) -> str:
    """Why a folder that is no table's may be one's nevertheless, though the catalog does not say so; empty if not."""
    try:
        described = ObjectState(store, table_key(folder), TableDocument, runtime=runtime).read().document
        if revision is not None and described.catalog_revision > revision:
            return f"it was made under a newer '{CLUSTER_KEY}' than the one that lies here"
        table = described.table
        found = (
            ObjectState(store, partition_map_key(table.map_name), PartitionMapDocument, runtime=runtime)
            .read()
            .document
        )
    except ObjectMissing:
        return "no partition map says that its table was dropped"
    except BallistaError as error:
        return error.message
    if found.incarnation == table.incarnation:
        return ""
    key = table_key(table_folder(table_of_map(table.map_name), found.incarnation))
    with suppress(BallistaError):  # it proves nothing
        other = ObjectState(store, key, TableDocument, runtime=runtime).read().document
        if 0 < other.catalog_revision < described.catalog_revision:
            return f"the partition map of its name is that of '{other.table.folder}', which was made before it"
    return ""


def _marked(store: ConditionalStore, keys: Collection[str], now_ms: int, runtime: Runtime) -> Mapping[str, int]:
    """Since when these are known to be unnamed; `now_ms` is after manifests were read."""
    marks = ObjectState(store, GARBAGE_KEY, GarbageMarks, runtime=runtime)
    try:
        return marks.update(lambda before: before.seen(keys, now_ms)).document.unnamed
    except ObjectMissing:
        with suppress(ObjectExists):
            marks.create(GarbageMarks())
        return marks.update(lambda before: before.seen(keys, now_ms)).document.unnamed


def remove_garbage(store: ConditionalStore, garbage: Garbage) -> int:
    """Remove what `find_garbage` found; how many objects. Each is removed for itself: it may be repeated."""
    # Manifests last, so that a run that breaks off leaves no file without the folder's own account of it.
    for file in sorted(garbage.files, key=lambda entry: entry.key.endswith(_MANIFEST)):
        store.delete(file.key)
    return len(garbage.files)


def ended_maps(
    store: ConditionalStore, tables: Iterable[TableSpec], runtime: Runtime | None = None
) -> tuple[str, ...]:
    """The keys of maps that no table has any more, each of a table that had it to itself and whose files are gone.

    The one that proves the newest catalog is not among them. Raises what the store raises.
    """
    runtime = runtime or SystemRuntime()
    kept = {table.map_name for table in tables}
    proven: dict[str, int] = {}
    for entry in store.list(MAPS_PREFIX):
        with suppress(DocumentError, ObjectMissing):
            state = ObjectState(store, entry.key, PartitionMapDocument, runtime=runtime)
            proven[entry.key] = state.read().document.catalog_revision
    ended = []
    for key in proven:  # after the maps were listed: a table has something in its folder before it has a map
        name, _, incarnation = map_name_of(key).partition(".")
        folder = f"{_ROOT}{table_folder(name, incarnation)}/"
        if incarnation and map_name_of(key) not in kept and next(iter(store.list(folder)), None) is None:
            ended.append(key)
    newest = max(proven, key=lambda key: (proven[key], key not in ended), default="")
    return tuple(key for key in sorted(ended) if key != newest)


def _named(store: ConditionalStore, entries: Iterable[ObjectEntry], runtime: Runtime) -> set[str]:
    """The files that manifests name, prepared ones too. Read after the listing: a file listed is named by now."""
    named: set[str] = set()
    for entry in entries:
        if entry.key.endswith(_MANIFEST):
            manifest = ObjectState(store, entry.key, ManifestDocument, runtime=runtime).read().document
            named.update(path for file in all_files(manifest) for path in file.paths)
            named.update(page.path for page in manifest.pages)
    return named
