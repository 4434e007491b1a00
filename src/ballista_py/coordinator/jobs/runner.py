"""The loop that runs jobs at a scheduler: who is next, whose owner is gone, what is under way here.

A tick costs one listing of the markers, however many jobs there were before. What else it asks the store is about jobs
that are open: the document of one that it may begin, and, while others run jobs, `cluster.json`. Whose a job is, is
read before who is a member: an instance that is missing then was a member when it began the job and never is again.
So a job is taken from an owner that is gone, and from no other; were it not so, the attempt in the document would
still keep the result whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from attrs import define, field, frozen

from ballista_py.coordinator.jobs.attempt import JobAttempt, JobStatements
from ballista_py.coordinator.jobs.limits import JobLimits, in_turn
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.errors import BallistaError, JobError, ObjectMissing
from ballista_py.logs import log_event
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import JobDocument, JobOwner, OpenJob, claimed, taken_over

MAX_CLAIMS = 32  # tried in a tick
MAX_LEARNT = 64  # read in a tick, when a member is gone
MISSING_MS = 600_000.0  # a marker without a document goes after that long: its client never made one
MISSING_LOOK_MS = 15_000.0
CLAIM_AGAIN_MS = 15_000.0  # a document that cannot be read is not looked at all the time
_log = logging.getLogger(__name__)


class JobMembers(Protocol):
    """The membership, as far as jobs go."""

    def me(self) -> tuple[str, str]:
        """This scheduler and its instance. Raises `LeaseExpired` or `Fenced` when it may not act."""
        ...

    def instances(self) -> frozenset[str]:
        """The schedulers' instances that act, read now. Raises what the store raises."""
        ...


@define
class JobsSeen:
    """What the last look saw: the open jobs, and what this scheduler has added since. Safe to share."""

    runtime: Runtime
    open_jobs: tuple[OpenJob, ...] = ()
    looked_ms: float = float("-inf")

    def saw(self, open_jobs: tuple[OpenJob, ...]) -> None:
        """A look is over."""
        self.open_jobs, self.looked_ms = open_jobs, self.runtime.monotonic_ms()

    def added(self, job: OpenJob) -> None:
        """A job was submitted here."""
        self.open_jobs = (*self.open_jobs, job)

    def age_ms(self) -> float:
        """How long ago the last look was."""
        return self.runtime.monotonic_ms() - self.looked_ms


@frozen
class _Missing:
    since_ms: float
    looked_ms: float


