"""Queries and writes of a node that remembers and counts what it was asked.

The query service of a node that remembers and counts what it was asked.

The write service of a node that remembers and counts what it was asked to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.queries.run import QueryRun
from ballista_py.coordinator.queries.running_statement import RunningStatement
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.coordinator.writes.whole_writes import Executed
from ballista_py.node.status.plans import plan_of
from ballista_py.node.status.tasks import CANCELLED, Task, Tasks
from ballista_py.sql.parts import Portion
from ballista_py.traces import current_span, within
from ballista_py.transport.flight.commands import IngestMode

ENGINE = "duckdb"  # what schedulers merge with


@define
class ObservedQueries(QueryService):
    """As `QueryService`; every statement that runs is one of `tasks`, until its last row was taken.

    `shipped` is told of the bytes that each moved between nodes.
    """

    tasks: Tasks
    shipped: Callable[[int], None] = field(default=lambda _bytes: None, kw_only=True)

    def run(
        self,
        statement: str,
        cancelled: Callable[[], bool] = lambda: False,
        only: Portion | None = None,
    ) -> RunningStatement:
        """See `QueryService.run`."""
        kind = "statement" if current_span() is None else "query"  # of a change, or of whatever else is under way
        task = self.tasks.begin(kind, statement, engine=ENGINE)
        try:
            with within(task.span), _asked_for(task):
                running = super().run(statement, cancelled, only)
        except BaseException as error:
            task.failed(error)
            raise
        if not running.running.plan.guarded:
            task.plan = lambda: plan_of(running.running, running.stats())
        task.attach(running.cancel)
        followed = task.follow(running.batches())
        return evolve(running, batches=self._counted(followed, running), cancel_first=lambda: task.end(CANCELLED))

    def begins(self, run: QueryRun) -> None:
        """See `QueryService.begins`: from now on the task can say how far its legs are."""
        task, started_ms = _task.get(), self.runtime.monotonic_ms()
        if task is None or run.plan.guarded:
            return

        def plan() -> dict[str, Any]:
            running = run.so_far()
            return plan_of(running, running.stats(self.runtime.monotonic_ms() - started_ms))

        task.plan = plan

    def _counted(self, batches: Iterable[pa.RecordBatch], running: RunningStatement) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        finally:
            self.shipped(running.stats().get("shipped_bytes", 0))


@contextmanager
def _asked_for(task: Task) -> Iterator[None]:
    """Around what this thread runs for a task. It may run a query of its own within."""
    before = _task.get()
    _task.set(task)
    try:
        yield
    finally:
        _task.set(before)


_task: ContextVar[Task | None] = ContextVar("ballista_task", default=None)


@define
class ObservedWrites(WriteService):
    """As `WriteService`; each statement is one of `tasks` until it is done, and what it asks for is a part of it."""

    tasks: Tasks = field(kw_only=True)

    def run(self, statement: str, **how: Any) -> Executed:
        """See `WriteService.run`."""
        with self.tasks.begin("change", statement, engine=ENGINE).whole() as task:
            done = super().run(statement, **how)
            task.rows = done.affected
            return done

    def observed(self, text: str) -> AbstractContextManager[Task]:
        """Around a change that is called so."""
        return self.tasks.begin("change", text, engine=ENGINE).whole()

    def retain(self, name: str, token: str) -> int:
        """See `WriteService.retain`."""
        with self.tasks.begin("retention", f"retention of {name}", engine=ENGINE).whole() as task:
            task.rows = super().retain(name, token)
            return task.rows

    def ingest(
        self,
        table: str,
        reader: pa.RecordBatchReader | Iterable[pa.RecordBatch],
        *,
        mode: IngestMode = "append",
        **how: Any,
    ) -> int:
        """See `WriteService.ingest`."""
        with self.tasks.begin("change", f"ingest into {table} ({mode})", engine=ENGINE).whole() as task:
            task.rows = super().ingest(table, reader, mode=mode, **how)
            return task.rows
