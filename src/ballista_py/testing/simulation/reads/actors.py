"""Agents and Clients of read jobs in virtual time: they are slow, stand still, die, renew in time or forget to."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.reads.service import PlacedPart, PlannedRead, ReadHints
from ballista_py.errors import (
    BallistaError,
    DocumentUnreadable,
    NotOwner,
    SnapshotGone,
    TryLater,
)
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.actors import MAIN, REPLACED
from ballista_py.testing.simulation.owners.looks import (
    Before,
    Rows,
    look_at_all,
    look_at_money,
    look_at_order,
)
from ballista_py.testing.simulation.owners.owner import VirtualOwner
from ballista_py.testing.simulation.owners.site import PARTITIONS, GoneError
from ballista_py.testing.simulation.owners.troubles import REFRESHED
from ballista_py.testing.simulation.reads.scheduler import ReadScheduler
from ballista_py.testing.simulation.reads.site import BegunJob, ReadSite, pairs
from ballista_py.transport.flight.wire import from_json
from ballista_py.transport.table_read.tickets import ReadTicket
from ballista_py.transport.table_read.tokens.positions import START, Position

LEASES_MS = (60_000, 240_000, 900_000)
RENEW_MS, SERVE_MS = 8_000.0, 20_000.0
CLIENTS = 2
RENEWED_AT = 0.3  # of the lease
FORGETS, LAZY, DIES, LAGS = 0.15, 0.4, 0.15, 0.05
LOOK_MS = 5_000.0
WAIT_MS = 2_000.0
PATIENCE = 40  # tries of a Client to read a part
PROCESSED = 0.4
LEAVES = 0.2
KEPT_MS = 7_200_000.0  # at most
EXCHANGED = 0.03  # what a job names, before anybody reads it

Chunks = Sequence[tuple[Position, pa.RecordBatch]]


@define
class ReadActors:
    """What each does once. Between two chunks and between two parts a Client takes up to `slow_ms`."""

    site: ReadSite
    slow_ms: float
    begin_ms: float

    def keep(self, machine: Machine) -> None:
        """Begin a read job of the table that changes most, and keep it for longer than files lie that nothing names."""
        self.read(machine, MAIN, machine.random() * KEPT_MS)

    def read(self, machine: Machine, name: str = "", kept_ms: float = 0.0) -> None:
        """Begin a read job, keep it for a while, have it read, judge what was read, and close it, or leave it."""
        site, book = self.site, self.site.book
        name = name or self._table(machine)
        client, one_instant = f"client-{int(machine.random() * 3)}", machine.random() < 0.6
        lease_ms = LEASES_MS[int(machine.random() * len(LEASES_MS))] // (1 if site.pace > 1 else 5)
        lease_ms = max(LEASES_MS) if kept_ms else lease_ms
        hints = ReadHints(
            target_bytes=1 if machine.random() < 0.5 else 0,
            max_partitions=0 if machine.random() < 0.5 else 2,
            lease_ms=lease_ms,
        )
        before, repairs = Before.now(book, site.world.now_ms), site.repairs
        since_ms = site.store_ms()

        def begin(one: ReadScheduler) -> tuple[PlannedRead, BegunJob, set[str]]:
            planned = one.reads.begin(f"select * from {name}", hints, client, one_instant=one_instant)
            return planned, site.begun(planned.read_id, client, since_ms + lease_ms), set(book.deleting)

        planned, job, deleting = self.ask(machine, begin, self.begin_ms)
        book.done["job begun"] += 1
        rows = [row for several in job.rows.values() for row in several]
        if site.repairs == repairs and not job.spoilt:
            self._look(name, rows, before, one_instant, deleting)
        if not site.calm and machine.random() < EXCHANGED:
            site.exchange_files(job.read_id)
        reading = Reading(self, machine, planned, job, lease_ms)
        if not reading.kept(kept_ms) or not reading.run():
            return
        book.done["job read"] += 1
        if machine.random() > LEAVES:
            job.closed = True  # from now on it may end
            self.ask(machine, lambda one: one.reads.close(job.read_id, client), RENEW_MS)

    def _table(self, machine: Machine) -> str:
        if machine.random() < 0.5:
            return MAIN
        names = sorted(self.site.tables)
        return names[int(machine.random() * len(names))]

    def _look(self, name: str, rows: Rows, before: Before, one_instant: bool, deleting: set[str]) -> None:
        """What a job names is the table as it was at an instant since it was asked for."""
        book = self.site.book
        if name == MAIN:
            look_at_money(book, f"{name} by a job", rows, before)
            if one_instant:
                look_at_order(book, name, rows, deleting)
            names = {row for row, _ in rows if not row.startswith("money")}
            book.expect(names <= book.sent.keys(), "a job names a row that nobody sent")
        elif name in (REPLACED, REFRESHED):
            look_at_all(book, name, rows, before)
        else:
            seen = Counter(row for row, _ in rows)
            whole = len(rows) == PARTITIONS and len(seen) == 1
            book.expect(whole, f"a job of '{name}' names {sorted(seen.items())[:4]}")

    def ask(self, machine: Machine, act: Callable[[ReadScheduler], Any], timeout_ms: float) -> Any:
        """What any of the schedulers says. Raises what it raises, and `TransportError` without an answer in time."""
        schedulers = self.site.schedulers
        one = schedulers[int(machine.random() * len(schedulers))]
        return self.site.call(machine, one, lambda: act(one), timeout_ms)


@define
class Reading:
    """One job under way. Clients read its parts; the Agent, at `machine`, waits, renews and has parts read again."""

    actors: ReadActors
    machine: Machine
    planned: PlannedRead
    job: BegunJob
    lease_ms: float
    _found: dict[int, Rows] = field(factory=dict)
    _wanted: list[int] = field(factory=list)
    _at_work: dict[Machine, float] = field(factory=dict)  # until when it is thought to be at work
    _failed: list[str] = field(factory=list)
    _placed: dict[int, PlacedPart] = field(factory=dict)

    def kept(self, for_ms: float) -> bool:
        """Renew it in time for so long, and read nothing; whether it lasted."""
        site, world = self.actors.site, self.actors.site.world
        until_ms = world.now_ms + for_ms
        while world.now_ms < until_ms and not self._failed and not site.calm:
            self.machine.sleep_ms(min(self.lease_ms * RENEWED_AT, until_ms - world.now_ms))
            self._renew()
            site.book.done["kept on"] += 1
        return not self._failed

    def run(self) -> bool:
        """Whether all parts were read."""
        machine, site, world = self.machine, self.actors.site, self.actors.site.world
        self._placed = {part.number: part for part in self.planned.parts}
        self._wanted = sorted(self._placed)
        forgets, is_lazy = machine.random() < FORGETS, machine.random() < LAZY
        dies = machine.random() < DIES
        dies_ms = world.now_ms + 4 * self.actors.slow_ms * machine.random() if dies else float("inf")
        due_ms = world.now_ms + self.lease_ms * RENEWED_AT
        while len(self._found) < len(self._placed) and not self._failed:
            self._at_work = {who: until for who, until in self._at_work.items() if until > world.now_ms}
            for _ in range(CLIENTS - len(self._at_work)):
                self._put_to_work()
            machine.sleep_ms(LOOK_MS * site.pace * machine.random())
            if world.now_ms > dies_ms and not site.calm:
                raise GoneError
            if not site.calm and machine.random() < LAGS:
                machine.sleep_ms(2 * self.lease_ms * machine.random())
            if not forgets and world.now_ms > due_ms:
                self._renew()
                due_ms = world.now_ms + self.lease_ms * (2 * machine.random() if is_lazy else RENEWED_AT)
        return not self._failed

    def _renew(self) -> None:
        site, job = self.actors.site, self.job
        since_ms = site.store_ms()
        try:
            self.actors.ask(self.machine, lambda one: one.reads.renew(job.read_id, job.client), RENEW_MS)
        except SnapshotGone:
            site.book.done["renewal too late"] += 1
            self._gone("a renewal")
        except BallistaError:
            site.book.done["renewal failed"] += 1
        else:
            job.safe_until_ms = max(job.safe_until_ms, since_ms + self.lease_ms)
            site.book.done["renewal"] += 1

    def _put_to_work(self) -> None:
        """Another Client, for a part that nobody reads, or that whoever does takes long over."""
        left = [number for number in self._placed if number not in self._found]
        if not self._wanted:
            self._wanted = left
        self._wanted = [number for number in self._wanted if number not in self._found]
        if not self._wanted:
            return
        number = self._wanted.pop(0)
        site = self.actors.site
        client = Machine(site.world, site.name("reader"))
        self._at_work[client] = site.world.now_ms + 30_000.0 + 20 * self.actors.slow_ms
        client.spawn(lambda: self._read(client, number))
        chance = self.machine.random()
        if site.calm or chance > 0.2:
            return
        after_ms = self.machine.random() * self.actors.slow_ms

        def strike() -> None:
            if chance < 0.08:
                client.dead = True
            else:
                client.pause(10 * self.actors.slow_ms * chance)

        site.world.at(after_ms, None, strike)

    def _read(self, client: Machine, number: int) -> None:
        """A Client's work on one part."""
        site = self.actors.site
        try:
            rows = self._part(client, number)
        except SnapshotGone as error:
            self._gone(str(error))
            return
        except DocumentUnreadable as error:
            self._end(f"unreadable: {error}", self.job.spoilt)
            return
        except TryLater:
            site.book.done["part given up"] += 1
            return
        finally:
            self._at_work.pop(client, None)
        if number not in self._found:
            self._found[number] = rows
            self._judge(number, rows)

    def _judge(self, number: int, rows: Rows) -> None:
        wanted = Counter(self.job.rows[number])
        if self.job.spoilt and not wanted:
            return
        book = self.actors.site.book
        book.done["part read"] += 1
        missing, more = wanted - Counter(rows), Counter(rows) - wanted
        what = f"missed {sorted(missing)[:2]} and had {sorted(more)[:2]} more"
        book.expect(not missing and not more, f"a part of a job of '{self.job.table}' {what}")

    def _gone(self, what: str) -> None:
        site, job = self.actors.site, self.job
        may_end = job.closed or job.spoilt or site.store_ms() >= job.safe_until_ms
        self._end(f"gone: {what}", may_end)

    def _end(self, what: str, may_end: bool) -> None:
        book = self.actors.site.book
        book.done["job gone"] += 1
        left_ms = self.job.safe_until_ms - self.actors.site.store_ms()
        book.expect(
            may_end, f"a job of '{self.job.table}' ended {left_ms / 1000:.0f} s before its lease does: {what}"
        )
        self._failed.append(what)

    def _part(self, client: Machine, number: int) -> Rows:
        """All rows of a part, from however many executors. Raises `TryLater` when it takes too long."""
        site, part, at, rows = self.actors.site, self._placed[number], START, Rows()
        processes = client.random() < PROCESSED
        for tries in range(PATIENCE):
            owner = self._owner(part, tries)
            try:
                if owner is None:
                    raise NotOwner("nobody is there")
                ticket = ReadTicket.from_json(from_json(b64decode(from_json(part.ticket)["body"])))
                chunks = site.call(
                    client,
                    owner,
                    lambda owner=owner, ticket=ticket, at=at: served(site, owner, ticket, at, processes),  # type: ignore[misc]
                    SERVE_MS,
                )
            except (SnapshotGone, DocumentUnreadable):
                raise
            except BallistaError:
                client.sleep_ms(WAIT_MS * client.random())
                if tries % 3 == 2:
                    part = self._located(client, part)
                continue
            took = len(chunks)
            if not processes and not site.calm and client.random() < 0.3:
                took = int(client.random() * took)  # the executor goes away amid the exchange
            for begins, batch in chunks[:took]:
                rows += pairs(batch)
                at = Position(begins.section, begins.row + batch.num_rows)
                if not site.calm:
                    client.sleep_ms(self.actors.slow_ms * client.random() / len(chunks))
            if took == len(chunks):
                return rows
        raise TryLater("nobody gives the part")

    def _located(self, client: Machine, part: PlacedPart) -> PlacedPart:
        """Where it is by now, as far as a scheduler says so. Raises `SnapshotGone`."""
        job = self.job
        try:
            (found,) = self.actors.ask(
                client, lambda one: one.reads.located(job.read_id, [part.number], job.client), RENEW_MS
            )
        except (SnapshotGone, DocumentUnreadable):
            raise
        except BallistaError:
            return part
        return found  # type: ignore[no-any-return]

    def _owner(self, part: PlacedPart, tries: int) -> VirtualOwner | None:
        if not part.locations:
            return None
        uri = part.locations[tries % len(part.locations)]
        address = uri.removeprefix("grpc://")
        found = [one for one in self.actors.site.owners if one.lease.info.data_address == address]
        return found[0] if found else None


def served(site: ReadSite, owner: VirtualOwner, ticket: ReadTicket, at: Position, processes: bool) -> Chunks:
    """What an executor gives to whoever shows this ticket, as its node does. Raises `NotOwner` if it rejects."""
    reads = site.parts_at(owner)
    read = reads.files(ticket.read_id, ticket.digest)
    if not ticket.anywhere and not reads.holds(read, ticket.part):
        raise NotOwner(f"'{owner.machine.name}' holds none of it any more")
    answer = reads.processed(read, ticket.part) if processes else reads.unprocessed(read, ticket.part, at)
    site.book.done["processed" if processes else "as it is"] += 1
    return [(begins, batch) for begins, batch in answer.batches if batch.num_rows]
