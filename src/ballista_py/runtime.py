"""The only door to time, waiting, randomness, new ids and locks.

Every part of ballista_py takes a `Runtime` instead of importing `time`, `random`, `uuid` or `threading` (a lint
rule keeps it so). `SystemRuntime` is the real machine; the simulation hands in virtual time and seeded chance, so
the same code runs a thousand times faster than life and replays from a seed.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from contextlib import AbstractContextManager
from typing import Protocol


class Condition(Protocol):
    """What callers use of a condition variable; enter it to hold its lock."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exc: object) -> bool | None: ...
    def wait(self, timeout_ms: float | None = None) -> bool:
        """Release the lock, wait for a notification; False if `timeout_ms` passed first."""
        ...

    def notify_all(self) -> None: ...


class Runtime(Protocol):
    """Time, waiting, chance and locks. Times are milliseconds as floats unless a name says otherwise."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this machine's wall clock. For people to read; never for decisions."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds on a clock that never goes back; only differences taken in this process mean anything."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Block the caller for at least `duration_ms`."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def new_id(self) -> str:
        """A fresh id, 32 hexadecimal digits, unique across machines."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """A new mutual-exclusion lock, not re-entrant."""
        ...

    def condition(self) -> Condition:
        """A new condition variable with a lock of its own."""
        ...


class SystemRuntime:
    """The real machine. Safe to share between threads; one instance a process is enough.

    >>> SystemRuntime().monotonic_ms() <= SystemRuntime().monotonic_ms()
    True
    """

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(max(0.0, duration_ms) / 1e3)

    def random(self) -> float:
        return _RANDOM.random()

    def new_id(self) -> str:
        return uuid.UUID(bytes=os.urandom(16), version=4).hex

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def condition(self) -> Condition:
        return _SystemCondition()


def seeded_chance(seed: int) -> random.Random:
    """Chance that is a function of `seed`, for simulations that must replay."""
    return random.Random(seed)  # nosec B311


class _SystemCondition:
    def __init__(self) -> None:
        self._condition = threading.Condition()

    def __enter__(self) -> object:
        return self._condition.__enter__()

    def __exit__(self, *exc: object) -> bool | None:
        self._condition.release()
        return None

    def wait(self, timeout_ms: float | None = None) -> bool:
        return self._condition.wait(None if timeout_ms is None else timeout_ms / 1e3)

    def notify_all(self) -> None:
        self._condition.notify_all()


_RANDOM = random.SystemRandom()
