"""What the state tests share: a clock that only moves when told, stores that misbehave on purpose."""

from __future__ import annotations

import contextlib
import random

import pytest

from ballista_py.errors import OutcomeUnknown, StoreUnavailable
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES


class ManualRuntime:
    """One thread, a clock moved by hand and by sleeping, seeded chance, ids in order."""

    def __init__(self, seed: int = 0, world: ManualRuntime | None = None, rate: float = 1.0) -> None:
        self._chance = random.Random(seed)
        self._ids = 0
        self._others = 0
        self._seed = seed
        self._now = world._now if world else [1_000.0]
        self._rate = rate
        self.before_sleep = lambda: None

    def advance(self, duration_ms: float) -> None:
        self._now[0] += duration_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self._now[0])

    def monotonic_ms(self) -> float:
        return self._now[0] * self._rate

    def sleep_ms(self, duration_ms: float) -> None:
        self.before_sleep()
        self._now[0] += duration_ms / self._rate

    def random(self) -> float:
        return self._chance.random()

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._seed:08x}{self._ids:024x}"

    def lock(self):
        return contextlib.nullcontext()

    def condition(self):
        return _NoCondition()

    def another(self, rate: float = 1.0) -> ManualRuntime:
        """Another process of the same world: one time, another chance and other ids."""
        self._others += 1
        return ManualRuntime(seed=self._seed * 1_000 + self._others, world=self, rate=rate)


class _NoCondition:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None

    def wait(self, timeout_ms=None):
        raise AssertionError("one thread waits for another one that does not exist")

    def notify_all(self):
        pass


class UnreliableStore:
    """Passes everything on, and does to chosen calls what networks do.

    `plan` maps the number of a write (from 1) to a fault: `lost_reply`, `lost_request`, `unavailable`, `delayed`
    (it lands when `deliver` is called), `conflict_echo` (it lands and reports a conflict).
    """

    def __init__(self, store) -> None:
        self.store = store
        self.plan = {}
        self.chance = None
        self.writes = 0
        self.reads = 0
        self.delayed = []
        self.before_write = lambda number: None
        self.before_get = lambda key: None

    def get(self, key, max_bytes=MAX_DOCUMENT_BYTES):
        self.reads += 1
        self.before_get(key)
        return self.store.get(key, max_bytes)

    def get_if_changed(self, key, version):
        return self.store.get_if_changed(key, version)

    def create(self, key, data):
        return self._write(lambda: self.store.create(key, data), key)

    def replace(self, key, data, version):
        return self._write(lambda: self.store.replace(key, data, version), key)

    def delete(self, key):
        self.store.delete(key)

    def list(self, prefix):
        return self.store.list(prefix)

    def deliver(self) -> None:
        for send in self.delayed:
            with contextlib.suppress(Exception):
                send()
        self.delayed.clear()

    def _write(self, send, key):
        self.writes += 1
        self.before_write(self.writes)
        fault = self.plan.get(self.writes) or (self.chance() if self.chance else None)
        if fault == "unavailable":
            raise StoreUnavailable("throttled", key=key)
        if fault == "lost_request":
            raise OutcomeUnknown("no reply", key=key)
        if fault == "delayed":
            self.delayed.append(send)
            raise OutcomeUnknown("no reply", key=key)
        answer = send()
        if fault == "lost_reply":
            raise OutcomeUnknown("no reply", key=key)
        if fault == "conflict_echo":
            send()  # the client below sends it again, and reports what the store says to that
        return answer


@pytest.fixture
def runtime() -> ManualRuntime:
    return ManualRuntime()


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryStore(runtime=SystemRuntime())
    return LocalStore(str(tmp_path / "state"), runtime=SystemRuntime())


@pytest.fixture
def unreliable() -> UnreliableStore:
    return UnreliableStore(MemoryStore(runtime=SystemRuntime()))
