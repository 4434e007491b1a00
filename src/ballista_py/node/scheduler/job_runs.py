"""What runs the statements of jobs at a scheduler: the same services that answer clients, in another's thread."""

from __future__ import annotations

import pyarrow as pa
from attrs import define, evolve

from ballista_py.coordinator.jobs.attempt import JobRows
from ballista_py.coordinator.queries.flight_sql import FlightSqlStatements
from ballista_py.coordinator.queries.on_spark import SparkQueries
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.coordinator.writes.whole_writes import Executed
from ballista_py.errors import SqlError
from ballista_py.node.status.tasks import Task, Tasks
from ballista_py.sql.own_words import run_for
from ballista_py.sql.parse.copies import NOT_HERE, read_copy
from ballista_py.state.documents.jobs import MAX_REQUEST_CHARS, JobDocument, JobRequest
from ballista_py.transport.flight_sql.statement import SqlStatement, one_row
from ballista_py.work import current_work


@define
class JobRuns:
    """A `JobStatements`. Each job is one of the node's `tasks`, from its start to its last row."""

    queries: QueryService
    writes: WriteService
    spark: SparkQueries
    statements: FlightSqlStatements
    tasks: Tasks

    def check(self, request: JobRequest) -> None:
        """Raise `SqlError` for a statement that no scheduler runs, and `InvalidData` for parameters that are none."""
        text, kind = self.statements.one_execution(_statement(request))
        if kind == "query":
            self.spark.takes(text, request.engine)
        if kind == "change" and read_copy(text) is not None:
            raise SqlError(NOT_HERE)

    def run(self, job: JobDocument, token: str) -> JobRows:
        """See `JobStatements.run`."""
        work = current_work()
        if work is not None:
            work.job_id = job.job_id
        task = self.tasks.begin("job", job.request.sql)
        try:
            return evolve(self._run(job.request, token, task), cancel=task.cancelled)
        except BaseException as error:
            task.failed(error)
            raise

    def _run(self, request: JobRequest, token: str, task: Task) -> JobRows:
        text, kind = self.statements.one_execution(_statement(request))
        with run_for(request.sql, text):
            if kind == "change":
                # In one piece: of a scheduler that dies amid it nothing is left. Whoever runs the job cannot know
                # whether it was run before, so it is looked for in any case.
                done = self.writes.run(text, token=token, atomic=True, again=True)
                return _of_table(_told(done), task)
            if kind != "query":
                return _of_table(self.statements.described(text), task)
            if self.spark.takes(text, request.engine):
                query = self.spark.open(text)
                task.attach(query.cancel)
                return JobRows(
                    schema=query.schema,
                    batches=task.follow(query.batches(), lambda: query.cancelled),
                )
            work = current_work()
            running = self.queries.run(text, lambda: work is not None and work.reason is not None)
            task.attach(running.cancel)
            rows = running.batches()
            if request.engine == "auto":
                rows = self.spark.with_both_reasons(text, rows)
            return JobRows(schema=running.schema, batches=task.follow(rows))


def _statement(request: JobRequest) -> SqlStatement:
    """The statement of a request, with its parameters. Raises `InvalidData` for parameters that are none."""
    rows = one_row(request.parameters, MAX_REQUEST_CHARS)
    return SqlStatement(query=request.sql, dialect=request.dialect, parameters=rows)


def _told(done: Executed) -> pa.Table:
    """What a change gives: the rows that it returns, or how many it affected."""
    if done.rows is not None:
        return done.rows
    return pa.table({"affected_rows": pa.array([done.affected], pa.int64())})


def _of_table(table: pa.Table, task: Task) -> JobRows:
    return JobRows(schema=table.schema, batches=task.follow(table.to_batches()))
