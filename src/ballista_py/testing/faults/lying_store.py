"""Stores that say that they did what they did not: what `check_store` and `StoreContract` must find out.

Each breaks one promise of `ConditionalStore`, some of them only now and then, as real servers do behind a cache, a
proxy or a bug. When one lies is decided by a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from attrs import evolve, frozen

from ballista_py.errors import ConfigError, ObjectExists, ObjectMissing, StoreUnavailable, VersionConflict
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ConditionalStore, ObjectEntry, StoredObject
from ballista_py.testing.faults.chance import Chance

_GAP_MS = 10.0
_MEGABYTE = 1_048_576


class LyingStore(ConditionalStore):
    """Passes every verb on to `store`; each kind below bends one."""

    def __init__(self, store: ConditionalStore, seed: int = 0, runtime: Runtime | None = None) -> None:
        self.store = store
        self._chance = Chance(seed)
        self._runtime = runtime or SystemRuntime()

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        return self.store.get(key, max_bytes)

    def create(self, key: str, data: bytes) -> str:
        return self.store.create(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self.store.replace(key, data, version)

    def delete(self, key: str) -> None:
        self.store.delete(key)

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        return self.store.list(prefix)

    def _lies(self, share: float) -> bool:
        return self._chance.random() < share

    def _overwrite(self, key: str, data: bytes) -> str:
        """Write whatever is there."""
        while True:
            try:
                return self.store.create(key, data)
            except ObjectExists:
                with suppress(ObjectMissing, VersionConflict):
                    return self.store.replace(key, data, self.store.get(key).version)


class _StaleReads(LyingStore):
    """One read in 20 gives what was there before the newest write."""

    def __init__(self, store: ConditionalStore, seed: int = 0, runtime: Runtime | None = None) -> None:
        super().__init__(store, seed, runtime)
        self._before: dict[str, StoredObject] = {}

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        found = self.store.get(key, max_bytes)
        return self._before.get(key, found) if self._lies(0.05) else found

    def replace(self, key: str, data: bytes, version: str) -> str:
        with suppress(ObjectMissing):
            before = self.store.get(key)
            if before.version == version:
                self._before[key] = before
        return self.store.replace(key, data, version)


class _FrozenReads(LyingStore):
    """Every read gives what the first one gave."""

    def __init__(self, store: ConditionalStore, seed: int = 0, runtime: Runtime | None = None) -> None:
        super().__init__(store, seed, runtime)
        self._first: dict[str, StoredObject] = {}

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        return self._first.setdefault(key, self.store.get(key, max_bytes))


class _CreatesOver(LyingStore):
    """One creation in 50 writes over the object that is there."""

    def create(self, key: str, data: bytes) -> str:
        return self._overwrite(key, data) if self._lies(0.02) else self.store.create(key, data)


class _ReplacesOver(LyingStore):
    """One replacement in 50 writes over whatever version is there."""

    def replace(self, key: str, data: bytes, version: str) -> str:
        if self._lies(0.02):
            return self._overwrite(key, data)
        return self.store.replace(key, data, version)


class _BringsBack(LyingStore):
    """A replacement of an object that was deleted creates it."""

    def replace(self, key: str, data: bytes, version: str) -> str:
        with suppress(VersionConflict):
            return self.store.replace(key, data, version)
        with suppress(ObjectExists):
            return self.store.create(key, data)
        raise VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)


class _NeverChanged(LyingStore):
    """A question for changes is always answered with: none."""

    def get_if_changed(self, key: str, version: str) -> StoredObject | None:
        self.store.get(key)
        return None


class _LandsUnavailable(LyingStore):
    """One write in 50 is carried out and said to be surely not written."""

    def create(self, key: str, data: bytes) -> str:
        return self._answer(key, self.store.create(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self._answer(key, self.store.replace(key, data, version))

    def _answer(self, key: str, version: str) -> str:
        if self._lies(0.02):
            raise StoreUnavailable(f"object '{key}' was not written: the store is busy", key=key)
        return version


class _CutsObjects(LyingStore):
    """Of an object one megabyte is kept."""

    def create(self, key: str, data: bytes) -> str:
        return self.store.create(key, data[:_MEGABYTE])

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self.store.replace(key, data[:_MEGABYTE], version)


class _OtherKeys(LyingStore):
    """A key means what `_of` makes of it."""

    def _of(self, key: str) -> str:
        return key

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        return self.store.get(self._of(key), max_bytes)

    def create(self, key: str, data: bytes) -> str:
        return self.store.create(self._of(key), data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self.store.replace(self._of(key), data, version)

    def delete(self, key: str) -> None:
        self.store.delete(self._of(key))

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        return self.store.list(self._of(prefix))


class _FoldsKeys(_OtherKeys):
    """Keys that differ in upper and lower case are one object."""

    def _of(self, key: str) -> str:
        return key.lower()


class _ListsFolded(LyingStore):
    """Listings show keys in lower case, though two that differ only in that are two objects."""

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        return (evolve(entry, key=entry.key.lower()) for entry in self.store.list(prefix))


class _LeavesOut(LyingStore):
    """One listing in 20 lacks its last object."""

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        found = list(self.store.list(prefix))
        return iter(found[:-1] if self._lies(0.05) else found)


class _FirstPage(LyingStore):
    """A listing ends after 1,000 objects."""

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        return islice(self.store.list(prefix), 1_000)


class _KeepsDeleted(LyingStore):
    """One deletion in 50 does nothing."""

    def delete(self, key: str) -> None:
        if not self._lies(0.02):
            self.store.delete(key)


class _DeletesAlike(LyingStore):
    """With an object all go whose keys begin with its key."""

    def delete(self, key: str) -> None:
        for entry in list(self.store.list(key)):
            self.store.delete(entry.key)


class _MissesDeleted(LyingStore):
    """A deletion of what is not there is an error."""

    def delete(self, key: str) -> None:
        self.store.get(key)
        self.store.delete(key)


class _ListsFolders(LyingStore):
    """A listing shows what lies in the folder of that name, and not what else begins so."""

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        return self.store.list(folder)


class _CountsAgain(LyingStore):
    """The versions of an object count from 1 on, also of one that is created anew after it was deleted."""

    def __init__(self, store: ConditionalStore, seed: int = 0, runtime: Runtime | None = None) -> None:
        super().__init__(store, seed, runtime)
        self._versions: dict[str, list[str]] = {}  # those of the store, in order

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        found = self.store.get(key, max_bytes)
        return evolve(found, version=str(len(self._versions[key])))

    def create(self, key: str, data: bytes) -> str:
        self._versions[key] = [self.store.create(key, data)]
        return "1"

    def replace(self, key: str, data: bytes, version: str) -> str:
        known = self._versions.get(key, [])
        if version != str(len(known)):
            raise VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)
        known.append(self.store.replace(key, data, known[-1]))
        return str(len(known))


class _CutsKeys(_OtherKeys):
    """Keys that differ only behind their first 200 characters are one object."""

    def _of(self, key: str) -> str:
        return key[:200]


class _TrimsKeys(_OtherKeys):
    """A blank at the end of a key is left out."""

    def _of(self, key: str) -> str:
        return key.rstrip()


class _KeepsNoEmpty(LyingStore):
    """An object without a byte is not kept."""

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        found = self.store.get(key, max_bytes)
        if not found.data:
            raise ObjectMissing(f"object '{key}' is missing", key=key)
        return found


class _GivesAll(LyingStore):
    """A read gives an object whole, however many bytes were to be taken."""

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        return self.store.get(key, max(max_bytes, MAX_DOCUMENT_BYTES))


class _CreatesInSteps(LyingStore):
    """A creation looks whether something is there, and writes later."""

    def create(self, key: str, data: bytes) -> str:
        with suppress(ObjectMissing):
            self.store.get(key)
            raise ObjectExists(f"object '{key}' exists already", key=key)
        self._runtime.sleep_ms(_GAP_MS)
        return self._overwrite(key, data)


class _ReplacesInSteps(LyingStore):
    """A replacement compares versions, and writes later."""

    def replace(self, key: str, data: bytes, version: str) -> str:
        with suppress(ObjectMissing):
            if self.store.get(key).version == version:
                self._runtime.sleep_ms(_GAP_MS)
                return self._overwrite(key, data)
        raise VersionConflict(f"object '{key}' was changed or removed by another writer", key=key)


@frozen(kw_only=True)
class Lie:
    """One kind of lying store: `what` it does and which promise of `check_store` it `breaks`.

    `quick`: the quick half of the check finds it. `races`: it is found only by clients that race.
    """

    kind: type[LyingStore]
    breaks: str
    quick: bool = False
    races: bool = False

    @property
    def what(self) -> str:
        """What the store does, in a sentence."""
        return self.kind.__doc__ or ""


LIES: Mapping[str, Lie] = {
    "frozen-reads": Lie(kind=_FrozenReads, breaks="read-your-write", quick=True),
    "never-changed": Lie(kind=_NeverChanged, breaks="changes-are-told", quick=True),
    "brings-back": Lie(kind=_BringsBack, breaks="replace-missing", quick=True),
    "stale-reads": Lie(kind=_StaleReads, breaks="reads-stay-fresh"),
    "creates-over": Lie(kind=_CreatesOver, breaks="creations-stay-refused"),
    "replaces-over": Lie(kind=_ReplacesOver, breaks="replacements-stay-refused"),
    "lands-unavailable": Lie(kind=_LandsUnavailable, breaks="unavailable-is-unwritten"),
    "cuts-objects": Lie(kind=_CutsObjects, breaks="large-objects"),
    "folds-keys": Lie(kind=_FoldsKeys, breaks="exact-keys"),
    "lists-folded": Lie(kind=_ListsFolded, breaks="exact-keys"),
    "leaves-out": Lie(kind=_LeavesOut, breaks="listings-stay-whole"),
    "first-page": Lie(kind=_FirstPage, breaks="many-objects"),
    "keeps-deleted": Lie(kind=_KeepsDeleted, breaks="many-objects"),
    "deletes-alike": Lie(kind=_DeletesAlike, breaks="delete-one", quick=True),
    "misses-deleted": Lie(kind=_MissesDeleted, breaks="delete-one", quick=True),
    "lists-folders": Lie(kind=_ListsFolders, breaks="delete-one", quick=True),
    "counts-again": Lie(kind=_CountsAgain, breaks="replace-missing", quick=True),
    "cuts-keys": Lie(kind=_CutsKeys, breaks="exact-keys"),
    "trims-keys": Lie(kind=_TrimsKeys, breaks="exact-keys"),
    "keeps-no-empty": Lie(kind=_KeepsNoEmpty, breaks="exact-keys"),
    "gives-all": Lie(kind=_GivesAll, breaks="large-objects"),
    "creates-in-steps": Lie(kind=_CreatesInSteps, breaks="one-creator", races=True),
    "replaces-in-steps": Lie(kind=_ReplacesInSteps, breaks="no-lost-update", races=True),
}


def lying_store(
    lie: str, store: ConditionalStore, *, seed: int = 0, runtime: Runtime | None = None
) -> ConditionalStore:
    """`store`, seen through one of `LIES`. Raises `ConfigError` for another name.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store = lying_store("never-changed", MemoryStore())
    >>> version = store.create("a", b"1")
    >>> store.replace("a", b"2", version) == version
    False
    >>> store.get_if_changed("a", version) is None
    True
    """
    if lie not in LIES:
        raise ConfigError(f"no store lies like '{lie}'; take one of {', '.join(LIES)}")
    return LIES[lie].kind(store, seed, runtime)
