"""The query service of a node that remembers and counts what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.queries.running_statement import Statement
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.node.status.plans import plan_of
from ballista_py.node.status.tasks import CANCELLED, Tasks
from ballista_py.sql.parts import Portion
from ballista_py.traces import current_span, within

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
    ) -> Statement:
        """See `QueryService.run`."""
        kind = "statement" if current_span() is None else "query"  # of a change, or of whatever else is under way
        task = self.tasks.begin(kind, statement, engine=ENGINE)
        try:
            with within(task.span):
                running = super().run(statement, cancelled, only)
        except BaseException as error:
            task.failed(error)
            raise
        task.plan = partial(plan_of, running)
        task.attach(running.cancel)
        followed = task.follow(running.batches())
        return evolve(running, batches=self._counted(followed, running), cancel_first=lambda: task.end(CANCELLED))

    def _counted(self, batches: Iterable[pa.RecordBatch], running: Statement) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        finally:
            self.shipped(running.stats()["shipped_bytes"])
