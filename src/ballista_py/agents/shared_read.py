"""A read job that many workers read together: its Agent, in the process that began it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import evolve, field, frozen

from ballista_py.agents.agent import Agent, ReadSource
from ballista_py.agents.partition_search import preferred
from ballista_py.errors import BallistaError, ConfigError, InvalidData, SnapshotGone, TransportError
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.transport.endpoints import Address
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_read.grant_messages import AgentWord, AskForWork, ClientWord
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.pieces import ARROW, PACKINGS
from ballista_py.transport.table_read.tokens.grants import MIN_CUT_ROWS, ReadAgent
from ballista_py.transport.table_read.tokens.messages import (
    AgentPartition,
    CutAnswer,
    GaveUp,
    NoMoreWork,
    ReadDone,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    SnapshotLost,
)
from ballista_py.transport.table_read.tokens.positions import Sections

if TYPE_CHECKING:
    from ballista_py.agents.agent_port import AgentPort
    from ballista_py.agents.read_job import ReadJob, ReadPartition

LEAST_DEAD_S = 5.0
TICK_MS = 1_000.0
STOOD_STILL_MS = 4_000.0  # between two ticks: then others are not judged for a while, who could not be heard
HEAR_FIRST_MS = 6_000.0
RENEW_AGAIN_MS = 2_000.0
TELL_MS = 3_000.0  # to those who wait for rows, that there are none


@frozen(kw_only=True)
class SharedReadHandle:
    """What a worker needs to read its share. It can be pickled; whoever has it can read the rows, so it is a secret."""

    address: str
    read_id: str
    schema: pa.Schema
    base_schema: pa.Schema
    plan: str
    relation: str
    passes_rows: bool
    encodings: tuple[str, ...] = ()  # packings of rows that nobody processes
    _source: ReadSource  # without the token of the client: tickets are all that executors ask for
    secret: str = field(repr=False)
    tls: Tls | None = None


class SharedRead:
    """A read job whose rows workers read together: each row counts once, in one of them.

    Workers (`ReadClient`) ask for rows, and for more when they have read them. Rows of one that is silent for
    `dead_after` seconds go to another one, and where nobody has rows left some are taken from the slowest. What counts
    is said here, and nowhere else: rows that a worker has read under a grant are those of the job if its token is one
    of `counted_tokens`.

    It has no threads: call `tick` about once a second, or `wait`, which does, for that keeps the files, too. Safe to
    share between threads.
    """

    def __init__(
        self,
        job: ReadJob,
        coordinators: Agent,
        runtime: Runtime,
        *,
        dead_after: float,
        min_cut_rows: int = MIN_CUT_ROWS,
    ) -> None:
        if not isinstance(dead_after, int | float) or not LEAST_DEAD_S <= dead_after <= 1e6:
            raise ConfigError(f"a worker is dead after {LEAST_DEAD_S:g} seconds at least, not {dead_after!r}")
        self.job = job
        self._coordinators = coordinators
        self._runtime = runtime
        self._lock = runtime.lock()
        self._port: AgentPort | None = None
        self._handle: SharedReadHandle | None = None
        self._untold: set[str] = set()  # workers that do not know yet that there is nothing more
        self._ticked_ms = runtime.monotonic_ms()
        self._judges_from_ms = self._renews_from_ms = 0.0
        self._agent = ReadAgent(
            job.read_id,
            job.read_id,
            [_planned(part) for part in job.partitions],
            runtime,
            dead_ms=dead_after * 1e3,
            lease_ms=job.lease_ms,
            min_cut_rows=min_cut_rows,
        )

    @property
    def has_ended(self) -> bool:
        """Whether every row was counted."""
        with self._lock:
            return self._agent.has_ended

    @property
    def counted_tokens(self) -> frozenset[str]:
        """The grants whose rows are the answer; all of it once it `has_ended`."""
        with self._lock:
            return self._agent.counted_tokens

    def say(self, word: ClientWord) -> AgentWord:
        """Answer a worker, of this process or another one. Raises `SnapshotGone` once the job is lost."""
        if isinstance(word, ReplanAsked):
            return self._relocated(word)
        with self._lock:
            match word:
                case AskForWork():
                    work = self._agent.ask(word.client)
                    ask = self._untold.discard if isinstance(work, NoMoreWork) else self._untold.add
                    ask(word.client.name)
                    return work
                case ReadReport():
                    return self._agent.reported(word)
                case CutAnswer():
                    self._agent.was_cut(word)
                case ReadDone():
                    return self._agent.done(word)
                case GaveUp():
                    return self._agent.gave_up(word)
                case SnapshotLost():
                    self._agent.snapshot_lost(word)
        return None

    def serve(
        self, address: str = "127.0.0.1:0", *, tls: Tls | None = None, ca_file: str | None = None
    ) -> SharedReadHandle:
        """Listen for workers of other processes; the handle is for them, and a secret. Asked again it gives the same.

        Workers on other machines need an `address` that they reach. What is said there holds tickets: with `tls`
        (certificate and key of this machine, which workers check by `ca_file`) nobody else reads it. Raises
        `ConfigError` for an address that cannot be had, or files that cannot be used, `MissingExtra` without gRPC.
        """
        from ballista_py.agents.agent_port import AgentPort

        if self._handle is None:
            secret = Secret(self._runtime.new_id() + self._runtime.new_id())
            self._port = AgentPort(address, self.say, secret, self._runtime, tls)
            self._handle = evolve(
                self.here,
                address=str(evolve(Address.parse(address), port=self._port.port)),
                secret=secret.reveal(),
                tls=None if tls is None else Tls(ca_file=ca_file),
            )
        return self._handle

    @property
    def here(self) -> SharedReadHandle:
        """What a worker of this process needs to know."""
        part = self.job.partitions[0] if self.job.partitions else None
        return SharedReadHandle(
            address="",
            read_id=self.job.read_id,
            schema=self.job.given,
            base_schema=self.job.given if part is None else part.base_schema,
            plan="" if part is None else part.plan,
            relation="" if part is None else part.relation,
            passes_rows=part is not None and part.passes_rows,
            encodings=_packings(part),
            source=evolve(self.job.source, token=None),
            secret="",
        )
        return self._handle

    def tick(self) -> None:
        """Take rows from workers that are silent, and keep the files on. Raises `SnapshotGone` once the job is lost."""
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._ticked_ms > STOOD_STILL_MS:
            self._judges_from_ms = now_ms + HEAR_FIRST_MS
        self._ticked_ms = now_ms
        if self._port is not None:
            self._port.tick()
        if now_ms < self._judges_from_ms:
            return
        with self._lock:
            self._agent.require()
            is_due = self._agent.tick()
        if is_due and now_ms >= self._renews_from_ms:
            self._renew(now_ms)

    def wait(self, timeout: float | None = None) -> bool:
        """Tick until every row was counted, which it returns, or for `timeout` seconds. Raises `SnapshotGone`.

        Workers that had asked before are told that nothing is left. One that has not begun yet is told as long as this
        process listens; after that it takes it for away, and gives up after its patience (two minutes).
        """
        until_ms = None if timeout is None else self._runtime.monotonic_ms() + timeout * 1e3
        while not self.has_ended:
            if until_ms is not None and self._runtime.monotonic_ms() >= until_ms:
                return False
            self.tick()
            self._runtime.sleep_ms(TICK_MS / 5)
        told_by_ms = self._runtime.monotonic_ms() + TELL_MS
        while self._untold and self._runtime.monotonic_ms() < told_by_ms:
            self._runtime.sleep_ms(TICK_MS / 20)
        return True

    def close(self) -> None:
        """Listen no more; the job itself is closed by who began it. Workers that ask are told nothing."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def __enter__(self) -> SharedRead:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _renew(self, now_ms: float) -> None:
        self._renews_from_ms = now_ms + RENEW_AGAIN_MS  # a Coordinator that cannot be asked is asked again then
        try:
            self.job.renew()
        except SnapshotGone:
            self._lost()
            raise
        except TransportError:
            return
        with self._lock:
            self._agent.renewed(now_ms)

    def _lost(self) -> None:
        with self._lock:
            self._agent.lose()

    def _relocated(self, asked: ReplanAsked) -> AgentWord:
        """Where a partition is by now, as of the same files."""
        numbers = {part.number for part in self.job.partitions}
        if asked.partition not in numbers or asked.snapshot != self.job.read_id:
            raise InvalidData("the read job has no such partition")
        with self._lock:
            if not self._agent.is_live(asked.token, asked.client):
                return None
        located = pb.Locate(read_id=self.job.read_id, partitions=[asked.partition])
        try:
            found = self._coordinators.ask("Locate", located, "Located").partitions
        except SnapshotGone:
            self._lost()
            raise
        except BallistaError:
            return None  # the worker asks again
        if len(found) != 1 or found[0].number != asked.partition:
            raise InvalidData("a scheduler did not say where the partition of the read job is served")
        at = [ReadLocation(uri=one.uri, priority=rank) for one, rank in preferred(found[0].locations)]
        with self._lock:
            return self._agent.replanned(asked, self.job.read_id, found[0].ticket, at)


def _packings(part: ReadPartition | None) -> tuple[str, ...]:
    """The packings that were asked for. A grant may end amid a row group, so files do not come as they lie."""
    named = part.encodings if part is not None else None
    found = tuple(name for name in named or () if name in PACKINGS)
    return () if found[:1] == (ARROW,) else found


def _planned(part: ReadPartition) -> AgentPartition:
    priorities: tuple[Any, ...] = part.priorities or tuple(range(len(part.locations)))
    return AgentPartition(
        number=part.number,
        ticket=part.ticket,
        locations=tuple(
            ReadLocation(uri=uri, priority=priority)
            for uri, priority in zip(part.locations, priorities, strict=True)
        ),
        sections=Sections(part.section_rows) if part.section_rows else None,
    )


__all__ = ["SharedRead", "SharedReadHandle"]
