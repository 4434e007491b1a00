"""The threads of a node: one for an event loop, and short-lived ones for whoever asks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
STOP_TIMEOUT_S = 5.0


def spawn(function: Callable[[], None]) -> None:
    """Run `function` on a new thread; the process does not wait for it."""
    Thread(target=function, name="ballista-worker", daemon=True).start()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop for control streams: that of uvloop, which takes a quarter less of a processor, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def map_some(
    pool: Executor, call: Callable[[Any], T], items: Iterable[Any], at_once: int
) -> Generator[T, None, None]:
    """What `call` gives for each item, in order; at most `at_once` of them are in the pool.

    So whoever has very many leaves room for the others who share the pool. What has not begun when the result is
    closed, or when a call raises, never does.
    """
    begun: deque[Future[T]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(call, item))
            if len(begun) >= at_once:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()


class EventLoopThread:
    """An asyncio event loop on a thread of its own, from construction until `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = new_event_loop()
        self._tasks: list[Future[Any]] = []
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` on the loop until it ends or the thread is stopped."""
        self._tasks.append(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        """Cancel what was started, let it clean up, and end the thread; within `STOP_TIMEOUT_S` each."""
        for task in self._tasks:
            task.cancel()
        with suppress(FutureTimeoutError, CancelledError):
            asyncio.run_coroutine_threadsafe(_all_done(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _all_done() -> None:
    """Wait until the other tasks of this loop have ended."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
