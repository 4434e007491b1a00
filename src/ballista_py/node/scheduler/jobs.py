"""Jobs at a scheduler, wired: their service, what runs them, their loops, and what clients are answered about them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ballista_py.coordinator.jobs.chunks import batches_of, read_chunk
from ballista_py.coordinator.jobs.collector import JobCollector
from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.membership import SchedulerMembers
from ballista_py.coordinator.jobs.runner import JobRunner, JobsSeen
from ballista_py.coordinator.jobs.service import JobService, RunAll, job_row
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.coordinator.queries.running_statement import given_out
from ballista_py.errors import SqlError
from ballista_py.figures import UNSEEN, Figures
from ballista_py.node.config import NodeConfig
from ballista_py.node.running import Foundation
from ballista_py.node.scheduler.job_runs import JobRuns
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import DEFAULT_PRIORITY, JobDocument, JobRequest, canonical_job_id
from ballista_py.state.members.membership import Membership
from ballista_py.threads import spawn
from ballista_py.transport.arrow.door import read_schema
from ballista_py.transport.flight.commands import CANCEL_JOB, CLOSE_JOB, JOB, JOBS, SUBMIT_JOB
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.security.tokens import StaticTokens
from ballista_py.work import current_client

TICK_MS = 2_000.0
LONGEST_COLLECT_MS = 600_000.0
COLLECTS_PER_TTL = 4
LEAVE_MS = 2_000.0
LEAVE_LOOK_MS = 20.0


@frozen(kw_only=True)
class SchedulerJobs:
    """What a scheduler has of jobs. What is asked is asked by the client of the current work."""

    service: JobService
    runner: JobRunner
    runs: JobRuns
    figures: Figures = UNSEEN

    @classmethod
    def start(cls, ground: Foundation, membership: Membership, runs: JobRuns, run_all: RunAll) -> SchedulerJobs:
        """Look for jobs from now on; those that run here are given back when the node stops."""
        limits, runtime = job_limits(ground.config), ground.runtime
        shelf, seen = JobShelf(ground.store, runtime, committed_by=ground.config.node_id), JobsSeen(runtime)
        members = SchedulerMembers(membership)
        runner = JobRunner(shelf, runtime, members, runs, limits, spawn, seen)
        if ground.config.flight_tokens_file is not None and ground.config.flight_jwt_file is None:
            runner.knows = StaticTokens(ground.config.flight_tokens_file, runtime).knows
        service = JobService(
            shelf, runtime, limits, seen, run_all, stop_here=runner.stop_job, runs_here=runner.runs
        )
        runner.wake = service.wake = ground.loop("jobs", runner.tick, TICK_MS).poke
        ground.up.callback(_leave, runner, runtime)
        every_ms = min(LONGEST_COLLECT_MS, limits.result_ttl_ms / COLLECTS_PER_TTL)
        ground.loop("job results", JobCollector(shelf, runtime, limits, members.leads).tick, every_ms)
        ground.metrics.gauge(
            "scheduler_job_queue_depth",
            "Jobs: those that run at this scheduler, and all that were open when it looked last.",
            ("state",),
            lambda: {("running",): runner.running(), ("open",): len(runner.seen.open_jobs)},
        )
        return cls(service=service, runner=runner, runs=runs, figures=ground.metrics)

    def action(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to one of `commands.JOB_ACTIONS`, whose `body` was checked."""
        if name == SUBMIT_JOB:
            return {"job": job_row(self.submit(body))}
        if name == JOBS:
            return {"rows": [job_row(job) for job in self.service.of_client(current_client(), body.get("state"))]}
        ask = _ASKED.get(name)
        if ask is None:
            raise SqlError(f"a scheduler has no action '{name}'")
        return {"job": job_row(ask(self.service, body))}

    def submit(self, body: Mapping[str, Any]) -> JobDocument:
        """Queue what was submitted. Raises as `JobService.submit`, and for a statement that no scheduler runs."""
        request = JobRequest(
            sql=body["query"],
            dialect=body.get("dialect"),
            engine=body.get("engine"),
            parameters=body.get("parameters") or "",
            name=body.get("name") or "",
            priority=body.get("priority", DEFAULT_PRIORITY),
        )
        request.check()
        job_id = None if body.get("job_id") is None else canonical_job_id(body["job_id"])
        self.runs.check(request)
        return self.service.submit(request, current_client(), job_id)

    def rows(self, command: Mapping[str, Any]) -> StreamResult:
        """The rows of one chunk, or of all of a result, counted on their way."""
        return given_out(self._rows(command), self.figures, self.service.runtime)

    def _rows(self, command: Mapping[str, Any]) -> StreamResult:
        client, chunk = current_client(), command.get("chunk")
        if chunk is not None:
            job, table = self.service.chunk(command["job_id"], chunk, client)
            return _result(job, table.schema, table.to_batches())
        job = self.service.succeeded(command["job_id"], client)
        store = self.service.shelf.store
        tables = (read_chunk(store, job, number) for number in range(len(job.chunks)))
        return _result(job, schema_of(job), batches_of(tables))


def _leave(runner: JobRunner, runtime: Runtime) -> None:
    """Give the jobs that run here back to the others, as far as that is done in a moment."""
    runner.leave()
    until_ms = runtime.monotonic_ms() + LEAVE_MS
    while runner.running() and runtime.monotonic_ms() < until_ms:
        runtime.sleep_ms(LEAVE_LOOK_MS)


def job_limits(config: NodeConfig) -> JobLimits:
    """The limits of jobs that a node was told."""
    return JobLimits(
        max_running=config.max_running_jobs,
        max_queued=config.max_queued_jobs,
        max_result_bytes=config.max_job_result_bytes,
        result_ttl_ms=config.job_result_ttl,
        timeout_ms=config.job_timeout_ms,
    )


def schema_of(job: JobDocument) -> Any:
    """The columns of a job's result. Raises `InvalidData` for what is none."""
    return read_schema(b64decode(job.schema))


def _result(job: JobDocument, schema: Any, batches: Any) -> StreamResult:
    return StreamResult(schema=schema, batches=batches, trailer=lambda: {"job": job_row(job)})


def _asked(service: JobService, body: Mapping[str, Any]) -> JobDocument:
    wait_ms, state = float(body.get("wait_ms") or 0.0), body.get("state") or ""
    return service.get(body["job_id"], current_client(), max(0.0, wait_ms), state)


_ASKED: Mapping[str, Callable[[JobService, Mapping[str, Any]], JobDocument]] = {
    JOB: _asked,
    CANCEL_JOB: lambda service, body: service.cancel(body["job_id"], current_client()),
    CLOSE_JOB: lambda service, body: service.close(body["job_id"], current_client()),
}
