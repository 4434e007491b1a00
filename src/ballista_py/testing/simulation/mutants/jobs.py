"""Deliberate faults of jobs: what the simulation of jobs must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen

from ballista_py.coordinator.jobs import collector
from ballista_py.coordinator.jobs.chunks import ChunkWriter
from ballista_py.coordinator.jobs.membership import SchedulerMembers
from ballista_py.coordinator.jobs.runner import JobRunner
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.state.documents import jobs
from ballista_py.state.documents.jobs import JobDocument, JobObject, JobOwner, OpenJob
from ballista_py.testing.simulation.jobs.simulation import JobSimulation

Patch = tuple[Any, str, Any]


@frozen(kw_only=True)
class JobMutant:
    """One deliberate fault."""

    name: str
    what: str
    patches: Callable[[], tuple[Patch, ...]]

    @contextmanager
    def applied(self) -> Iterator[Callable[[int], JobSimulation]]:
        """Break the code within this block, for the whole process; gives simulations by their seed."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches():
                before = owner.__dict__[name]
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
            yield JobSimulation


def _anybody(_job: JobDocument, _mine: JobOwner) -> None:
    return


def _attempt_unchecked() -> tuple[Patch, ...]:
    return ((jobs, "require_mine", _anybody),)


def _chunks_on_their_way() -> tuple[Patch, ...]:
    put = ChunkWriter._put

    def later(writer: Any, key: str, data: bytes) -> None:
        writer.runtime.spawn(lambda: put(writer, key, data))

    return ((ChunkWriter, "_put", later),)


def _nobody_is_a_member() -> tuple[Patch, ...]:
    return ((SchedulerMembers, "instances", lambda _members: frozenset()),)


def _members_of_before() -> tuple[Patch, ...]:
    read, before = SchedulerMembers.instances, dict[Any, frozenset[str]]()

    def older(members: SchedulerMembers) -> frozenset[str]:
        now = read(members)
        known = before.get(members.membership, now)
        before[members.membership] = now
        return known

    return ((SchedulerMembers, "instances", older),)


def _token_missing() -> tuple[Patch, ...]:
    return ((JobDocument, "token", property(lambda job: f"{job.job_id}-{job.attempt}")),)


def _marker_gone_at_the_start() -> tuple[Patch, ...]:
    start = JobRunner._start

    def begin(runner: JobRunner, job: JobDocument, owner: JobOwner) -> None:
        runner.shelf.unmark(job.marker)
        start(runner, job, owner)

    return ((JobRunner, "_start", begin),)


def _marker_on_its_way() -> tuple[Patch, ...]:
    mark = JobShelf.mark

    def later(shelf: Any, job: OpenJob) -> OpenJob:
        shelf.runtime.spawn(lambda: (shelf.runtime.sleep_ms(2_000.0), mark(shelf, job)))
        return job

    return ((JobShelf, "mark", later),)


def _collector_too_hasty() -> tuple[Patch, ...]:
    def unnamed(job: JobDocument, chunks: dict[str, JobObject]) -> list[str]:
        named = set(job.chunk_keys())
        return [key for key in chunks if key not in named]

    return ((collector, "not_needed", unnamed),)


def _cancelled_goes_on() -> tuple[Patch, ...]:
    require = jobs.require_mine

    def begun(job: JobDocument, mine: JobOwner) -> None:
        if job.state != "CANCELLED":
            require(job, mine)

    return ((jobs, "require_mine", begun),)


JOB_MUTANTS: tuple[JobMutant, ...] = (
    JobMutant(
        name="attempt-unchecked",
        what="whoever has run a job commits its end, though another attempt runs it by now",
        patches=_attempt_unchecked,
    ),
    JobMutant(
        name="chunks-on-their-way",
        what="the document names chunks that may not be there yet",
        patches=_chunks_on_their_way,
    ),
    JobMutant(
        name="owner-not-looked-for",
        what="a running job is taken over without a look whether its owner is a member",
        patches=_nobody_is_a_member,
    ),
    JobMutant(
        name="members-read-before",
        what="who is a member was read before whose the job is",
        patches=_members_of_before,
    ),
    JobMutant(
        name="token-missing",
        what="each attempt changes what its job changes under a token of its own",
        patches=_token_missing,
    ),
    JobMutant(
        name="marker-gone-at-the-start",
        what="the marker of a job goes when it is begun, not when it has ended",
        patches=_marker_gone_at_the_start,
    ),
    JobMutant(
        name="marker-on-its-way",
        what="a job is made before its marker is surely there",
        patches=_marker_on_its_way,
    ),
    JobMutant(
        name="collector-too-hasty",
        what="the collector takes chunks that no document names yet, though an attempt runs",
        patches=_collector_too_hasty,
    ),
    JobMutant(
        name="cancelled-goes-on",
        what="a cancelled job is given a result by the attempt that ran it",
        patches=_cancelled_goes_on,
    ),
)


def job_caught_by(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed from 1 on that finds the mutant of that name, and what it sees; None if none does."""
    mutant = next(mutant for mutant in JOB_MUTANTS if mutant.name == name)
    with mutant.applied() as simulation:
        for seed in range(1, seeds + 1):
            wrong = simulation(seed).run().wrong
            if wrong:
                return seed, wrong[0]
    return None
