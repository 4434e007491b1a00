"""What a node is doing and did last: statements at a scheduler, legs at an executor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa
from attrs import define, field

from ballista_py.errors import BallistaError, TransportError
from ballista_py.runtime import Runtime
from ballista_py.state.members.control import TaskRecord
from ballista_py.work import Work, current_work

MAX_REMEMBERED = 1_000
MAX_TEXT_CHARS = 300
DONE = "done"
CANCELLED = "cancelled"
RUNNING = "running"
CANCELLED_TEXT = "the statement was cancelled"

Observer = Callable[[TaskRecord], None]


@define
class Task:
    """One task under way; it ends once."""

    _tasks: Tasks
    task_id: str
    kind: str
    text: str
    cancel: Callable[[], None]
    started_at_ms: int
    started_ms: float
    rows: int = 0
    outcome: str = RUNNING
    took_ms: float = 0.0
    work: Work | None = field(factory=current_work)

    @property
    def client(self) -> str:
        """The proved name of the client who sent it."""
        return "" if self.work is None else self.work.client

    def end(self, outcome: str) -> None:
        """Say how it ended; only the first time counts."""
        self._tasks._end(self, outcome)

    def failed(self, error: BaseException) -> None:
        """It ended by an error, one outside the tree is called `error`; or by nobody's waiting for it any more."""
        if self.work is not None and self.work.is_abandoned:
            self.end(CANCELLED)
        self.end(error.code if isinstance(error, BallistaError) else BallistaError.code)

    def follow(
        self, batches: Iterable[pa.RecordBatch], cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[pa.RecordBatch]:
        """The same batches; with their end the task ends. Where they were `cancelled` their error is none."""
        try:
            for batch in batches:
                self.rows += batch.num_rows
                yield batch
            self.end(DONE)
        except GeneratorExit:
            self.end(CANCELLED)
            raise
        except BaseException as error:
            if cancelled():
                self.end(CANCELLED)
            self.failed(error)
            raise

    def attach(self, cancel: Callable[[], None]) -> None:
        """Say how to stop the work behind it; if the task was cancelled already, it is stopped now."""
        self.cancel = cancel
        if self.outcome == CANCELLED:
            cancel()

    def cancelled(self) -> None:
        """Stop the work behind it."""
        self.end(CANCELLED)
        self.cancel()


@define
class Tasks:
    """The tasks of the node `node_id`, and the last `MAX_REMEMBERED` that ended. Thread-safe.

    `ended` is told of every task that ends.
    """

    node_id: str
    runtime: Runtime
    ended: Observer = field(default=lambda _record: None)
    _running: dict[int, Task] = field(factory=dict, init=False)
    _remembered: deque[TaskRecord] = field(init=False)
    _lock: AbstractContextManager[object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._remembered = deque(maxlen=MAX_REMEMBERED)
        self._lock = self.runtime.lock()

    def begin(self, kind: str, text: str, task_id: str = "", cancel: Callable[[], None] = lambda: None) -> Task:
        """A task that starts now. `cancel` stops the work behind it; without a `task_id` it gets one of its own."""
        task = Task(
            self,
            task_id or self.runtime.new_id(),
            kind,
            " ".join(text.split())[:MAX_TEXT_CHARS],
            cancel,
            self.runtime.wall_ms(),
            self.runtime.monotonic_ms(),
        )
        with self._lock:
            self._running[id(task)] = task
        return task

    def cancel(self, task_ids: Iterable[str]) -> int:
        """Stop the work of these tasks; returns how many of them were running."""
        wanted = set(task_ids)
        with self._lock:
            found = [task for task in self._running.values() if task.task_id in wanted]
        for task in found:
            task.cancelled()
        return len(found)

    def cancel_own(self, task_id: str, client: str) -> bool:
        """End a task that `client` has sent, whose caller is told why; whether one of its own was running."""
        with self._lock:
            found = [task for task in self._running.values() if task.task_id == task_id and task.client == client]
        for task in found:
            if task.work is not None:
                task.work.end(TransportError(CANCELLED_TEXT))
            task.cancelled()
        return bool(found)

    def last(self, limit: int) -> tuple[TaskRecord, ...]:
        """What runs now and what ended last, newest first."""
        with self._lock:
            now_ms = self.runtime.monotonic_ms()
            running = [self._record(task, now_ms - task.started_ms) for task in self._running.values()]
            known = [*reversed(running), *reversed(self._remembered)]
        return tuple(known[: max(0, limit)])

    def running(self) -> int:
        """How many tasks run now."""
        return len(self._running)

    def _end(self, task: Task, outcome: str) -> None:
        with self._lock:
            if self._running.pop(id(task), None) is None:
                return
            task.outcome = outcome
            task.took_ms = self.runtime.monotonic_ms() - task.started_ms
            record = self._record(task, task.took_ms)
            self._remembered.append(record)
        self.ended(record)

    def _record(self, task: Task, took_ms: float) -> TaskRecord:
        return TaskRecord(
            node_id=self.node_id,
            task_id=task.task_id,
            kind=task.kind,
            text=task.text,
            started_at_ms=task.started_at_ms,
            took_ms=took_ms,
            rows=task.rows,
            outcome=task.outcome,
        )
