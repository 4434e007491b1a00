"""What all in a simulation of jobs share: the store, whose every commit is judged, the schedulers, and what is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ballista_py.errors import BallistaError, ObjectMissing, TransportError
from ballista_py.state.documents.codec import DocumentCodec
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.jobs import JobDocument, JobObject, OpenJob, key_of_name
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import History
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.store import VirtualStore
from ballista_py.testing.simulation.time import World

if TYPE_CHECKING:
    from ballista_py.testing.simulation.jobs.scheduler import JobScheduler

CALL_MS = 200.0
LOST = 0.05
PATIENCE_MS = 20_000.0
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_CODEC = DocumentCodec(JobDocument)


@define
class Book:
    """What was done, and what is wrong."""

    done: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)

    def expect(self, holds: object, otherwise: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.wrong.append(otherwise)


@define
class JobSite:
    """The world of one run. `applied` counts what jobs wrote, by the job; `tokens` are those under which it was;
    `forgotten` are the outcomes of jobs whose documents went after their time."""

    world: World
    faults: Faults = field(factory=Faults)
    book: Book = field(factory=Book)
    schedulers: list[JobScheduler] = field(factory=list)
    applied: Counter[str] = field(factory=Counter)
    tokens: set[str] = field(factory=set)
    forgotten: dict[str, str] = field(factory=dict)
    calm: bool = False
    god: Machine = field(init=False)
    store: JudgedJobStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.god = Machine(self.world, "god")
        self.store = JudgedJobStore(self)

    def store_for(self, machine: Machine) -> VirtualStore:
        """The store as that machine reaches it."""
        return VirtualStore(machine, self.store, History(), lambda: self.faults)

    def apply(self, job_id: str, token: str) -> None:
        """What a job writes is written, unless it was under this token."""
        if token not in self.tokens:
            self.tokens.add(token)
            self.applied[job_id] += 1
            self.book.expect(self.applied[job_id] == 1, f"J2: job {job_id[:6]} wrote {self.applied[job_id]} times")

    def members(self) -> frozenset[str]:
        """The instances that `cluster.json` lists now."""
        found: Any = orjson.loads(self.store.get(CLUSTER_KEY).data)
        return frozenset(one["instance_id"] for one in found["schedulers"].values() if not one["leaving"])

    def jobs(self) -> dict[str, JobDocument]:
        """Every document of a job, by its key."""
        found = {}
        for entry in self.store.list("jobs/"):
            lies = JobObject.of_key(entry.key)
            if lies is not None and lies.attempt is None:
                found[entry.key] = _CODEC.decode(entry.key, self.store.get(entry.key).data).document
        return found

    def call(self, caller: Machine, callee: JobScheduler, act: Callable[[], Any]) -> Any:
        """What a scheduler answers. Raises `TransportError` where the question or the answer is lost, or late."""
        world, replies, changed = self.world, list[Any](), caller.condition()
        lost = 0.0 if self.calm else LOST

        def answer() -> None:
            try:
                reply = act()
            except BallistaError as error:
                reply = error
            if world.chance.random() >= lost:
                world.at(
                    CALL_MS * world.chance.random(), caller, lambda: world.spawn(caller, lambda: arrive(reply))
                )

        def arrive(reply: Any) -> None:
            with changed:
                replies.append(reply)
                changed.notify_all()

        if world.chance.random() >= lost:
            world.at(CALL_MS * world.chance.random(), callee.machine, lambda: world.spawn(callee.machine, answer))
        with changed:
            if not replies:
                changed.wait(PATIENCE_MS)
        if not replies:
            raise TransportError("no answer")
        if isinstance(replies[0], BallistaError):
            raise replies[0]
        return replies[0]


class JudgedJobStore(MemoryStore):
    """A store that judges every commit to a job the instant it lands."""

    def __init__(self, site: JobSite) -> None:
        super().__init__(runtime=site.god)
        self._site = site

    def replace(self, key: str, data: bytes, version: str) -> str:
        before = self._job(key)
        landed = super().replace(key, data, version)
        if before is not None:
            after = self._job(key)
            assert after is not None
            self._judge(before, after)
        return landed

    def create(self, key: str, data: bytes) -> str:
        landed = super().create(key, data)
        made = self._job(key)
        if made is not None:
            marked = self._has(made.marker.key)
            self._site.book.expect(marked, f"J3: job {made.job_id[:6]} is there without a marker")
        return landed

    def delete(self, key: str) -> None:
        marker = OpenJob.of_key(key, 0)
        if marker is not None and self._has(key):
            job = self._job(key_of_name(marker.name))
            lost = job is not None and job.is_open
            self._site.book.expect(not lost, f"J3: a job that is {job and job.state} lost its marker")
        ended = self._job(key)
        if ended is not None:
            closed = ended.state == "CLOSED"
            self._site.book.expect(closed, f"J3: job {ended.job_id[:6]} was {ended.state} and is removed")
            self._site.forgotten[ended.job_id] = ended.outcome
        super().delete(key)

    def _job(self, key: str) -> JobDocument | None:
        found = JobObject.of_key(key) if key.startswith("jobs/") else None
        if found is None or found.attempt is not None:
            return None
        try:
            return _CODEC.decode(key, self.get(key).data).document
        except ObjectMissing:
            return None

    def _judge(self, before: JobDocument, after: JobDocument) -> None:
        site, name = self._site, before.job_id[:6]
        if before.state in ENDED:
            same = (before.outcome or before.state) == (after.outcome or after.state)
            kept = after.state == "CLOSED" or (after.files, after.attempt) == (before.files, before.attempt)
            site.book.expect(same and kept, f"J1: job {name} was {before.state} and is {after.state} again")
        if before.state == "CLOSED":
            site.book.expect(after.state == "CLOSED", f"J1: job {name} was closed and is {after.state}")
        taken = before.running is not None and after.attempt > before.attempt
        taken = taken or (before.running is not None and after.code == "job.abandoned")
        if taken:
            site.book.done["taken over"] += 1
            alive = before.instance in site.members()
            site.book.expect(not alive, f"J4: job {name} was taken from {before.owner}, which is a member")
        if after.state == "SUCCEEDED" and before.state != "SUCCEEDED":
            site.book.done["succeeded"] += 1
            missing = [key for key in after.chunk_keys() if not self._has(key)]
            site.book.expect(
                not missing, f"J1: job {name} is done, and {len(missing)} of its chunks are not there"
            )

    def _has(self, key: str) -> bool:
        try:
            self.get(key)
        except ObjectMissing:
            return False
        return True


def found(site: JobSite) -> None:
    """Make an empty cluster."""
    ObjectState(site.store, CLUSTER_KEY, ClusterDocument, runtime=site.god).create(ClusterDocument())
