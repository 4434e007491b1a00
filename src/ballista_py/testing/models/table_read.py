"""A model of reads by many Clients, over the real classes of Table Read, each rule switchable.

An Agent hands out the rows of partitions; Clients read them at Servers, by exchanges whose messages are lost, doubled and late;
Clients stand still, are slow, die and are restarted, some for ever; Servers die, refuse, hold, lose partitions, and some
give rows in an order of their own. One partition is aggregated, so it is read whole. The table changes, and a collector
removes what no live lease names. In some histories the Agent dies. Judged are: a job that says it has ended counted
every row of its snapshot once, with the plan applied once; no Server serves a grant of which it heard that it was
superseded, nor an earlier attempt than it accepted; no live grant is preempted; nothing stays open at a Server without
a sign of life, and nothing of the job is left there behind its lease; and the job ends, once troubles do.

    python -m ballista_py.testing.models.table_read [SEEDS]
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from random import Random
from typing import Any

from attrs import define, field

from ballista_py.errors import Fenced, SnapshotGone
from ballista_py.runtime import Condition, seeded_chance
from ballista_py.testing.models.table_read_rules import Parts, Rules, parts_of, variants
from ballista_py.transport.table_read.consuming import (
    Action,
    DropExchange,
    Event,
    GrantConsumer,
    OpenAt,
    ReadTimes,
    TakeRows,
    Unreachable,
)
from ballista_py.transport.table_read.exchange import (
    OpenRead,
    ReadAccepted,
    ReadChunk,
    ReadClosed,
    ReadCredit,
    ReadTrailer,
    chained,
)
from ballista_py.transport.table_read.messages import (
    CutAnswer,
    GaveUp,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadPartition,
    ReadReport,
    ReplanAsked,
    SnapshotLost,
)
from ballista_py.transport.table_read.positions import START, Position, Sections
from ballista_py.transport.table_read.serving import HeldPartition, ServedStream

JOB, SERVERS, MAX_STREAMS, CHUNK_ROWS, ROWS = "job", 3, 3, 4, 120
WHOLE, PARTITIONS = 4, 5  # the number of the partition that is aggregated; how many there are
DEAD_MS, IDLE_MS, LEASE_MS, TROUBLES_END_MS, END_MS = 12_000.0, 10_000.0, 20_000.0, 90_000.0, 900_000.0
GRACE_MS = 3_000.0  # a Server looks what is over once a second
TIMES = ReadTimes(stall_ms=4_000.0, report_ms=1_500.0)
Row = tuple[int, int, int, int]  # partition, place, version, and how often the plan was applied


@define
class VirtualTime:
    """The runtime of all parts of a history."""

    chance: Random
    now_ms: float = 0.0
    numbers: count[int] = field(factory=lambda: count(1))

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        raise NotImplementedError

    def random(self) -> float:
        return self.chance.random()

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
    until: int
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
                place, end = world.offset(request.partition, request.start), world.rows_of(request.partition)
                self.sendings[request.token] = Sending(
                    request, place, answer.reply.applies_plan, answer.reply.in_order, world.time.now_ms, end
                )
        reply(answer.reply)

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
        self.servers: dict[int, Server] = {}

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
        if before is not None and before.phase != "over":
            self.take(before.grant)
        self.tick()

    def take(self, grant: ReadGrant) -> None:
        if self.consumer is not None and self.consumer.phase != "over":
            return
        if self.consumer is not None and self.consumer.grant.token == grant.token:
            return
        try:
            consumer = self.world.parts.consumer(
                grant, self.id, self.world.time, times=TIMES, chunk_rows=CHUNK_ROWS
            )
        except Fenced:
            return
        self.consumer, self.rows = consumer, []
        self.act(consumer, consumer.start())

    def tick(self) -> None:
        if self.consumer is None or self.consumer.phase == "over":
            self.world.send_agent(self, lambda: self.world.asked(self, self.id))
        else:
            self.act(self.consumer, self.consumer.tick())
        self.world.later(500 * self.slow, lambda instance=self.id.instance: self.awake(self.tick, instance))

    def hear(self, consumer: GrantConsumer, event: Event, rows: tuple[Row, ...] = ()) -> None:
        """What came is taken one after the other, each as slowly as this Client is."""
        world = self.world
        starts_ms = max(self.busy_until_ms, world.time.now_ms)
        self.busy_until_ms = starts_ms + world.between(50, 400) * self.slow
        wait_ms = self.busy_until_ms - world.time.now_ms

        def take() -> None:
            if consumer is self.consumer:
                self.act(consumer, consumer.on(event), rows)

        world.later(wait_ms, lambda instance=self.id.instance: self.awake(take, instance))

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
                self.servers[action.request.attempt] = server
                world.send(lambda: server.open(action.request, back))
            case ReadCredit():
                at = self.servers[action.attempt]
                world.send(lambda: at.pull(action, back), trouble=0.015)
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


class World:
    """One history: the network, the Agent with its shell, the Coordinator, the table and its collector."""

    def __init__(self, seed: int, parts: Parts) -> None:
        chance = seeded_chance(seed)
        self.parts = parts
        self.random = chance
        self.chance = chance.random
        self.time = VirtualTime(chance)
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.wrong: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.counted: Counter[Row] = Counter()
        self.lineage: dict[str, frozenset[str]] = {}
        self.ended_ms = END_MS
        self.arrival_ms: dict[object, float] = {}
        self.version, self.collected, self.lease_until_ms = 0, set[str](), LEASE_MS
        self.sections = {number: self._cut_up() for number in range(PARTITIONS) if number != WHOLE}
        self.servers = [Server(number, self) for number in range(SERVERS)]
        for number in range(PARTITIONS):
            for server in chance.sample(self.servers, 2):
                server.holds.add(number)
        self.agent_dies_ms = self.between(5_000, 60_000) if self.chance() < 0.15 else END_MS
        self.agent = parts.agent(
            JOB, "0", [self._partition(number) for number in range(PARTITIONS)], self.time,
            dead_ms=DEAD_MS, lease_ms=LEASE_MS, min_cut_rows=2 * CHUNK_ROWS,
        )  # fmt: skip
        self.clients = [Client(number, self) for number in range(chance.choice([3, 4, 5, 7]))]

    def run(self) -> World:
        """All of it; returns itself."""
        for server in self.servers:
            self.later(500, server.tick)
        for client in self.clients:
            client.tick()
        self._agent_tick()
        self._trouble()
        while self.queue and self.time.now_ms < END_MS and not self._is_over():
            self.time.now_ms, _, happens = heapq.heappop(self.queue)
            happens()
        self.counts["seconds"] += int(min(self.ended_ms, self.time.now_ms) / 1_000)
        if self.agent_dies_ms == END_MS and not self.wrong:
            wanted = Counter((p, row, 0, 1) for p in range(PARTITIONS) for row in range(ROWS))
            if not self.agent.has_ended:
                self.wrong["it never ends"] += 1
            elif self.counted != wanted:
                self.wrong["not every row once"] += 1
        return self

    def _is_over(self) -> bool:
        """Some time after the lease has ended, which nobody renews after the job's end or the Agent's death."""
        return "snapshot gone" in self.wrong or self.lease_left_ms() < -IDLE_MS - 2 * GRACE_MS

    # The network, and what other parts ask

    def later(self, wait_ms: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.time.now_ms + wait_ms, next(self.numbers), happens))

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.chance()

    def is_troubled(self, chance: float) -> bool:
        return self.time.now_ms < TROUBLES_END_MS and self.chance() < chance

    def send(self, arrives: Callable[[], None], *, trouble: float = 0.06, exchange: object = None) -> None:
        """Within an exchange messages keep their order, whatever else happens to them."""
        for _ in range(2 if self.is_troubled(trouble) else 1):
            if not self.is_troubled(trouble):
                wait_ms = self.between(0, 30_000) if self.is_troubled(trouble * 0.7) else self.between(10, 200)
                if exchange is not None:
                    at_ms = max(self.arrival_ms.get(exchange, 0.0) + 1, self.time.now_ms + wait_ms)
                    self.arrival_ms[exchange], wait_ms = at_ms, at_ms - self.time.now_ms
                self.later(wait_ms, arrives)

    def send_agent(self, client: Client, arrives: Callable[[], None]) -> None:
        if client.apart_until_ms <= self.time.now_ms:
            self.send(arrives)

    def server(self, location: ReadLocation) -> Server:
        return self.servers[int(location.uri[1:])]

    def lease_left_ms(self) -> float:
        return self.lease_until_ms - self.time.now_ms

    def is_live(self, tokens: tuple[str, ...]) -> bool:
        return not self.agent.live_tokens.isdisjoint(tokens)

    def _cut_up(self) -> Sections:
        cuts = sorted(self.random.choices(range(ROWS + 1), k=2))
        return Sections((cuts[0], cuts[1] - cuts[0], ROWS - cuts[1]))

    def rows_of(self, partition: int) -> int:
        return ROWS

    def offset(self, partition: int, position: Position) -> int:
        return position.row if partition == WHOLE else self.sections[partition].offset(position)

    def position(self, partition: int, place: int) -> Position:
        return Position(START.section, place) if partition == WHOLE else self.sections[partition].at(place)

    def _partition(self, number: int) -> ReadPartition:
        at = tuple(ReadLocation(uri=one.name) for one in self.servers if number in one.holds)
        return ReadPartition(number=number, ticket=b"t", locations=at, sections=self.sections.get(number))

    # The Agent's shell, and the Coordinator

    def asked(self, client: Client, who: ReaderId) -> None:
        if self.time.now_ms > self.agent_dies_ms:
            return
        try:
            work = self.agent.ask(who)
        except SnapshotGone:
            self.wrong["snapshot gone"] += 1
            return
        if isinstance(work, ReadGrant):
            known = (self.lineage.get(one, frozenset()) | {one} for one in work.ancestors)
            self.lineage[work.token] = frozenset().union(*known)
            self.send(lambda: client.awake(lambda: client.take(work)))

    def told(self, message: Any, rows: tuple[Row, ...], back: Callable[[Event], None]) -> None:
        if self.time.now_ms > self.agent_dies_ms:
            return
        match message:
            case ReadReport():
                back(self.agent.reported(message))
            case CutAnswer():
                self.agent.was_cut(message)
            case ReadDone():
                reply = self.agent.done(message)
                self.counts[reply.outcome] += 1
                if reply.outcome == "counted":
                    self.counted.update(rows)
                if self.agent.has_ended:
                    self.ended_ms = min(self.ended_ms, self.time.now_ms)
                if reply.outcome == "refused":
                    self.wrong["more than was granted"] += 1
                back(reply)
            case GaveUp():
                self.counts["given up"] += 1
                back(self.agent.gave_up(message))
            case ReplanAsked():
                self.send(lambda: self._replan(message, back))
            case SnapshotLost():
                self.agent.snapshot_lost(message)

    def _replan(self, message: ReplanAsked, back: Callable[[Event], None]) -> None:
        snapshot = message.snapshot if self.parts.rules.snapshot else str(self.version)
        partition = self._partition(message.partition)
        replanned = self.agent.replanned(message, snapshot, partition.ticket, partition.locations)
        if replanned is not None:
            self.counts["replanned"] += 1
            back(replanned)

    def _agent_tick(self) -> None:
        if self.time.now_ms > self.agent_dies_ms:
            return
        if self.agent.tick():
            sent_ms = self.time.now_ms
            self.send(lambda: self._renew(sent_ms))
        self.later(1_000, self._agent_tick)

    def _renew(self, sent_ms: float) -> None:
        if self.lease_left_ms() > 0 and not self.agent.has_ended:
            self.lease_until_ms = max(self.lease_until_ms, self.time.now_ms + LEASE_MS)
            self.send(lambda: self.agent.renewed(sent_ms))

    # Troubles

    def _trouble(self) -> None:
        if self.time.now_ms >= TROUBLES_END_MS:
            for client in self.clients:
                client.slow = 1.0
            return
        self._trouble_clients()
        if self.chance() < 0.06:
            self.random.choice(self.servers).die()
        if self.chance() < 0.12:
            self._move(self.random.randrange(PARTITIONS))
        if self.chance() < 0.2:
            self.version += 1
        if self.version and (self.lease_left_ms() <= 0 or not self.parts.rules.pin) and self.chance() < 0.03:
            self.collected.add("0")
        self.later(1_000, self._trouble)

    def _trouble_clients(self) -> None:
        client = self.random.choice(self.clients)
        if self.chance() < 0.12:
            wait_ms = self.between(0, self.random.choice([3_000, 15_000, 40_000]))
            client.paused_until_ms = self.time.now_ms + wait_ms
        if self.chance() < 0.12:
            client.apart_until_ms = self.time.now_ms + self.between(0, self.random.choice([10_000, 40_000]))
        if self.chance() < 0.04:
            client.restart()
        if self.chance() < 0.06:
            client.slow = self.random.choice([1.0, 1.0, 6.0, 25.0])
        if self.chance() < 0.005 and sum(not one.is_gone for one in self.clients) > 2:
            client.is_gone = True

    def _move(self, partition: int) -> None:
        """It goes from one Server to another; now and then nobody has it for a while."""
        having = [one for one in self.servers if partition in one.holds]
        free = [one for one in self.servers if partition not in one.holds]
        if having and free:
            self.random.choice(having).holds.discard(partition)
            to = self.random.choice(free)
            self.later(self.random.choice([0.0, 0.0, 8_000.0]), lambda: to.holds.add(partition))


def run(seed: int, rules: Rules) -> World:
    """The history of a seed."""
    return World(seed, parts_of(rules)).run()


def broken(seeds: int, rules: Rules) -> tuple[int, dict[str, int]]:
    """In how many seeds something was wrong, and what."""
    found = [run(seed, rules).wrong for seed in range(seeds)]
    total: Counter[str] = sum(found, Counter())
    return sum(bool(one) for one in found), dict(total)


if __name__ == "__main__":
    seeds_wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for name, one in variants().items():
        print(f"{name:25} {broken(seeds_wanted, one)}", flush=True)
