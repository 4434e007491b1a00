"""A model of reads by many Clients, over the real classes of Table Read, each rule switchable.

An Agent hands out the rows of partitions; Clients read them at Servers, by exchanges whose messages are lost,
doubled and late; Clients stand still, are slow, die and are restarted, some for ever; Servers die, refuse,
hold, lose partitions, and some give rows in an order of their own. One partition is aggregated, so it is read
whole. The table changes, and a collector removes what no live lease names. In some histories the Agent dies.
Judged are: a job that says it has ended counted every row of its snapshot once, with the plan applied once; no
Server serves a grant of which it heard that it was superseded, nor an earlier attempt than it accepted; no
Client takes rows of one; no live grant is preempted; nothing stays open at a Server without a sign of life, and
nothing of the job is left there behind its lease; and the job ends, once troubles do.

    python -m ballista_py.testing.models.table_read [SEEDS]
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from ballista_py.errors import SnapshotGone
from ballista_py.runtime import seeded_chance
from ballista_py.testing.models.table_read_nodes import (
    CHUNK_ROWS,
    GRACE_MS,
    IDLE_MS,
    JOB,
    ROWS,
    WHOLE,
    Client,
    Row,
    Server,
    VirtualTime,
)
from ballista_py.testing.models.table_read_rules import Parts, Rules, parts_of, variants
from ballista_py.transport.table_read.tokens.consuming import (
    Event,
)
from ballista_py.transport.table_read.tokens.messages import (
    AgentPartition,
    CutAnswer,
    GaveUp,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    SnapshotLost,
)
from ballista_py.transport.table_read.tokens.positions import START, Position, Sections

SERVERS, PARTITIONS = 3, 5
DEAD_MS, LEASE_MS, TROUBLES_END_MS, END_MS = 12_000.0, 20_000.0, 90_000.0, 900_000.0


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

    def offset(self, partition: int, position: Position) -> int:
        return position.row if partition == WHOLE else self.sections[partition].offset(position)

    def position(self, partition: int, place: int) -> Position:
        return Position(START.section, place) if partition == WHOLE else self.sections[partition].at(place)

    def _partition(self, number: int) -> AgentPartition:
        at = tuple(ReadLocation(uri=one.name) for one in self.servers if number in one.holds)
        return AgentPartition(number=number, ticket=b"t", locations=at, sections=self.sections.get(number))

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
                before = self.agent.waiting
                self.agent.was_cut(message)
                self.counts["stolen"] += self.agent.waiting - before
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
        before = self.agent.waiting
        is_due = self.agent.tick()
        self.counts["taken for dead"] += self.agent.waiting - before
        if is_due:
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
            for server in self.servers:
                server.slow = 1.0
            return
        self._trouble_clients()
        if self.chance() < 0.06:
            self.random.choice(self.servers).die()
        if self.chance() < 0.05:
            self.random.choice(self.servers).slow = self.random.choice([1.0, 1.0, 10.0, 60.0])
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
            client.apart_until_ms = self.time.now_ms + self.between(0, self.random.choice([10_000, 60_000]))
        if self.chance() < 0.07:
            client.restart()
        if self.chance() < 0.08:
            client.slow = self.random.choice([1.0, 1.0, 6.0, 10.0, 25.0])
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
