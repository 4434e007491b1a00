"""What is remembered so that it need not be found out again: within bounds, and fairly between clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.work import current_client

V = TypeVar("V")
LARGEST_SHARE = 8  # what takes more than this part of the room is not remembered


class Remembered(Generic[V]):
    """The values used last by key, at most `max_entries` and `max_bytes`. Safe to share between threads.

    Where there is no room the client that takes up most of it loses what it used longest ago: whoever sends one large
    statement after the other makes his own be forgotten.

    >>> last = Remembered(2, 100)
    >>> for number in range(3):
    ...     last.put(number, str(number), 10)
    >>> last.get(0), last.get(2)
    (None, '2')
    """

    def __init__(self, max_entries: int, max_bytes: int, runtime: Runtime | None = None) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._values: dict[Hashable, tuple[V, int, str]] = {}
        self._by_client: dict[str, OrderedDict[Hashable, None]] = {}
        self._bytes: dict[str, int] = {}
        self._lock = (runtime or SystemRuntime()).lock()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        """How much all of it takes, as it was told."""
        with self._lock:
            return sum(self._bytes.values())

    def __contains__(self, key: Hashable) -> bool:
        """Whether something is remembered under the key, which is not used by that."""
        with self._lock:
            return key in self._values

    def get(self, key: Hashable) -> V | None:
        """What is remembered under the key, which is used now."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._by_client[found[2]].move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, nbytes: int) -> None:
        """Remember a value that, with its key, takes about so much; what is very large is not remembered."""
        client = current_client()
        with self._lock:
            self._forget(key)
            if nbytes > self._max_bytes // LARGEST_SHARE:
                return
            self._values[key] = value, nbytes, client
            self._by_client.setdefault(client, OrderedDict())[key] = None
            self._bytes[client] = self._bytes.get(client, 0) + nbytes
            while len(self._values) > self._max_entries or sum(self._bytes.values()) > self._max_bytes:
                self._forget(next(iter(self._by_client[max(self._by_client, key=self._share)])))

    def keep(self, wanted: Callable[[V], bool]) -> None:
        """Forget all other values."""
        with self._lock:
            for key in [key for key, (value, _, _) in self._values.items() if not wanted(value)]:
                self._forget(key)

    def _share(self, client: str) -> float:
        return max(self._bytes[client] / self._max_bytes, len(self._by_client[client]) / self._max_entries)

    def _forget(self, key: Hashable) -> None:
        found = self._values.pop(key, None)
        if found is None:
            return
        _, nbytes, client = found
        del self._by_client[client][key]
        self._bytes[client] -= nbytes
        if not self._by_client[client]:
            del self._by_client[client], self._bytes[client]
