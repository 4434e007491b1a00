"""The threads on which calls are answered: made when none is idle, and given back after a while without work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from ballista_py.runtime import SystemRuntime
from ballista_py.transport.spawn import Spawn

IDLE_S = 10.0

_Task: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"


class CallThreads(Executor):
    """At most `limit` threads at once, each made by `spawn`; what comes beyond that waits for one.

    A task goes to the thread that became idle last. So the others stay idle and end, though a little work comes all
    the time.
    """

    def __init__(self, spawn: Spawn, limit: int, idle_s: float = IDLE_S) -> None:
        self._spawn = spawn
        self._limit = limit
        self._idle_s = idle_s
        self._lock = SystemRuntime().lock()
        self._threads = 0
        self._idle: list[SimpleQueue[_Task]] = []  # where each idle thread waits, the latest at the end
        self._late: deque[_Task] = deque()

    def __len__(self) -> int:
        return self._threads

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run `function` on one of the threads."""
        done: Future[Any] = Future()
        task: _Task = (done, lambda: function(*arguments, **named))
        with self._lock:
            if self._idle:
                self._idle.pop().put(task)
                return done
            if self._threads >= self._limit:
                self._late.append(task)
                return done
            self._threads += 1
        try:
            self._spawn(lambda: self._work(task))
        except BaseException:
            with self._lock:
                self._threads -= 1
            raise
        return done

    def _work(self, first: _Task) -> None:
        task: _Task | None = first
        mine: SimpleQueue[_Task] = SimpleQueue()
        while task is not None:
            _run(task)
            del task  # what it held must not live on while this thread waits
            task = self._next(mine)

    def _next(self, mine: SimpleQueue[_Task]) -> _Task | None:
        """The next task of the thread that waits at `mine`; None when none came for a while."""
        with self._lock:
            if self._late:
                return self._late.popleft()
            self._idle.append(mine)
        try:
            return mine.get(timeout=self._idle_s)
        except Empty:
            with self._lock:
                if mine in self._idle:
                    self._idle.remove(mine)
                    self._threads -= 1
                    return None
        return mine.get()  # a task was given to this thread as it stopped waiting


def _run(task: _Task) -> None:
    done, function = task
    try:
        found = function()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(found)
