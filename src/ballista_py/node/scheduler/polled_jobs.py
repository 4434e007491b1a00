"""Statements of Flight SQL clients that are polled for: they are jobs like any other."""

from __future__ import annotations

from base64 import b64encode

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import JobRefused
from ballista_py.node.scheduler.jobs import SchedulerJobs, schema_of
from ballista_py.state.documents.jobs import JobDocument, outcome_error
from ballista_py.transport.flight.commands import job_rows_command
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight_sql.service import PolledJob
from ballista_py.transport.flight_sql.statement import SqlStatement, ipc_bytes
from ballista_py.work import current_client


@frozen
class SchedulerPolledJobs:
    """A `PolledJobs` over the jobs of a scheduler."""

    jobs: SchedulerJobs

    def submit(self, statement: SqlStatement) -> PolledJob:
        """See `PolledJobs.submit`."""
        body = {"query": statement.query, "dialect": statement.dialect, "parameters": _text(statement.parameters)}
        return _polled(self.jobs.submit(body))

    def poll(self, job_id: str, wait_ms: float) -> PolledJob:
        """See `PolledJobs.poll`."""
        return _polled(self.jobs.service.get(job_id, current_client(), wait_ms))

    def cancel(self, job_id: str) -> None:
        """See `PolledJobs.cancel`."""
        self.jobs.service.cancel(job_id, current_client())

    def rows(self, job_id: str, chunk: int | None) -> StreamResult:
        """See `PolledJobs.rows`."""
        return self.jobs.rows(job_rows_command(job_id, chunk))


def _polled(job: JobDocument) -> PolledJob:
    error = outcome_error(job)
    if error is not None:
        raise error
    if job.is_open:
        return PolledJob(job_id=job.job_id, rows=job.rows)
    if job.state != "SUCCEEDED":
        raise JobRefused(f"job '{job.job_id}' is {job.state}", state=job.state)
    return PolledJob(job_id=job.job_id, ended=True, schema=schema_of(job), chunks=len(job.chunks), rows=job.rows)


def _text(parameters: pa.RecordBatch | None) -> str:
    """Parameters as jobs carry them."""
    return "" if parameters is None else b64encode(ipc_bytes(parameters)).decode()
