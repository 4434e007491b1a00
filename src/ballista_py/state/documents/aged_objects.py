"""Objects that are made once, asked for during a while, and then of no use: found by their age and removed."""

from __future__ import annotations

from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore

MAX_KNOWN = 100_000


class AgedObjects:
    """Those of a store below `prefix`. An object goes once this process has known it for `kept_ms`, by its own
    monotonic clock: so at least that long after it was made, whoever made it. For one thread."""

    def __init__(self, store: ConditionalStore, runtime: Runtime, prefix: str, kept_ms: float) -> None:
        self._store = store
        self._runtime = runtime
        self._prefix = prefix
        self._kept_ms = kept_ms
        self._known_ms: dict[tuple[str, str | None, int], float] = {}

    def tick(self) -> int:
        """Remove what is old; how many. Raises what the store raises."""
        now_ms = self._runtime.monotonic_ms()
        found = {(entry.key, entry.version, entry.modified_ms) for entry in self._store.list(self._prefix)}
        self._known_ms = {known: ms for known, ms in self._known_ms.items() if known in found}
        for fresh in list(found - self._known_ms.keys())[: MAX_KNOWN - len(self._known_ms)]:
            self._known_ms[fresh] = now_ms
        due = [key for (key, *_), known_ms in self._known_ms.items() if now_ms - known_ms >= self._kept_ms]
        for key in due:
            self._store.delete(key)
        return len(due)
