"""Jobs beside schedulers that stand still, die, leave and come back, in virtual time.

Real are the documents, the membership with its reaper, and all of the coordinator's jobs: service, runner, attempts,
collector. Statements are played. Requests to the store and calls of clients are lost on the way there and back.

Judged are: a result is whole, in order, there once, and stays (J1); what a job writes is there once (J2); a job that
was acknowledged ends, once nothing fails any more, and none is lost (J3); none is taken from a member (J4); a cancelled
one has no result; of what is closed or was no result no file is left in the end.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from attrs import define, evolve, field, frozen

from ballista_py.errors import BallistaError, JobError
from ballista_py.state.documents.jobs import JobDocument, JobObject, JobRequest, OpenJob
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.jobs.scheduler import JobScheduler, expected_rows
from ballista_py.testing.simulation.jobs.site import JobSite, found
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.time import World

SCHEDULERS = 3
CLIENTS = 4
THINK_MS = 12_000.0
TROUBLE_MS = 45_000.0
STILL_MS = 120_000.0
CALM_MS = 600_000.0
SENDS = 5
LOOKS = 60
STATEMENTS = ("rows 0", "rows 1", "rows 3", "rows 3", "rows 6", "write", "write", "write", "wrong")


@frozen(kw_only=True)
class JobResult:
    """One run: how often what was done, and what was wrong."""

    seed: int
    done: tuple[tuple[str, int], ...]
    wrong: tuple[str, ...]


@define
class JobSimulation:
    """One run of `minutes` of virtual time; it ends at the first thing that is wrong. The same seed replays.

    >>> JobSimulation(1, minutes=1).run().wrong
    ()
    """

    seed: int
    minutes: float = 12.0
    _site: JobSite = field(init=False)
    _acknowledged: dict[str, JobRequest] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._site = JobSite(World(self.seed))

    def run(self) -> JobResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world, book = self._site, self._site.world, self._site.book
        logs = logging.getLogger("ballista_py.coordinator.jobs")
        before = logs.level
        logs.setLevel(logging.CRITICAL)  # what goes wrong here is meant to
        try:
            site.god.spawn(self._begin)
            world.run(5_000.0)
            self._live(world.now_ms + self.minutes * 60_000.0)
            if not book.wrong:
                self._come_to_rest()
        finally:
            world.close()
            logs.setLevel(before)
        return JobResult(seed=self.seed, done=tuple(sorted(book.done.items())), wrong=tuple(book.wrong))

    def _begin(self) -> None:
        site = self._site
        found(site)
        site.schedulers = [JobScheduler(site, f"scheduler-{n}") for n in range(SCHEDULERS)]
        for number in range(CLIENTS):
            machine = Machine(site.world, f"client-{number}")
            machine.spawn(lambda machine=machine: self._client(machine))  # type: ignore[misc]
        hand = Machine(site.world, "troubles")
        hand.spawn(lambda: self._trouble(hand))

    def _live(self, until_ms: float) -> None:
        world = self._site.world
        while world.now_ms < until_ms and not self._site.book.wrong:
            world.run(min(until_ms, world.now_ms + 10_000.0))

    def _client(self, me: Machine) -> None:
        while not self._site.calm:
            me.sleep_ms(THINK_MS * 2 * me.random())
            with suppress(BallistaError):
                self._one_job(me)

    def _one_job(self, me: Machine) -> None:
        """Submit, sent again until somebody says that it is there; then cancel it, or wait and read."""
        site, job_id = self._site, me.new_id()
        request = JobRequest(sql=site.world.chance.choice(STATEMENTS), priority=int(me.random() * 10))
        for tries in range(SENDS):
            try:
                self._ask(me, lambda one: one.service.submit(request, "ada", job_id))
            except BallistaError:
                if tries == SENDS - 1:
                    raise
                continue
            break
        self._acknowledged[job_id] = request
        site.book.done["submitted"] += 1
        if me.random() < 0.15:
            me.sleep_ms(8_000.0 * me.random())
            after: JobDocument = self._ask(me, lambda one: one.service.cancel(job_id, "ada"))
            site.book.expect(not after.is_open, f"job {job_id[:6]} was cancelled and is {after.state}")
            return
        self._wait(me, job_id, request)
        if me.random() < 0.3:
            self._ask(me, lambda one: one.service.close(job_id, "ada"))
            site.book.done["closed"] += 1

    def _wait(self, me: Machine, job_id: str, request: JobRequest) -> None:
        for _ in range(LOOKS):
            me.sleep_ms(5_000.0)
            with suppress(BallistaError):
                job: JobDocument = self._ask(me, lambda one: one.service.get(job_id, "ada"))
                if not job.is_open:
                    break
        else:
            return
        rows: list[str] = []
        try:
            for number in range(len(job.chunks)):
                _, table = self._ask(me, lambda one, n=number: one.service.chunk(job_id, n, "ada"))
                rows += table["row"].to_pylist()
        except JobError:  # its time is over
            return
        if job.state == "SUCCEEDED":
            self._site.book.done["read"] += 1
            self._site.book.expect(
                rows == expected_rows(request.sql, job_id), f"J1: job {job_id[:6]} gave {len(rows)} row(s)"
            )

    def _ask(self, me: Machine, act):  # type: ignore[no-untyped-def]
        schedulers = self._site.schedulers
        one = schedulers[int(me.random() * len(schedulers))]
        return self._site.call(me, one, lambda: act(one))

    def _trouble(self, hand: Machine) -> None:
        """Now and then a scheduler stands still, is cut from the store, dies, leaves, or is one too many."""
        site = self._site
        while True:
            hand.sleep_ms(TROUBLE_MS * 2 * hand.random())
            if site.calm:
                return
            place = int(hand.random() * SCHEDULERS)
            old, chance = site.schedulers[place], hand.random()
            if chance < 0.35:
                site.book.done["paused"] += 1
                old.machine.pause(STILL_MS * hand.random())
                continue
            if chance < 0.5:
                site.book.done["cut off"] += 1
                old.machine.cut_until_ms = site.world.now_ms + STILL_MS * hand.random()
                continue
            if chance < 0.75:
                site.book.done["killed"] += 1
                old.machine.dead = True
            elif chance < 0.9:  # its process is thought dead, and wakes up later
                site.book.done["stood still and was replaced"] += 1
                old.machine.pause(STILL_MS * hand.random())
            else:
                site.book.done["left"] += 1
                old.leave()
            site.schedulers[place] = JobScheduler(site, old.machine.name)

    def _come_to_rest(self) -> None:
        site, world = self._site, self._site.world
        site.calm = True
        site.faults = evolve(Faults.none(), latency_ms=site.faults.latency_ms)
        for one in site.schedulers:
            one.machine.paused_until_ms = one.machine.cut_until_ms = world.now_ms
        self._live(world.now_ms + CALM_MS)
        if not site.book.wrong:
            self._judge()

    def _judge(self) -> None:
        """Nothing fails any more: all is done, and there once."""
        site, book = self._site, self._site.book
        jobs = {job.job_id: job for job in site.jobs().values()}
        for job_id, request in self._acknowledged.items():
            job = jobs.get(job_id)
            known = job is not None or job_id in site.forgotten
            book.expect(known, f"J3: job {job_id[:6]} was acknowledged and is not there")
            outcome = site.forgotten.get(job_id, "") if job is None else job.outcome or job.state
            book.expect(job is None or not job.is_open, f"J3: job {job_id[:6]} is {outcome} for ever")
            if request.sql == "write" and outcome == "SUCCEEDED":
                book.expect(site.applied[job_id] == 1, f"J2: job {job_id[:6]} wrote {site.applied[job_id]} times")
            if request.sql == "wrong":
                book.expect(outcome in ("FAILED", "CANCELLED"), f"job {job_id[:6]} is wrong and {outcome}")
        left = [entry.key for entry in site.store.list("jobs/")]
        named = {key for job in jobs.values() for key in job.chunk_keys()}
        chunks = [key for key in left if (found := JobObject.of_key(key)) and found.attempt is not None]
        book.expect(not set(chunks) - named, f"{len(set(chunks) - named)} chunks of no result are left")
        markers = [key for key in left if OpenJob.of_key(key, 0)]
        book.expect(not markers, f"{len(markers)} markers are left of jobs that have ended")
