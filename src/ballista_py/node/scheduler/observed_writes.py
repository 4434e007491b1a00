"""The write service of a node that remembers and counts what it was asked to change."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.writes.service import WriteService
from ballista_py.coordinator.writes.whole_writes import Executed
from ballista_py.node.scheduler.observed_queries import ENGINE
from ballista_py.node.status.tasks import Task, Tasks
from ballista_py.transport.flight.commands import IngestMode


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
