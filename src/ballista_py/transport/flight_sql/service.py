"""`StatementService`: what the Flight SQL port asks of a node. The port speaks, the service decides and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from attrs import frozen

from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.commands import IngestMode
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight_sql.metadata import TableInfo
from ballista_py.transport.flight_sql.statement import SqlStatement


@frozen(kw_only=True)
class Description:
    """What a statement will give and take: `schema` is None for one that gives no rows.

    `parameters` has a field for each parameter, in order; one whose type is not known has the null type.
    """

    schema: pa.Schema | None
    parameters: pa.Schema


@frozen(kw_only=True)
class AnswerPart:
    """A part of an answer: `ticket` for `SqlStatement.part`, and who can give it besides a scheduler, as a URI."""

    ticket: Mapping[str, Any] | None = None
    location: str | None = None


@frozen(kw_only=True)
class PolledJob:
    """A statement that runs as a job: whether it has ended, with its columns and its chunks, or how far it is."""

    job_id: str
    ended: bool = False
    schema: pa.Schema | None = None
    chunks: int = 0
    rows: int = 0


class PolledJobs(Protocol):
    """Statements that are polled for. Each function is about the jobs of the client that asks."""

    def submit(self, statement: SqlStatement) -> PolledJob:
        """Queue the statement. Raises what is wrong with it, and `TryLater`."""
        ...

    def poll(self, job_id: str, wait_ms: float) -> PolledJob:
        """How the job is; waits so long for its end. Raises the error by which it ended, and `JobMissing`."""
        ...

    def cancel(self, job_id: str) -> None:
        """Let the job be done no further. Raises `JobMissing`."""
        ...

    def rows(self, job_id: str, chunk: int | None) -> StreamResult:
        """The rows of a chunk of its result; all of them without a number."""
        ...


class MetricsSink(Protocol):
    """Where exports of metrics go. Called from many threads at once; errors are those of our tree."""

    def take(self, rows: pa.RecordBatch) -> None:
        """Keep the rows of one export, all of them or none."""
        ...


class StatementService(Protocol):
    """Statements at a node. Called from many threads at once; errors are those of our tree."""

    def describe(self, statement: SqlStatement) -> Description:
        """What the statement gives and takes; nothing is run. Parameters need not be bound."""
        ...

    def returned(self, statement: SqlStatement, token: str | None) -> tuple[pa.Schema, AnswerPart] | None:
        """Run a change that returns rows, as `update` does; their columns, and the part that gives them as often as it
        is asked for. None for any other statement."""
        ...

    def parts(self, statement: SqlStatement) -> Sequence[AnswerPart]:
        """The parts that together are the answer of a query; the first and only one may be all of it."""
        ...

    def run(self, statement: SqlStatement, context: CallContext) -> StreamResult:
        """Start a query, or the part of it that `statement.part` names."""
        ...

    def update(self, statement: SqlStatement, context: CallContext, token: str | None) -> int:
        """Run a statement that gives no rows, once for each row of parameters; the rows it changed.

        What was applied under a `token` is not applied again.
        """
        ...

    def ingest(
        self, table: str, rows: pa.RecordBatchReader, mode: IngestMode, context: CallContext, token: str | None
    ) -> int:
        """Append `rows` to a table, made or emptied before as `mode` says; how many they were."""
        ...

    def polled(self) -> PolledJobs:
        """The statements that are polled for. Raises `Unsupported` where nobody runs jobs."""
        ...

    def tables(self) -> Mapping[str, TableInfo]:
        """Every table of the cluster, its columns and its key."""
        ...
