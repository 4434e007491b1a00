"""Servers and Clients of the model `table_read`: thin shells around the real classes, and what is judged there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ballista_py.errors import Fenced
from ballista_py.runtime import Condition
from ballista_py.transport.table_read.tokens.consuming import (
    Action,
    DropExchange,
    Event,
    GrantConsumer,
    OpenAt,
    ReadTimes,
    TakeRows,
    Unreachable,
)
from ballista_py.transport.table_read.tokens.exchange import (
    OpenRead,
    ReadAccepted,
    ReadChunk,
    ReadClosed,
    ReadCredit,
    ReadTrailer,
    chained,
)
from ballista_py.transport.table_read.tokens.messages import ReaderId, ReadGrant
from ballista_py.transport.table_read.tokens.serving import HeldPartition, ServedStream

if TYPE_CHECKING:
    from ballista_py.testing.models.table_read import World

JOB, MAX_STREAMS, CHUNK_ROWS, ROWS, WHOLE = "job", 3, 4, 120, 4  # `WHOLE` is the partition that is aggregated
IDLE_MS, GRACE_MS = 10_000.0, 3_000.0  # a Server looks what is over once a second
TIMES = ReadTimes(stall_ms=4_000.0, report_ms=1_500.0)
Row = tuple[int, int, int, int]  # partition, place, version, and how often the plan was applied


@define
class VirtualTime:
    """The runtime of all parts of a history."""

    chance: Any
    now_ms: float = 0.0
    numbers: count[int] = field(factory=lambda: count(1))

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        raise NotImplementedError

    def random(self) -> float:
        return float(self.chance.random())

    def new_id(self) -> str:
        return f"id{next(self.numbers)}"

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def condition(self) -> Condition:
        raise NotImplementedError


@define
class Sending:
    """What a Server sends under one attempt."""

    request: OpenRead
    place: int
    applies_plan: bool
    in_order: bool
    used_ms: float
    until: int = ROWS
    chunks: int = 0
    rows: int = 0
    crc32: int = 0


class Server:
    """The shell of `ServedReads`: it makes up the rows, and knows what it has been told since it was started."""

    def __init__(self, number: int, world: World) -> None:
        self.name = f"s{number}"
        self.world = world
        self.in_order = number > 0 or world.chance() < 0.5
        self.holds: set[int] = set()
        self.slow = 1.0
        self.start()

    def start(self) -> None:
        self.up = True
        self.reads = self.world.parts.reads(
            self.world.time, max_streams=MAX_STREAMS, idle_ms=IDLE_MS, retry_after_ms=700.0
        )
        self.sendings: dict[str, Sending] = {}
        self.superseded: set[str] = set()
        self.accepted: dict[str, int] = {}

    def die(self) -> None:
        self.up = False
        self.world.later(self.world.between(1_000, 10_000), self.start)

    def end(self, streams: tuple[ServedStream, ...]) -> None:
        for stream in streams:
            if stream.token in self.sendings and self.sendings[stream.token].request.attempt == stream.attempt:
                del self.sendings[stream.token]

    def open(self, request: OpenRead, reply: Callable[[Event], None]) -> None:
        world = self.world
        if not self.up:
            if world.chance() < 0.5:
                reply(Unreachable(request.attempt))
            return
        lease_left_ms = 0.0 if request.snapshot in world.collected else world.lease_left_ms()
        if lease_left_ms > 0:
            self.superseded |= world.lineage.get(request.token, frozenset())
        if world.is_live(request.ancestors):
            world.wrong["a live grant was preempted"] += 1
        held = HeldPartition(
            is_held=request.partition in self.holds and (self.in_order or world.chance() < 0.7),
            is_busy=world.chance() < 0.45,
            in_order=self.in_order,
        )
        answer = self.reads.open(request, held, lease_left_ms)
        self.end(answer.ended)
        if isinstance(answer.reply, ReadAccepted):
            self._judge(request.token, request.attempt)
            self.accepted[request.token] = request.attempt
            known = self.sendings.get(request.token)
            if known is None or known.request.attempt != request.attempt:
                place = world.offset(request.partition, request.start)
                self.sendings[request.token] = Sending(
                    request, place, answer.reply.applies_plan, answer.reply.in_order, world.time.now_ms
                )
        reply(answer.reply)

    def take(self, credit: ReadCredit, reply: Callable[[Event, tuple[Row, ...]], None]) -> None:
        """A credit comes in; a slow Server sees to it later."""
        wait_ms = self.world.between(0, 100) * self.slow
        self.world.later(wait_ms, lambda: self.pull(credit, reply))

    def pull(self, credit: ReadCredit, reply: Callable[[Event, tuple[Row, ...]], None]) -> None:
        world = self.world
        if not self.up:
            return
        sending = self.sendings.get(credit.token)
        if not self.reads.pulled(JOB, credit.token, credit.attempt) or sending is None:
            reply(ReadClosed(credit.attempt), ())
            return
        sending.used_ms = world.time.now_ms
        partition = sending.request.partition
        if credit.until is not None:
            sending.until = min(sending.until, world.offset(partition, credit.until))
        while sending.chunks < credit.chunks and sending.place < sending.until:
            self._judge(credit.token, credit.attempt)
            self._send(sending, credit.attempt, reply)
        if sending.place >= sending.until:
            end = world.position(partition, sending.place)
            sums = {"rows": sending.rows, "nbytes": sending.rows * 8, "crc32": sending.crc32}
            reply(ReadTrailer(attempt=credit.attempt, end=end, **sums), ())
            self.end(self.reads.closed(JOB, credit.token, credit.attempt))

    def _send(self, sending: Sending, attempt: int, reply: Callable[[Event, tuple[Row, ...]], None]) -> None:
        world, partition = self.world, sending.request.partition
        to = min(sending.place + CHUNK_ROWS, sending.until)
        version = int(sending.request.snapshot)
        rows = tuple(
            (partition, self._row(sending, place), version, int(sending.applies_plan))
            for place in range(sending.place, to)
        )
        chunk = ReadChunk(
            attempt=attempt,
            start=world.position(partition, sending.place),
            end=world.position(partition, to),
            rows=len(rows),
            nbytes=len(rows) * 8,
            crc32=to,
        )
        sending.place, sending.chunks, sending.rows = to, sending.chunks + 1, sending.rows + len(rows)
        sending.crc32 = chained(sending.crc32, to)
        world.counts["rows sent"] += len(rows)
        reply(chunk, rows)

    def _row(self, sending: Sending, place: int) -> int:
        """Which row of the manifest's order it gives there."""
        if sending.request.partition == WHOLE:  # as it comes out of a hash table
            return (place * 7 + int(self.name[1:]) * 5) % ROWS
        return place if sending.in_order else ROWS - 1 - place

    def close(self, token: str, attempt: int) -> None:
        if self.up:
            self.end(self.reads.closed(JOB, token, attempt))

    def tick(self) -> None:
        world = self.world
        if self.up:
            for job in self.reads.ending(5_000.0):
                self.reads.renewed(job, world.lease_left_ms())
            self.end(self.reads.tick())
            if self.reads.remembered and world.lease_left_ms() < -GRACE_MS:
                world.wrong["remembered behind its lease"] += 1
            for stream in self.reads.streams:
                sending = self.sendings.get(stream.token)
                if sending is not None and world.time.now_ms - sending.used_ms > IDLE_MS + GRACE_MS:
                    world.wrong["open without a sign of life"] += 1
        world.later(1_000, self.tick)

    def _judge(self, token: str, attempt: int) -> None:
        if token in self.superseded:
            self.world.wrong["a superseded grant was served"] += 1
        if attempt < self.accepted.get(token, 0):
            self.world.wrong["an earlier attempt was served"] += 1


