"""The time by the clock that stamps the objects of a store: ages of objects are told by no other."""

from __future__ import annotations

from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore


def store_now_ms(store: ConditionalStore, runtime: Runtime, prefix: str) -> int:
    """What it shows now; an object below `prefix` is made for that, and removed. Raises what the store raises.

    >>> from ballista_py.runtime import SystemRuntime
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store_now_ms(MemoryStore(), SystemRuntime(), "jobs/") > 0
    True
    """
    key = f"{prefix}clock-{runtime.new_id()}"
    store.create(key, b"now")
    try:
        return max(entry.modified_ms for entry in store.list(key))
    finally:
        store.delete(key)
