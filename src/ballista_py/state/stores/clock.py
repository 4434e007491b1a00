"""The time by the clock that stamps the objects of a store: ages of objects are told by no other."""

from __future__ import annotations

from collections.abc import Iterable

from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry

_NAME = "clock-"
_LEFT_MS = 3_600_000  # nobody looks at a clock for as long as that


def store_now_ms(store: ConditionalStore, runtime: Runtime, prefix: str) -> int:
    """What it shows now; an object below `prefix` is made for that, and removed. Raises what the store raises.

    >>> from ballista_py.runtime import SystemRuntime
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store_now_ms(MemoryStore(), SystemRuntime(), "jobs/") > 0
    True
    """
    key = f"{prefix}{_NAME}{runtime.new_id()}"
    store.create(key, b"now")
    try:
        return max(entry.modified_ms for entry in store.list(key))
    finally:
        store.delete(key)


def left_clocks(entries: Iterable[ObjectEntry], prefix: str, now_ms: float) -> list[str]:
    """Of what lies below `prefix`, the objects that `store_now_ms` made for somebody who did not live to remove them.

    >>> old, new = (ObjectEntry(key=f"jobs/clock-{n}", size=3, version=None, modified_ms=n) for n in (0, 4_000_000))
    >>> left_clocks([old, new], "jobs/", 5_000_000)
    ['jobs/clock-0']
    """
    clocks = (entry for entry in entries if entry.key.startswith(f"{prefix}{_NAME}"))
    return [entry.key for entry in clocks if now_ms - entry.modified_ms > _LEFT_MS]
