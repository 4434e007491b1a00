"""The streams of events of one port: how many there may be at once, and that they end with the port."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ballista_py.errors import TryLater

MAX_STREAMS = 64  # of one port
MAX_STREAMS_OF_ONE = 16


class LiveStreams:
    """The streams of one port: how many there may be, and that they end with it. `enter` is for the port's loop."""

    def __init__(self) -> None:
        self._by_caller: Counter[str] = Counter()
        self._ends: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def __len__(self) -> int:
        return self._by_caller.total()

    @contextmanager
    def enter(self, caller: str) -> Iterator[asyncio.Event]:
        """Around one stream; gives what is set when it is to end. Raises `TryLater` when there are too many."""
        if self._closed:
            raise TryLater("the node is shutting down: ask another one")
        if len(self) >= MAX_STREAMS:
            raise TryLater(f"{MAX_STREAMS} pages are shown what this node does already: close one, or ask another")
        if self._by_caller[caller] >= MAX_STREAMS_OF_ONE:
            raise TryLater(f"{MAX_STREAMS_OF_ONE} pages of '{caller}' look at this node already: close one")
        self._loop = asyncio.get_running_loop()
        end = asyncio.Event()
        self._by_caller[caller] += 1
        self._ends.add(end)
        try:
            yield end
        finally:
            self._ends.discard(end)
            self._by_caller[caller] -= 1
            self._by_caller += Counter()  # forgets who has none

    def close(self) -> None:
        """Let all streams end, from any thread."""
        self._closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is over, and so are they
                self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for end in self._ends:
            end.set()
