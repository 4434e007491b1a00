"""What a scheduler did, appended to a table of the cluster's own: each task once, whatever is lost on the way.

A batch that was not acknowledged is sent again as it was, under the same token, before any other. What ended while
nothing could be appended is kept up to `MAX_PENDING` tasks, and with the process it is gone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.coordinator.queries.runtime_tables import HISTORY, history_rows
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.engines.duckdb.types import quoted
from ballista_py.logs import log_event
from ballista_py.node.running import Foundation
from ballista_py.runtime import Runtime
from ballista_py.state.members.control import TaskRecord

MAX_PENDING = 10_000
MAX_BATCH = 2_000
DECLARED = (
    "create table if not exists {table} (trace_id varchar, span_id varchar, parent_span_id varchar, task varchar, "
    "input varchar, captured_output varchar, start_time timestamp, end_time timestamp, execution_duration_ms double, "
    'error_message varchar, labels map(varchar, varchar), node_id varchar, "user" varchar, job_id varchar, '
    '"rows" bigint, bytes bigint, engine varchar, outcome varchar) partitioned by (bucket(8, trace_id))'
)
_log = logging.getLogger(__name__)

Append = Callable[[pa.Table, str], None]
"""Appends rows under a token; more than once with the same one is once."""


@frozen
class _Batch:
    token: str
    rows: pa.Table


@define
class KeptHistory:
    """Appends what ended. `ended` may be called by any thread, `tick` by one at a time.

    `make` makes the table unless it is there; `dropped` is told how many tasks there was no room for.
    """

    append: Append
    make: Callable[[], None]
    instance: Callable[[], str]
    runtime: Runtime
    dropped: Callable[[int], None] = field(default=lambda _count: None)
    _pending: deque[TaskRecord] = field(factory=deque, init=False)
    _sent: _Batch | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _made: bool = field(default=False, init=False)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def ended(self, task: TaskRecord) -> None:
        """One more to append. Where there are too many the oldest is left out."""
        with self._lock:
            is_full = len(self._pending) >= MAX_PENDING
            if is_full:
                self._pending.popleft()
            self._pending.append(task)
        if is_full:
            self.dropped(1)

    def tick(self) -> int:
        """Append what ended since; how many tasks. What appending raises is raised: the next tick sends them again."""
        batch = self._sent or self._next()
        if batch is None:
            return 0
        self._sent = batch
        if not self._made:
            self.make()
            self._made = True
        self.append(batch.rows, batch.token)
        self._sent = None
        tasks = len(batch.rows)
        log_event(_log, "history_appended", logging.DEBUG, tasks=tasks)
        return tasks

    def _next(self) -> _Batch | None:
        with self._lock:
            tasks = [self._pending.popleft() for _ in range(min(MAX_BATCH, len(self._pending)))]
        if not tasks:
            return None
        self._number += 1
        rows = pa.Table.from_pylist(history_rows(map(_seen_by_all, tasks)), schema=HISTORY)
        return _Batch(f"history/{self.instance()}/{self._number}", rows)


def _seen_by_all(task: TaskRecord) -> TaskRecord:
    """A task as whoever may query the table may see it: nothing of jobs, and no error, which may tell of values."""
    if task.job_id:
        return evolve(task, text="", error_message="", job_id="")
    return evolve(task, error_message="") if task.user else task


def keep_history(ground: Foundation, writes: WriteService, table: str, instance: Callable[[], str]) -> None:
    """Append what this scheduler does to a table from now on; doing that is no task of its own."""

    def append(rows: pa.Table, token: str) -> None:
        WriteService.ingest(writes, table, rows.to_batches(), token=token, made=True, schema=rows.schema)

    def make() -> None:
        WriteService.run(writes, DECLARED.format(table=quoted(table)))

    dropped = partial(ground.metrics.add, "scheduler_history_dropped")
    kept = KeptHistory(append, make, instance, ground.runtime, dropped)
    count = ground.tasks.ended

    def ended(task: TaskRecord) -> None:
        count(task)
        kept.ended(task)

    ground.tasks.ended = ended
    ground.loop("history", kept.tick, ground.config.task_history_interval)