class Client:
    """The shell of `GrantConsumer`: it asks for work, carries actions out and keeps rows until they are answered."""

    def __init__(self, number: int, world: World) -> None:
        self.world = world
        self.id = ReaderId(f"c{number}", "0")
        self.slow = 1.0
        self.paused_until_ms = 0.0
        self.busy_until_ms = 0.0
        self.apart_until_ms = 0.0  # the Agent does not hear it
        self.is_gone = False
        self.consumer: GrantConsumer | None = None
        self.rows: list[Row] = []
        self.servers: dict[int, Server] = {}  # by attempt
        self.last_attempt = 0
        self.taken: set[str] = set()

    def awake(self, does: Callable[[], None], instance: str | None = None) -> None:
        """What a Client does happens when it is awake, in the life that began it."""
        instance = instance or self.id.instance
        if self.is_gone or instance != self.id.instance:
            return
        wait_ms = self.paused_until_ms - self.world.time.now_ms
        if wait_ms > 0:
            self.world.later(wait_ms + 10, lambda: self.awake(does, instance))
        else:
            does()

    def restart(self) -> None:
        """It begins with nothing, but for the grant that is still in its queue."""
        before = self.consumer
        self.id = ReaderId(self.id.name, str(int(self.id.instance) + 1))
        self.consumer, self.rows, self.busy_until_ms = None, [], 0.0
        self.taken.clear()
        if before is not None and before.phase != "over":
            self.take(before.grant)
        self.tick()

    def take(self, grant: ReadGrant) -> None:
        if grant.token in self.taken or (self.consumer is not None and self.consumer.phase != "over"):
            return
        try:
            consumer = self.world.parts.consumer(
                grant, self.id, self.world.time, times=TIMES, chunk_rows=CHUNK_ROWS
            )
        except Fenced:
            return
        self.consumer, self.rows = consumer, []
        self.taken.add(grant.token)
        self.act(consumer, consumer.start())

    def tick(self) -> None:
        if self.consumer is None or self.consumer.phase == "over":
            self.world.send_agent(self, lambda: self.world.asked(self, self.id))
        else:
            self.act(self.consumer, self.consumer.tick())
        self.world.later(500 * self.slow, partial(self.awake, self.tick, self.id.instance))

    def hear(self, consumer: GrantConsumer, event: Event, rows: tuple[Row, ...] = ()) -> None:
        """What came is taken one after the other, each as slowly as this Client is."""
        world = self.world
        starts_ms = max(self.busy_until_ms, world.time.now_ms)
        self.busy_until_ms = starts_ms + world.between(50, 400) * self.slow
        wait_ms = self.busy_until_ms - world.time.now_ms

        def take() -> None:
            if consumer is self.consumer:
                actions = consumer.on(event)
                if isinstance(event, ReadChunk) and actions and event.attempt != self.last_attempt:
                    world.wrong["an earlier attempt was listened to"] += 1
                self.act(consumer, actions, rows)

        world.later(wait_ms, partial(self.awake, take, self.id.instance))

    def act(self, consumer: GrantConsumer, actions: tuple[Action, ...], rows: tuple[Row, ...] = ()) -> None:
        for action in actions:
            self._do(consumer, action, rows)

    def _do(self, consumer: GrantConsumer, action: Action, rows: tuple[Row, ...]) -> None:
        world, token = self.world, consumer.grant.token

        def back(event: Event, given: tuple[Row, ...] = ()) -> None:
            instance = self.id.instance
            arrives = lambda: self.awake(lambda: self.hear(consumer, event, given), instance)  # noqa: E731
            if isinstance(event, ReadChunk | ReadTrailer):
                world.send(arrives, trouble=0.015, exchange=(token, event.attempt))
            else:
                world.send(arrives)

        match action:
            case OpenAt():
                server = world.server(action.location)
                self.servers[action.request.attempt], self.last_attempt = server, action.request.attempt
                world.send(lambda: server.open(action.request, back))
            case ReadCredit():
                at = self.servers[action.attempt]
                world.send(lambda: at.take(action, back), trouble=0.015)
            case TakeRows():
                extra = int(action.applies_plan)
                self.rows += [(part, row, version, applied + extra) for part, row, version, applied in rows]
            case DropExchange():
                if action.attempt in self.servers:
                    dropped = self.servers[action.attempt]
                    world.send(lambda: dropped.close(token, action.attempt))
            case _:
                kept = tuple(self.rows)
                world.send_agent(self, lambda: world.told(action, kept, back))
