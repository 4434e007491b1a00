"""A scheduler as far as jobs go: real membership, reaper, runner, service and collector; statements are played."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from attrs import define

from ballista_py.coordinator.jobs.attempt import JobRows
from ballista_py.coordinator.jobs.collector import JobCollector
from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.membership import SchedulerMembers
from ballista_py.coordinator.jobs.runner import JobRunner, JobsSeen
from ballista_py.coordinator.jobs.service import JobService
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.errors import AlreadyRegistered, BallistaError, Fenced, SqlError, TransportError
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.documents.jobs import JobDocument
from ballista_py.state.members.liveness import jittered_ms
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import Reaper
from ballista_py.testing.simulation.jobs.site import JobSite
from ballista_py.testing.simulation.machine import Machine

TICK_MS = 2_000.0
REAP_MS = 5_000.0
COLLECT_MS = 20_000.0
STEP_MS = 4_000.0
LONG = 0.15
LONG_STEP_MS = 40_000.0
BREAKS = 0.03
LIMITS = JobLimits(max_running=2, max_queued=200, result_ttl_ms=240_000.0, chunk_bytes=200)
SCHEMA = pa.schema([("row", pa.string())])
ROWS = 6  # of a batch


class JobScheduler:
    """One scheduler process."""

    def __init__(self, site: JobSite, name: str) -> None:
        self.site = site
        self.machine = machine = Machine(site.world, name)
        store = site.store_for(machine)
        self.membership = Membership(store, SchedulerInfo(scheduler_id=name, instance_id=""), runtime=machine)
        self._reaper = Reaper(store, self.membership)
        shelf, seen = JobShelf(store, machine, committed_by=name), JobsSeen(machine)
        self.runner = JobRunner(
            shelf,
            machine,
            SchedulerMembers(self.membership),
            PlayedStatements(site, machine),
            LIMITS,
            machine.spawn,
            seen,
        )
        self.service = JobService(shelf, machine, LIMITS, seen, stop_here=self.runner.stop_job)
        self._collector = JobCollector(shelf, machine, LIMITS)
        machine.spawn(self._live)

    def _live(self) -> None:
        self._join()
        self._every(self.membership.beat_every_ms, self._beat)
        self._every(REAP_MS, self._reaper.tick)
        self._every(TICK_MS, self.runner.tick)
        self._every(COLLECT_MS, self._collector.tick)

    def _join(self) -> None:
        while True:
            try:
                self.membership.join()
            except (AlreadyRegistered, BallistaError):
                self.machine.sleep_ms(self.machine.random() * 10_000)
            else:
                return

    def _beat(self) -> None:
        try:
            self.membership.beat()
        except Fenced:
            self._join()

    def _every(self, interval_ms: float, act: Callable[[], object]) -> None:
        machine = self.machine

        def loop() -> None:
            while not machine.stopping:
                try:
                    act()
                except BallistaError as error:
                    self.site.book.done[f"failed: {error.code}"] += 1
                machine.sleep_ms(jittered_ms(interval_ms, machine.random()))

        machine.spawn(loop)

    def leave(self) -> None:
        """End as a process does that is told to."""
        self.machine.stopping = True

        def leave() -> None:
            self.runner.leave()
            self.machine.sleep_ms(2_000.0)
            try:
                self.membership.leave()
            except BallistaError:
                self.site.book.done["left badly"] += 1
            self.machine.dead = True

        self.machine.spawn(leave)


@define
class PlayedStatements:
    """Statements that take a while and break now and then. `rows N` gives rows, `write` changes something."""

    site: JobSite
    machine: Machine

    def run(self, job: JobDocument, token: str) -> JobRows:
        """See `JobStatements.run`."""
        verb, _, count = job.request.sql.partition(" ")
        if verb == "wrong":
            self._take()
            raise SqlError("that is no statement")
        if verb == "write":
            self._take()
            self.site.apply(job.job_id, token)
            self._take()
            return JobRows(schema=SCHEMA, batches=iter([_batch(job.job_id, 0)]))
        return JobRows(schema=SCHEMA, batches=self._rows(job.job_id, int(count)))

    def _rows(self, job_id: str, batches: int) -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            self._take()
            yield _batch(job_id, number)

    def _take(self) -> None:
        is_long = not self.site.calm and self.machine.random() < LONG
        self.machine.sleep_ms((LONG_STEP_MS if is_long else STEP_MS) * self.machine.random())
        if not self.site.calm and self.machine.random() < BREAKS:
            raise TransportError("an executor is gone")


def _batch(job_id: str, number: int) -> pa.RecordBatch:
    return pa.record_batch({"row": [f"{job_id[:6]}/{number}/{n}" for n in range(ROWS)]}, schema=SCHEMA)


def expected_rows(sql: str, job_id: str) -> list[str]:
    """What a job gives, in order."""
    verb, _, count = sql.partition(" ")
    batches = 1 if verb == "write" else int(count)
    return [row for n in range(batches) for row in _batch(job_id, n)["row"].to_pylist()]
