"""What executors have seen of manifests, noted on the store: who comes after them finds out an older copy.

A manifest is proven newer by the processes that have seen it; when all of them are gone, by these notes. Each executor
notes for each table the newest revision of every manifest that it saw, some seconds after it changed and once more
when it ends. Whoever loads a partition first takes in what others noted of it: a manifest that is older than that is
refused (`DocumentOlder`), before anything is written to it. Notes only ever follow what they speak of, so none is
ahead of a manifest that is whole. What changed within the last seconds before every process was killed is not noted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import ClassVar

from attrs import Factory, evolve, frozen

from ballista_py.errors import DocumentUnreadable, ObjectExists, ObjectMissing
from ballista_py.runtime import Runtime
from ballista_py.state.documents.codec import is_misplaced
from ballista_py.state.documents.lost_documents import DocumentMemory, Seen
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry
from ballista_py.storage.held.files import Mapper
from ballista_py.storage.manifest import manifest_key

SEEN_PREFIX = "accelerations/seen/"
NOTE_EVERY_MS = 5_000.0
LOOK_EVERY_MS = 60_000.0


@frozen(kw_only=True)
class SeenDocument:
    """`accelerations/seen/{folder}/{executor_id}.json`: by partition, the newest manifest that the executor saw.

    Each is its revision and the id of the commit that made it.
    """

    document_kind: ClassVar[str] = "seen"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # then nothing is proven by it

    manifests: Mapping[str, tuple[int, str]] = Factory(dict)

    def with_newer(self, found: Mapping[str, Seen]) -> SeenDocument:
        """With these, where they are newer.

        >>> SeenDocument(manifests={"k=1": (5, "e")}).with_newer({"k=1": Seen(4, "d"), "k=2": Seen(1, "a")}).manifests
        {'k=1': (5, 'e'), 'k=2': (1, 'a')}
        """
        newer = {
            path: (seen.revision, seen.commit_id)
            for path, seen in found.items()
            if seen.revision > self.manifests.get(path, (0, ""))[0]
        }
        return evolve(self, manifests={**self.manifests, **newer}) if newer else self


def seen_key(folder: str, executor_id: str) -> str:
    """Where an executor notes what it saw of a table."""
    return f"{SEEN_PREFIX}{folder}/{executor_id}.json"


class SeenManifests:
    """The notes of one executor, and those of all others. `memory` is what the process knows of manifests.

    Safe to share between threads, but for `tick`.
    """

    def __init__(
        self, store: ConditionalStore, memory: DocumentMemory, executor_id: str, runtime: Runtime, mapper: Mapper
    ) -> None:
        self._store = store
        self._memory = memory
        self._executor_id = executor_id
        self._runtime = runtime
        self._map = mapper
        self._noted: dict[str, dict[str, Seen]] = {}
        self._read: dict[str, tuple[str | None, SeenDocument]] = {}
        self._looked_ms = runtime.monotonic_ms()
        self._lying: dict[str, ObjectEntry] = {}

    def take_in(self, folder: str, paths: Iterable[str]) -> None:
        """Remember what anybody noted of these partitions, before their manifests are read.

        Notes that cannot be read prove nothing, and are made anew. Raises `DocumentUnreadable` for those that lie in
        the place of others, and what the store raises.
        """
        wanted = set(paths)
        entries = [(entry.key, entry.version) for entry in self._store.list(f"{SEEN_PREFIX}{folder}/")]
        for found in self._map(self._noted_at, entries):
            for path, (revision, commit_id) in found.manifests.items():
                if path in wanted:
                    self._memory.learn(manifest_key(folder, path), Seen(revision, commit_id))

    def tick(self) -> int:
        """Note what was seen since the last time; how many tables. Raises what the store raises.

        Once a minute notes that are gone, or that somebody else has written, are noted anew.
        """
        if self._runtime.monotonic_ms() - self._looked_ms >= LOOK_EVERY_MS:
            self._look()
        changed, seen = 0, _by_folder(self._memory.below("snapshots/"))
        self._noted = {folder: noted for folder, noted in self._noted.items() if folder in seen}
        self._read = {key: read for key, read in self._read.items() if key.split("/")[-2] in seen}
        for folder, found in seen.items():
            if found == self._noted.get(folder):
                continue
            self._note(folder, found)
            self._noted[folder] = found
            self._lying.pop(folder, None)
            changed += 1
        return changed

    def _look(self) -> None:
        """Forget that tables were noted whose notes do not lie there as they did at the last look."""
        self._looked_ms = self._runtime.monotonic_ms()
        entries = {entry.key: entry for entry in self._store.list(SEEN_PREFIX)}
        own = {folder: entries.get(seen_key(folder, self._executor_id)) for folder in self._noted}
        lying = {folder: entry for folder, entry in own.items() if entry is not None}
        as_before = {folder for folder, entry in lying.items() if self._lying.get(folder, entry) == entry}
        self._noted = {folder: noted for folder, noted in self._noted.items() if folder in as_before}
        self._lying = {folder: lying[folder] for folder in as_before}

    def _note(self, folder: str, found: Mapping[str, Seen]) -> None:
        state = ObjectState(
            self._store,
            seen_key(folder, self._executor_id),
            SeenDocument,
            runtime=self._runtime,
            committed_by=self._executor_id,
        )
        try:
            state.update(lambda document: document.with_newer(found))
        except ObjectMissing:
            with suppress(ObjectExists):
                state.create(SeenDocument())
            state.update(lambda document: document.with_newer(found))
        except DocumentUnreadable as error:
            if is_misplaced(error):
                raise
            state.restore(SeenDocument().with_newer(found))

    def _noted_at(self, entry: tuple[str, str | None]) -> SeenDocument:
        key, version = entry
        known = self._read.get(key)
        if known is not None and version is not None and known[0] == version:
            return known[1]
        try:
            read = ObjectState(self._store, key, SeenDocument, runtime=self._runtime).read()
        except (ObjectMissing, DocumentUnreadable) as error:
            if is_misplaced(error):  # what was noted here lies elsewhere
                raise
            return SeenDocument()  # it proves nothing
        self._read[key] = (read.version, read.document)
        return read.document


def forget_dropped(store: ConditionalStore, folders: Collection[str]) -> int:
    """Remove the notes on tables that have no folder any more (`folders` are those that are there); how many."""
    gone = [
        e.key for e in store.list(SEEN_PREFIX) if e.key.removeprefix(SEEN_PREFIX).partition("/")[0] not in folders
    ]
    for key in gone:
        store.delete(key)
    return len(gone)


def _by_folder(seen: Mapping[str, Seen]) -> dict[str, dict[str, Seen]]:
    """What was seen of manifests, by the folder of their table and their partition."""
    found: dict[str, dict[str, Seen]] = {}
    for key, what in seen.items():
        parts = key.split("/")
        if len(parts) == 4 and parts[3] == "manifest.json":
            found.setdefault(parts[1], {})[parts[2]] = what
    return found
