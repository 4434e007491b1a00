"""Where `check_store` tries a promise: a store, a folder of its own, and requests that wait out a busy store.

A reply that is lost is read back and never counted as a broken promise, nor is a write that a network sent twice, of
which the second came back as a conflict with the first. A store that says of a write that it surely
did not happen is read back as well: whoever believes it sends the write again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, wait
from typing import TypeVar

from attrs import Factory, define, field, frozen

from ballista_py.errors import (
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    VersionConflict,
)
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ConditionalStore, ObjectEntry, StoredObject

RACERS = 32
_BUSY_PAUSE_MS = 50.0

R = TypeVar("R")


class BrokenPromise(Exception):
    """A promise was seen broken."""


@define
class Notes:
    """What all trials of one check note: the keys that may be there, and writes that the store called unwritten.

    Shared by the threads of a race; each note is one step of its own.
    """

    keys: set[str] = Factory(set)
    called_unwritten: int = 0
    landed_nevertheless: str = ""


@frozen
class PromiseTrial:
    """How one promise is tried. A `quick` trial takes a few requests, the others take hundreds."""

    name: str
    text: str
    try_it: Callable[[Bench], None]
    needed: bool = True
    quick: bool = True


@define
class Bench:
    """What a trial works with. Each request is sent up to `tries` times to a store that is busy."""

    store: ConditionalStore
    folder: str
    runtime: Runtime
    executor: Executor | None
    notes: Notes
    tries: int
    trouble: str = field(default="", init=False)

    @property
    def key(self) -> str:
        """The one object of a trial that needs no other."""
        return self.folder + "object.json"

    def create(self, data: bytes, key: str | None = None) -> str:
        """Create an object that is not there yet; its version."""
        name = key or self.key
        self.notes.keys.add(name)
        return self._settled(lambda: self.store.create(name, data), data, name, None)

    def replace(self, data: bytes, version: str, key: str | None = None) -> str:
        """Replace the newest version of an object; the new one."""
        name = key or self.key
        return self._settled(lambda: self.store.replace(name, data, version), data, name, version)

    def get(self, key: str | None = None, most_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        return self._read(lambda: self.store.get(key or self.key, most_bytes))

    def changed(self, version: str, key: str | None = None) -> StoredObject | None:
        return self._read(lambda: self.store.get_if_changed(key or self.key, version))

    def listing(self, prefix: str | None = None) -> list[ObjectEntry]:
        return self._read(lambda: list(self.store.list(self.folder if prefix is None else prefix)))

    def delete(self, key: str | None = None) -> None:
        """Delete an object, again and again where no reply comes: that changes nothing more."""
        name = key or self.key
        self._read(lambda: self.store.delete(name))
        self.notes.keys.discard(name)

    def expect(self, data: bytes, otherwise: str, key: str | None = None) -> None:
        """Raises `BrokenPromise` unless a read gives `data`."""
        if self.get(key).data != data:
            raise BrokenPromise(otherwise)

    def refuses(self, write: Callable[[], str], error: type[StoreError]) -> bool:
        """Whether the store answers a write with `error`, as it must."""
        for _ in range(self.tries):
            try:
                write()
            except error:
                return True
            except (StoreUnavailable, OutcomeUnknown) as busy:
                self.pause(busy)
            else:
                return False
        raise self.silent()

    def race(self, run: Callable[[int], R]) -> list[R]:
        """`run` for the number of every racer, all at once where there is an executor."""
        return self.each(RACERS, run)

    def each(self, count: int, run: Callable[[int], R]) -> list[R]:
        """`run` for every number below `count`; raises what one raised, once none of them runs any more."""
        if self.executor is None:
            return [run(number) for number in range(count)]
        running = [self.executor.submit(run, number) for number in range(count)]
        wait(running)
        return [one.result() for one in running]

    def pause(self, error: StoreError) -> None:
        """Wait before a request is tried again, and remember why."""
        self.trouble = error.message
        self.runtime.sleep_ms(_BUSY_PAUSE_MS)

    def silent(self) -> StoreUnavailable:
        """The error for a store that gave no answer however often it was asked."""
        return StoreUnavailable(f"the store could not be checked: {self.trouble}")

    def _read(self, send: Callable[[], R]) -> R:
        for _ in range(self.tries):
            try:
                return send()
            except (StoreUnavailable, OutcomeUnknown) as busy:
                self.pause(busy)
        raise self.silent()

    def _settled(self, write: Callable[[], str], data: bytes, key: str, before: str | None) -> str:
        """The version after a write that must pass, whatever became of its first replies."""
        lost = False
        for _ in range(self.tries):
            try:
                return write()
            except StoreUnavailable as busy:
                self.pause(busy)
                self.notes.called_unwritten += 1
                landed = self._landed(key, data, before)
                if landed is not None and not lost:
                    self.notes.landed_nevertheless = "a write that the store called unwritten had been written"
            except OutcomeUnknown as unknown:
                self.pause(unknown)
                lost = True
                landed = self._landed(key, data, before)
            except (ObjectExists, VersionConflict) as error:
                landed = self._landed(
                    key, data, before
                )  # the echo of our own write, which came to the store twice
                if landed is None:
                    raise BrokenPromise(f"a write that was due was refused: {error.code}") from None
            if landed is not None:
                return landed
        raise self.silent()

    def _landed(self, key: str, data: bytes, before: str | None) -> str | None:
        """The version of a write over `before` that is there after all."""
        try:
            found = self.get(key)
        except ObjectMissing:
            return None
        return found.version if found.data == data and found.version != before else None
