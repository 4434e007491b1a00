"""Whether a store keeps the promises that coordination needs, found out on the store itself.

Each promise is tried with objects of its own below `.check/`, which are deleted at the end. A promise that is
needed and broken makes the store unsafe: two nodes could both believe that they own a partition. The others are
told because an application may want them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

import orjson
from attrs import frozen

from ballista_py.errors import (
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
    VersionConflict,
)
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.store import ConditionalStore

CHECK_PREFIX = ".check/"
RACERS = 32
_RACE_TRIES = 400
_BUSY_TRIES = 5
_BUSY_PAUSE_MS = 50.0


@frozen(kw_only=True)
class Promise:
    """One promise: `kept` or not, `needed` by coordination or not, and what was seen where it was broken."""

    name: str
    text: str
    needed: bool
    kept: bool
    seen: str = ""


@frozen(kw_only=True)
class StoreReport:
    """What `check_store` found."""

    promises: tuple[Promise, ...]

    @property
    def broken(self) -> tuple[Promise, ...]:
        """The needed promises that the store breaks."""
        return tuple(promise for promise in self.promises if promise.needed and not promise.kept)

    @property
    def safe(self) -> bool:
        """Whether nodes may share their documents on this store."""
        return not self.broken

    def require_safe(self) -> None:
        """Return if the store is safe; else raise `UnsafeStore` naming the broken promises."""
        if self.broken:
            named = "; ".join(f"{promise.name} ({promise.seen})" for promise in self.broken)
            raise UnsafeStore(f"the store breaks what coordination needs: {named}; use another store")


class _BrokenError(Exception):
    """A promise was seen broken."""


@frozen
class _Trial:
    name: str
    text: str
    try_it: Callable[[_Bench], None]
    needed: bool = True
    quick: bool = True


class _Bench:
    """Where a promise is tried: the store, a folder of its own, and helpers that wait out a busy store."""

    def __init__(self, store: ConditionalStore, folder: str, runtime: Runtime, executor: Executor | None) -> None:
        self.store = store
        self.key = folder + "object.json"
        self.folder = folder
        self.runtime = runtime
        self.trouble = ""
        self.executor = executor

    def pause(self, error: StoreError) -> None:
        """Wait before a request is tried again, and remember why."""
        self.trouble = error.message
        self.runtime.sleep_ms(_BUSY_PAUSE_MS)

    def silent(self) -> StoreUnavailable:
        """The error for a store that gave no answer however often it was asked."""
        return StoreUnavailable(f"the store could not be checked: {self.trouble}")

    def create(self, data: bytes, key: str | None = None) -> str:
        """Create an object that is not there yet; its version."""
        return self._settled(lambda: self.store.create(key or self.key, data), data, key or self.key)

    def replace(self, data: bytes, version: str) -> str:
        return self._settled(lambda: self.store.replace(self.key, data, version), data, self.key)

    def refuses(self, write: Callable[[], str], error: type[StoreError]) -> bool:
        """Whether the store answers a write with `error`, as it must."""
        for _ in range(_BUSY_TRIES):
            try:
                write()
            except error:
                return True
            except (StoreUnavailable, OutcomeUnknown) as busy:
                self.pause(busy)
            else:
                return False
        raise self.silent()

    def delete(self, key: str) -> None:
        """Delete an object, again and again where no reply comes: that changes nothing more."""
        for _ in range(_BUSY_TRIES):
            try:
                return self.store.delete(key)
            except (StoreUnavailable, OutcomeUnknown) as busy:
                self.pause(busy)
        raise self.silent()

    def expect(self, data: bytes, otherwise: str) -> None:
        if self.store.get(self.key).data != data:
            raise _BrokenError(otherwise)

    def _settled(self, write: Callable[[], str], data: bytes, key: str) -> str:
        """The version after a write that must pass, whatever became of its first replies."""
        for _ in range(_BUSY_TRIES):
            try:
                return write()
            except StoreUnavailable as busy:
                self.pause(busy)
            except OutcomeUnknown as lost:
                self.pause(lost)
                with suppress(ObjectMissing):
                    found = self.store.get(key)
                    if found.data == data:
                        return found.version
            except (ObjectExists, VersionConflict) as error:
                raise _BrokenError(f"a write that was due was refused: {error.code}") from None
        raise self.silent()


def check_store(
    store: ConditionalStore,
    *,
    quick: bool = False,
    runtime: Runtime | None = None,
    executor: Executor | None = None,
) -> StoreReport:
    """Try every promise on `store` and report which it keeps. Cleans up after itself.

    `quick` leaves out the races and takes about 25 requests. The 32 racers run on `executor`; without one, or
    with one of a single worker, they take turns, which finds a store without conditions and not one whose check
    and write are apart. Raises `StoreUnavailable` where the store cannot be asked.

    >>> from ballista_py.state.memory import MemoryStore
    >>> check_store(MemoryStore()).safe
    True
    """
    runtime = runtime or SystemRuntime()
    home = f"{CHECK_PREFIX}{runtime.new_id()}/"
    chosen = [trial for trial in _TRIALS if trial.quick or not quick]
    try:
        promises = tuple(
            _tried(trial, _Bench(store, f"{home}{trial.name}/", runtime, executor)) for trial in chosen
        )
    finally:
        _clean(store, home, [trial.name for trial in chosen])
    return StoreReport(promises=promises)


def _tried(trial: _Trial, bench: _Bench) -> Promise:
    seen = ""
    try:
        trial.try_it(bench)
    except _BrokenError as broken:
        seen = str(broken)
    except ObjectMissing:
        seen = "an object that was written is missing"
    except (OutcomeUnknown, StoreUnavailable):
        raise
    except StoreError as error:
        seen = error.message
    return Promise(name=trial.name, text=trial.text, needed=trial.needed, kept=not seen, seen=seen)


def _clean(store: ConditionalStore, home: str, names: list[str]) -> None:
    """Delete what the check wrote, also on stores that do not list it."""
    keys = {f"{home}{name}/object.json" for name in names}
    with suppress(StoreError):  # what cannot be reached now stays
        keys.update(entry.key for entry in store.list(home) if entry.key.startswith(home))
        for key in sorted(keys):
            store.delete(key)


def _read_your_write(bench: _Bench) -> None:
    version = bench.create(b'{"n": 1}')
    found = bench.store.get(bench.key)
    if (found.data, found.version) != (b'{"n": 1}', version):
        raise _BrokenError("a read after a write gave other bytes or another version")
    newer = bench.replace(b'{"n": 2}', version)
    found = bench.store.get(bench.key)
    if (found.data, found.version) != (b'{"n": 2}', newer):
        raise _BrokenError("a read after a replacement gave other bytes or another version")


def _create_if_absent(bench: _Bench) -> None:
    bench.create(b"first")
    if not bench.refuses(lambda: bench.store.create(bench.key, b"second"), ObjectExists):
        raise _BrokenError("a second creation was accepted")
    bench.expect(b"first", "a refused creation changed the object")


def _replace_if_match(bench: _Bench) -> None:
    stale = bench.create(b"1")
    newer = bench.replace(b"2", stale)
    if newer == stale:
        raise _BrokenError("other bytes came under the same version")
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"3", stale), VersionConflict):
        raise _BrokenError("a replacement of a stale version was accepted")
    bench.expect(b"2", "a refused replacement changed the object")


def _replace_missing(bench: _Bench) -> None:
    version = bench.create(b"1")
    bench.delete(bench.key)
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"2", version), VersionConflict):
        raise _BrokenError("a replacement of a deleted object was accepted")
    with suppress(ObjectMissing):
        bench.store.get(bench.key)
        raise _BrokenError("a deleted object is still there")


def _same_bytes_new_version(bench: _Bench) -> None:
    first = bench.create(b"same")
    second = bench.replace(b"same", first)
    if second == first:
        raise _BrokenError("the version is a hash of the bytes")
    if not bench.refuses(lambda: bench.store.replace(bench.key, b"x", first), VersionConflict):
        raise _BrokenError("a replacement of a stale version was accepted after the same bytes were written")


def _list_after_write(bench: _Bench) -> None:
    keys = sorted(f"{bench.folder}{name}" for name in ("b", "a-x", "a/1"))
    for key in keys:
        bench.create(b"12345", key)
    found = {entry.key: entry.size for entry in bench.store.list(bench.folder)}
    if found != dict.fromkeys(keys, 5):
        raise _BrokenError("a listing after the writes does not show exactly what was written")
    bench.delete(keys[0])
    if keys[0] in [entry.key for entry in bench.store.list(bench.folder)]:
        raise _BrokenError("a listing shows a deleted object")


def _versions_in_listings(bench: _Bench) -> None:
    version = bench.create(b"1")
    bench.replace(b"2", version)
    newest = bench.store.get(bench.key).version
    listed = [entry.version for entry in bench.store.list(bench.folder)]
    if listed != [newest]:
        raise _BrokenError("a listing does not tell the version that a read gives")


def _one_creator(bench: _Bench) -> None:
    winners = _race(bench, lambda number: _creates(bench, f"racer {number}".encode()))
    if sum(winners) != 1:
        raise _BrokenError(f"{sum(winners)} of {RACERS} racing creations succeeded")


def _creates(bench: _Bench, data: bytes) -> bool:
    for _ in range(_BUSY_TRIES):
        try:
            bench.store.create(bench.key, data)
            return True
        except ObjectExists:
            return False
        except StoreUnavailable as busy:
            bench.pause(busy)
        except OutcomeUnknown as lost:
            bench.pause(lost)
            with suppress(ObjectMissing):
                return bench.store.get(bench.key).data == data
    raise bench.silent()


def _no_lost_update(bench: _Bench) -> None:
    first = bench.create(b"[]")
    stale = _race(bench, lambda number: _replaces(bench, first, f'["{number}"]'.encode()))
    if sum(stale) != 1:
        raise _BrokenError(f"{sum(stale)} of {RACERS} racing replacements of one version succeeded")
    _race(bench, lambda number: _appends(bench, f"{bench.runtime.new_id()}-{number}"))
    kept = orjson.loads(bench.store.get(bench.key).data)
    if len(kept) != RACERS + 1 or len(set(kept)) != RACERS + 1:
        raise _BrokenError(f"{RACERS + 1 - len(set(kept))} of {RACERS} acknowledged updates were lost")


def _replaces(bench: _Bench, version: str, data: bytes) -> bool:
    for _ in range(_BUSY_TRIES):
        try:
            bench.store.replace(bench.key, data, version)
            return True
        except VersionConflict:
            return False
        except StoreUnavailable as busy:
            bench.pause(busy)
        except OutcomeUnknown as lost:
            bench.pause(lost)
            return bench.store.get(bench.key).data == data
    raise bench.silent()


def _appends(bench: _Bench, mark: str) -> bool:
    """Add `mark` to the list in the object; a mark that is seen there has landed, whatever its reply was."""
    for tries in range(_RACE_TRIES):
        found = bench.store.get(bench.key)
        marks = orjson.loads(found.data)
        if mark in marks:
            return True
        try:
            bench.store.replace(bench.key, orjson.dumps([*marks, mark]), found.version)
            return True
        except (VersionConflict, StoreUnavailable, OutcomeUnknown):
            bench.runtime.sleep_ms(min(tries, 20) * 5.0 * bench.runtime.random())
    raise StoreUnavailable("the store could not be checked: a writer never got its turn")


def _race(bench: _Bench, run: Callable[[int], bool]) -> list[bool]:
    numbers = range(RACERS)
    return list(bench.executor.map(run, numbers)) if bench.executor is not None else list(map(run, numbers))


_TRIALS = (
    _Trial("read-your-write", "a read sees the newest write, whole", _read_your_write),
    _Trial("create-if-absent", "a creation never writes over an object", _create_if_absent),
    _Trial("replace-if-match", "a replacement never writes over another version", _replace_if_match),
    _Trial("replace-missing", "a replacement never brings back a deleted object", _replace_missing),
    _Trial("list-after-write", "a listing shows exactly what is there", _list_after_write),
    _Trial("one-creator", f"of {RACERS} racing creations one succeeds", _one_creator, quick=False),
    _Trial("no-lost-update", f"{RACERS} racing writers lose no update", _no_lost_update, quick=False),
    _Trial("versions-in-listings", "a listing tells versions", _versions_in_listings, needed=False),
    _Trial(
        "same-bytes-new-version",
        "the same bytes written again are another version",
        _same_bytes_new_version,
        needed=False,
    ),
)
