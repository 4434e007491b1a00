"""How many bytes of messages each client has at a port: of every call the one that is being worked on."""

from __future__ import annotations

from collections import Counter

from ballista_py.errors import TryLater
from ballista_py.runtime import Runtime

CLIENT_BYTES = 1 << 30


class Holdings:
    """At most `max_bytes` of one client over all its calls; one message alone is always let in. For many threads."""

    def __init__(self, runtime: Runtime, max_bytes: int = CLIENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = runtime.lock()
        self._held: Counter[str] = Counter()

    def exchange(self, client: str, before: int, after: int) -> None:
        """A call of `client` has let go of a message of `before` bytes, and has one of `after` bytes now.

        Raises `TryLater` when all its messages together are too much; then the call has none.
        """
        with self._lock:
            others = self._held[client] - before
            refused = after > 0 and others > 0 and others + after > self._max_bytes
            self._held[client] = others + (0 if refused else after)
            if not self._held[client]:
                del self._held[client]
        if refused:
            raise TryLater(
                f"the messages of this client take {(others + after) >> 20} MiB together, and may take "
                f"{self._max_bytes >> 20}: send fewer at once, or smaller ones"
            )

    def of(self, client: str) -> int:
        """The bytes that are counted of a client now."""
        return self._held[client]
