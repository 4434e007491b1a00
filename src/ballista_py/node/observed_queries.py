"""The query service of a node that remembers and counts what it was asked."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, evolve

from ballista_py.node.query_service import QueryService, Statement
from ballista_py.node.tasks import CANCELLED, Tasks
from ballista_py.planning.parts import Portion


@define
class ObservedQueries(QueryService):
    """As `QueryService`; every statement that runs is one of `tasks`, until its last row was taken."""

    tasks: Tasks

    def run(
        self,
        statement: str,
        cancelled: Callable[[], bool] = lambda: False,
        only: Portion | None = None,
    ) -> Statement:
        """See `QueryService.run`."""
        task = self.tasks.begin("statement", statement)
        try:
            running = super().run(statement, cancelled, only)
        except BaseException as error:
            task.failed(error)
            raise
        task.attach(running.cancel)
        stop = running._cancel_merge

        def cancel() -> None:
            task.end(CANCELLED)
            stop()

        return evolve(running, batches=task.follow(running.batches()), cancel_merge=cancel)
