"""A TCP proxy that stands on one link between two nodes and spoils it: cut, stalled, throttled, healed.

It passes bytes on as they are, so TLS goes through it. A node that is told to advertise `127.0.0.2` is reached there
through proxies on its own port numbers, while it listens on `127.0.0.1`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

from ballista_py.runtime import Condition, SystemRuntime

Spawn = Callable[[Callable[[], None]], object]
Mood = Literal["pass", "cut", "stall", "throttle"]
PIECE_BYTES = 1 << 16
THROTTLED_BYTES_PER_S = 20_000
_LOOK_S = 0.02
_START_MS = 10_000.0


class TcpProxy:
    """Listens on `listen` (`host:port`; port 0 takes a free one) for `target`. A context manager.

    `spawn` runs a function beside the caller; the proxy calls it once. What it does to the link is its `mood`:
    *cut* ends every connection and accepts none for longer than a moment, *stall* passes nothing on and keeps the
    connections, *throttle* passes `THROTTLED_BYTES_PER_S` each way on each. `opened` counts connections, `open` those
    that are open now.
    """

    def __init__(self, target: str, spawn: Spawn, listen: str = "127.0.0.1:0") -> None:
        self.mood: Mood = "pass"
        self.opened = 0
        self.open = 0
        self.address = listen
        self._target = _split(target)
        self._spawn = spawn
        self._changed: Condition = SystemRuntime().condition()
        self._stop: Callable[[], object] | None = None
        self._links: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> TcpProxy:
        self._spawn(lambda: asyncio.run(self._serve()))
        with self._changed:
            while self._stop is None and self._changed.wait(_START_MS):
                pass
        assert self._stop is not None, "the proxy did not start"
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._stop is not None:
            self._stop()

    async def _serve(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._link, *_split(self.address))
        host, port = server.sockets[0].getsockname()[:2]
        with self._changed:
            self.address = f"{host}:{port}"
            self._stop = lambda: loop.call_soon_threadsafe(ended.set)
            self._changed.notify_all()
        await ended.wait()
        server.close()
        for link in tuple(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _link(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """One connection, from its beginning until either side or the mood ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self.opened += 1
        self.open += 1
        writers = [back]
        try:
            if self.mood == "cut":
                return
            far, forth = await asyncio.open_connection(*self._target)
            writers.append(forth)
            await _first_of(self._pump(near, forth), self._pump(far, back), self._until_cut())
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._links.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _until_cut(self) -> None:
        while self.mood != "cut":
            await asyncio.sleep(_LOOK_S)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(PIECE_BYTES):
                while self.mood == "stall":
                    await asyncio.sleep(_LOOK_S)
                if self.mood == "throttle":
                    await asyncio.sleep(len(data) / THROTTLED_BYTES_PER_S)
                sink.write(data)
                await sink.drain()


async def _first_of(*work: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(part) for part in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