@define(eq=False)
class JobRunner:
    """Runs the jobs of one scheduler. `tick` is for one thread; `spawn` gives each job a thread of its own.

    `wake` asks for an early tick. `knows` tells of a client by its name whether it still is one: a job of one that is
    none any more fails, when it is begun or within a tick, with that as its reason.
    """

    shelf: JobShelf
    runtime: Runtime
    members: JobMembers
    statements: JobStatements
    limits: JobLimits
    spawn: Callable[[Callable[[], None]], object]
    seen: JobsSeen
    wake: Callable[[], object] = field(default=lambda: None)
    knows: Callable[[str], bool] = field(default=lambda _client: True)
    _running: dict[str, JobAttempt] = field(init=False, factory=dict)
    _others: dict[str, JobOwner] = field(init=False, factory=dict)
    _missing: dict[str, _Missing] = field(init=False, factory=dict)
    _known_instances: frozenset[str] | None = field(init=False, default=None)
    _learning: bool = field(init=False, default=True)  # the first look is after a restart
    _leaving: bool = field(init=False, default=False)

    def tick(self) -> None:
        """Look once; begin what is next. Raises what the store raises, and what `JobMembers.me` raises."""
        open_jobs = self.shelf.open_jobs()
        self.seen.saw(open_jobs)
        by_name = {job.name: job for job in open_jobs}
        self._others = {name: owner for name, owner in self._others.items() if name in by_name}
        self._missing = {name: since for name, since in self._missing.items() if name in by_name}
        me = self.members.me()
        self._stop_lost(by_name, me[1])
        if self._leaving:
            return
        self._learn(by_name)
        if self._others or (self._free() <= 0 and by_name.keys() - self._running.keys()):
            self._take_over(by_name, me, self._members_now())
        self._begin(by_name, me)

    def running(self) -> int:
        """How many jobs run here."""
        return len(self._running)

    def runs(self, name: str) -> bool:
        """Whether the job is run here."""
        return name in self._running

    def begin_no_more(self) -> None:
        """Leave what waits to other schedulers; what runs here goes on."""
        self._leaving = True

    def leave(self) -> None:
        """Begin no job any more; give back those that run here, as far as they can be ended."""
        self.begin_no_more()
        for attempt in tuple(self._running.values()):
            attempt.stop(leaving=True)

    def stop_job(self, name: str) -> None:
        """End the work for a job that was cancelled, if it runs here."""
        attempt = self._running.get(name)
        if attempt is not None:
            attempt.stop()

    def _free(self) -> int:
        return self.limits.max_running - len(self._running)

    def _stop_lost(self, by_name: Collection[str], instance: str) -> None:
        """End what runs here and is not to be.

        It is late, cancelled, of a client that is none any more, or of an instance before this one and taken over.
        """
        for name, attempt in tuple(self._running.items()):
            attempt.end_if_late()
            attempt.end_if_unknown(self.knows)
            if name in by_name and attempt.owner.instance_id == instance:
                continue
            with suppress(JobError):
                if self.shelf.read_named(name).running == attempt.owner:
                    continue
            attempt.stop()

    def _learn(self, by_name: dict[str, OpenJob]) -> None:
        """Read whose the open jobs are, as many as a tick may, when one of their owners may be gone."""
        unknown = [name for name in by_name if name not in self._running and name not in self._others]
        if not self._learning or self._free() > 0:  # else they are read as they are begun
            return
        for name in unknown[:MAX_LEARNT]:
            with suppress(JobError):
                self._note(name, self.shelf.read_named(name))
        self._learning = len(unknown) > MAX_LEARNT

    def _members_now(self) -> frozenset[str]:
        now = self.members.instances()
        before, self._known_instances = self._known_instances, now
        if before is not None and before - now:
            self._learning = True
        return now

    def _take_over(self, by_name: dict[str, OpenJob], me: tuple[str, str], members: frozenset[str]) -> None:
        """Begin anew what is of nobody; that goes first, and beyond `max_running` up to as many again.

        What a job wrote is remembered for a while, and not for ever: so it is not to wait for a place.
        """
        for name, gone in tuple(self._others.items()):
            if gone.instance_id in members or self._free() <= -self.limits.max_running:
                continue
            log_event(_log, "job_taken_over", logging.WARNING, job=name, owner=gone.scheduler_id)
            self._try(
                by_name[name],
                me,
                lambda job, gone=gone: taken_over(job, gone, *me, self.runtime.wall_ms()),  # type: ignore[misc]
            )

    def _begin(self, by_name: dict[str, OpenJob], me: tuple[str, str]) -> None:
        """Begin what waits, as long as there is room."""
        now_ms = self.runtime.monotonic_ms()
        waiting = [
            job
            for name, job in by_name.items()
            if name not in self._running
            and name not in self._others
            and (name not in self._missing or now_ms - self._missing[name].looked_ms >= MISSING_LOOK_MS)
        ]
        under_way = Counter(name.rpartition(".")[0] for name in (*self._running, *self._others))
        for tried, job in enumerate(in_turn(waiting, under_way)):
            if self._free() <= 0 or tried >= MAX_CLAIMS:
                return
            here = sum(name.rpartition(".")[0] == job.client for name in self._running)
            if not self.limits.may_begin(job.client, here, self._free()):
                continue
            self._try(job, me, lambda found: claimed(found, *me, self.runtime.wall_ms()))

    def _try(self, marker: OpenJob, me: tuple[str, str], change: Callable[[JobDocument], JobDocument]) -> None:
        """Commit that the job is begun here, and begin it. One that somebody else has is noted as his."""
        met: list[JobDocument] = []

        def begin(job: JobDocument) -> JobDocument:
            met[:] = [job]
            if job.running is not None and job.running.instance_id == me[1] and job.name not in self._running:
                return job  # begun by this instance, which never heard of it
            return change(job)

        try:
            job = self.shelf.state(marker.name).update(begin).document
        except JobError:
            self._note(marker.name, met[0])
            if not met[0].is_open:
                self.shelf.unmark(marker)
        except ObjectMissing:
            self._note_missing(marker)
        except BallistaError as error:
            log_event(_log, "job_not_begun", logging.WARNING, job=marker.name, code=error.code, reason=error)
            now_ms = self.runtime.monotonic_ms()
            if not met:  # its document cannot be read
                self._missing[marker.name] = _Missing(float("inf"), now_ms - MISSING_LOOK_MS + CLAIM_AGAIN_MS)
        else:
            self._others.pop(marker.name, None)
            if job.running is None:
                self.shelf.unmark(marker)
            else:
                self._start(job, job.running)

    def _start(self, job: JobDocument, owner: JobOwner) -> None:
        attempt = JobAttempt(
            self.shelf, self.runtime, self.statements, self.limits, job, owner, lambda _: self._over(job.name)
        )
        self._running[job.name] = attempt
        attempt.end_if_unknown(self.knows)
        log_event(_log, "job_begun", job=job.job_id, attempt=job.attempt)
        self.spawn(attempt.run)

    def _over(self, name: str) -> None:
        """A job is run here no more: there is room for the next."""
        self._running.pop(name, None)
        if any(job.name != name and job.name not in self._running for job in self.seen.open_jobs):
            self.wake()

    def _note(self, name: str, job: JobDocument) -> None:
        owner = job.running
        if owner is None or name in self._running:
            self._others.pop(name, None)
        else:
            self._others[name] = owner

    def _note_missing(self, marker: OpenJob) -> None:
        """A marker without a document: its client is still at it, or never came to it."""
        now_ms = self.runtime.monotonic_ms()
        known = self._missing.get(marker.name, _Missing(now_ms, now_ms))
        self._missing[marker.name] = _Missing(known.since_ms, now_ms)
        if now_ms - known.since_ms >= MISSING_MS:
            self.shelf.unmark(marker)
