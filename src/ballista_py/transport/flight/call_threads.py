"""The threads on which calls are answered: made when none is idle, and given back after a while without work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from ballista_py.runtime import SystemRuntime
from ballista_py.transport.spawn import Spawn

IDLE_S = 10.0

_Task: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"


class CallThreads(Executor):
    """At most `limit` threads at once, each made by `spawn`; what comes beyond that waits for one."""

    def __init__(self, spawn: Spawn, limit: int, idle_s: float = IDLE_S) -> None:
        self._spawn = spawn
        self._limit = limit
        self._idle_s = idle_s
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._lock = SystemRuntime().lock()
        self._threads = 0
        self._idle = 0  # threads to which no task was promised
        self._late = 0  # tasks to which no thread was promised

    def __len__(self) -> int:
        return self._threads

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run `function` on one of the threads."""
        done: Future[Any] = Future()
        more = False
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._limit:
                self._threads += 1
                more = True
            else:
                self._late += 1
        self._tasks.put((done, lambda: function(*arguments, **named)))
        if more:
            self._spawn(self._work)
        return done

    def _work(self) -> None:
        while self._run_next():
            with self._lock:
                if self._late:
                    self._late -= 1
                else:
                    self._idle += 1

    def _run_next(self) -> bool:
        """Run a task; False when none came for a while and none is promised to this thread."""
        while True:
            try:
                done, run = self._tasks.get(timeout=self._idle_s)
                break
            except Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        self._threads -= 1
                        return False
        try:
            found = run()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(found)
        return True
