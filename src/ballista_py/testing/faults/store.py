"""A store that does to its callers what networks do, as often as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from attrs import frozen

from ballista_py.errors import OutcomeUnknown, StoreUnavailable
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ConditionalStore, ObjectEntry, StoredObject

R = TypeVar("R")


@frozen(kw_only=True)
class StoreFaults:
    """The shares of requests, from 0 to 1, that meet each fault, and how long requests take.

    `throttled`: the store sends the request away (`StoreUnavailable`). `lost_requests`: the request never arrives;
    `lost_replies`: it is carried out and nobody hears of it (both `OutcomeUnknown` for a write, else
    `StoreUnavailable`). Every request waits up to `latency_ms` before and after it is carried out; the share
    `slow` of them waits `slow_ms` more.
    """

    throttled: float = 0.0
    lost_requests: float = 0.0
    lost_replies: float = 0.0
    latency_ms: float = 0.0
    slow: float = 0.0
    slow_ms: float = 0.0


class FaultyStore(ConditionalStore):
    """Passes every verb on to `store`, under `faults`. Chance and waiting come from `runtime`.

    With a runtime whose chance is seeded the faults are the same in every run. `faults` may be set anew at any
    time; `StoreFaults()` heals the store.

    >>> from ballista_py.runtime import SystemRuntime
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store = FaultyStore(MemoryStore(), StoreFaults(lost_replies=1.0), runtime=SystemRuntime())
    >>> store.create("a", b"1")
    Traceback (most recent call last):
    ballista_py.errors.OutcomeUnknown: object 'a' may be written: no reply came
    >>> store.store.get("a").data
    b'1'
    """

    def __init__(self, store: ConditionalStore, faults: StoreFaults, *, runtime: Runtime) -> None:
        self.store = store
        self.faults = faults
        self._runtime = runtime

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        return self._read(key, lambda: self.store.get(key, max_bytes))

    def get_if_changed(self, key: str, version: str) -> StoredObject | None:
        return self._read(key, lambda: self.store.get_if_changed(key, version))

    def create(self, key: str, data: bytes) -> str:
        return self._write(key, lambda: self.store.create(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self._write(key, lambda: self.store.replace(key, data, version))

    def delete(self, key: str) -> None:
        self._write(key, lambda: self.store.delete(key))

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        yield from self._read(prefix, lambda: list(self.store.list(prefix)))

    def _read(self, key: str, send: Callable[[], R]) -> R:
        self._arrive(key)
        if self._happens(self.faults.lost_requests):
            raise StoreUnavailable(f"object '{key}' cannot be read: no reply came", key=key)
        answer = send()
        self._travel()
        if self._happens(self.faults.lost_replies):
            raise StoreUnavailable(f"object '{key}' cannot be read: no reply came", key=key)
        return answer

    def _write(self, key: str, send: Callable[[], R]) -> R:
        self._arrive(key)
        if self._happens(self.faults.lost_requests):
            raise OutcomeUnknown(f"object '{key}' may be written: no reply came", key=key)
        try:
            return send()
        finally:
            self._travel()
            if self._happens(self.faults.lost_replies):  # of a refusal, too
                raise OutcomeUnknown(f"object '{key}' may be written: no reply came", key=key) from None

    def _arrive(self, key: str) -> None:
        self._travel()
        if self._happens(self.faults.throttled):
            raise StoreUnavailable(f"object '{key}' was not reached: the store is busy", key=key)

    def _travel(self) -> None:
        duration_ms = self.faults.latency_ms * self._runtime.random() if self.faults.latency_ms else 0.0
        if self._happens(self.faults.slow):
            duration_ms += self.faults.slow_ms
        if duration_ms:
            self._runtime.sleep_ms(duration_ms)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._runtime.random() < share
