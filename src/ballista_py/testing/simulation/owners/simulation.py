"""Statements of every kind at real owners, in virtual time: writes, runs of the pipeline, tables made, documents lost.

Real are the owners (lease, holder, writes, prepared statements, rewrites, compaction), manifests, decisions, claims,
collection and repair, over real files. An engine is played by `RowEngine`; the scheduler's part by
`owner_statements`. Machines pause, die, lose requests and replies; clients stop in the middle of things.

Judged are: what was acknowledged is there exactly once and what was not at most once (G8); no owner whose epoch is
over is heard (G5); whoever reads sees money add up, whole generations of what is replaced, every row acknowledged
before and none deleted, also while documents are lost: then an error, never fewer rows. Readers get answers: most at
once, and all statements of a kind go through when faults have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.coordinator.writes.owner_calls import WORTH_ANOTHER_TRY
from ballista_py.errors import BallistaError
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.actors import MAIN, REPLACED, OwnerActors
from ballista_py.testing.simulation.owners.looks import Before, look_at_all, look_at_money
from ballista_py.testing.simulation.owners.site import MONEY, PARTITIONS, GoneError, OwnerSite, table_of
from ballista_py.testing.simulation.owners.statements import EVERYWHERE, UnsureError
from ballista_py.testing.simulation.owners.troubles import REFRESHED, OwnerTroubles
from ballista_py.testing.simulation.time import World

CALM_MS = 240_000.0
APART_MS = 20_000.0
MAX_TRIES = 4
QUICK = ("merge", "replace")  # of which two at once are wanted
CROWDED = 4  # every fourth seed has a crowd, in which statements are folded in that waited beside one another
CROWD, CROWD_MS = 6, 1_000.0
TRY_AGAIN_MS = 2_000.0
LOOKS_LATE = 0.3
LATE_MS = 60_000.0
Act = Callable[[Machine], None]


@frozen(kw_only=True)
class OwnerResult:
    """One run: how often what was done, and what was wrong."""

    seed: int
    done: tuple[tuple[str, int], ...]
    wrong: tuple[str, ...]


@define
class OwnerSimulation:
    """One run of `minutes` of virtual time; it ends at the first thing that is wrong. The same seed replays.

    With `losses`, documents are lost and repaired. Everybody waits `pace` times as long between two statements, so that
    hours go by in which runs are slow and files become garbage.

    >>> OwnerSimulation(1, minutes=1).run().wrong
    ()
    """

    seed: int
    minutes: float = 10.0
    pace: float = 1.0
    losses: bool = True
    min_age_ms: float = MAX_WRITE_MS
    _site: OwnerSite = field(init=False)
    _troubles: OwnerTroubles = field(init=False)

    def __attrs_post_init__(self) -> None:
        unique = self.seed % 3 == 0
        tables = [table_of(MAIN, unique=unique), table_of(REPLACED), table_of(REFRESHED, source=True)]
        self._site = OwnerSite(World(self.seed), {table.name: table for table in tables}, pace=self.pace)

    def run(self) -> OwnerResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world, book = self._site, self._site.world, self._site.book
        actors = OwnerActors(site)
        self._troubles = troubles = OwnerTroubles(site, self.min_age_ms)
        site.found()
        troubles.start()
        kinds: dict[str, Act] = {
            "append": actors.append, "insert": actors.insert, "transfer": actors.transfer, "merge": actors.merge,
            "delete": actors.delete, "replace": actors.replace, "refresh": troubles.refresh, "read": self._read,
            "seer": actors.delete_seen,
        }  # fmt: skip
        try:
            self._once("founder", actors.found)
            world.run(60_000.0)
            crowded = self.seed % CROWDED == 1
            site.break_things(seldom=crowded)
            for name, act in kinds.items():
                for number in range(2):
                    self._again(f"{name}-{number}", (4_000.0 if name in QUICK else 8_000.0) * self.pace, act)
            for number in range(CROWD if crowded else 0):
                self._again(f"insert-of-crowd-{number}", CROWD_MS * self.pace, actors.insert)
            # One each of what is rare.
            self._again("define", 60_000.0 * self.pace, troubles.define)
            self._again("owners", 60_000.0 * self.pace, troubles.succeed)
            self._again("settler", 30_000.0, troubles.settle_left_over)
            self._again("collector", 120_000.0 * self.pace, troubles.collect)
            if self.losses:
                self._again("spoiler", 300_000.0 * self.pace, troubles.spoil)
            self._live(world.now_ms + self.minutes * 60_000.0)
            if not book.wrong:
                self._come_to_rest(kinds)
        finally:
            world.close()
        return OwnerResult(seed=self.seed, done=tuple(sorted(book.done.items())), wrong=tuple(book.wrong))

    def _live(self, until_ms: float) -> None:
        world = self._site.world
        while world.now_ms < until_ms and not self._site.book.wrong:
            world.run(min(until_ms, world.now_ms + 60_000.0))

    def _come_to_rest(self, kinds: dict[str, Act]) -> None:
        """Nothing fails any more: everything goes through once, and then all is counted."""
        site, world, book = self._site, self._site.world, self._site.book
        site.rest()
        world.run(world.now_ms + CALM_MS)
        self._once("last-settler", self._troubles.settle_left_over)
        world.run(world.now_ms + CALM_MS)
        before = dict(book.done)
        for name, act in kinds.items():  # one behind the other: nobody promises that all at once are done in time
            self._once(f"last-{name}", act)
            world.run(world.now_ms + APART_MS)
        world.run(world.now_ms + CALM_MS)
        for name in kinds:
            went = book.done[name] > before.get(name, 0) or name in ("delete", "seer")
            book.expect(went, f"nothing fails, and '{name}' does not go through")
        self._judge()

    def _once(self, name: str, act: Act) -> None:
        machine = Machine(self._site.world, name)
        machine.spawn(lambda: self._try(name, act, machine))

    def _again(self, name: str, every_ms: float, act: Act) -> None:
        """A client that does `act` again and again, each time as if it were started anew."""
        machine = Machine(self._site.world, name)

        def live() -> None:
            while not self._site.calm:
                machine.sleep_ms(every_ms * 2 * machine.random())
                if not self._site.stopped:
                    self._try(name.split("-")[0], act, machine)

        machine.spawn(live)

    def _try(self, name: str, act: Act, machine: Machine) -> None:
        book = self._site.book
        try:
            act(machine)
        except BallistaError as error:
            book.done[f"{name} failed"] += 1
            book.done[f"{name} failed: {error.code}"] += 1
            calm = self._site.calm and name.startswith("last")
            book.expect(not calm, f"nothing fails, and '{name}' does: {error}")
        except (GoneError, UnsureError):
            book.done[f"{name} gone"] += 1

    def _read(self, machine: Machine) -> None:
        """Read every table as of a sequence of its own, planned again a few times if need be."""
        book = self._site.book
        for name, look in ((MAIN, look_at_money), (REPLACED, look_at_all), (REFRESHED, look_at_all)):
            before = Before.now(book, self._site.world.now_ms)
            for _ in range(MAX_TRIES):
                try:
                    rows = self._rows(machine, name)
                    break
                except WORTH_ANOTHER_TRY:
                    book.done["replan"] += 1
                    machine.sleep_ms(TRY_AGAIN_MS)
            else:
                book.done["read failed"] += 1
                continue
            look(book, name, rows, before)
            book.done["read"] += 1

    def _rows(self, machine: Machine, table: str) -> list[tuple[str, int]]:
        if self._site.stopped:
            raise GoneError
        repairs, sequence = self._site.repairs, self._site.statements(machine, table).read().sequence
        if machine.random() < LOOKS_LATE:  # while later statements commit and are folded in
            machine.sleep_ms(LATE_MS * machine.random())
        found: list[tuple[str, int]] = []
        for owner, part in self._site.parts(table, EVERYWHERE):
            self._site.step(machine)
            asked = evolve(part, sequence=sequence)
            rows = self._site.call(machine, owner, lambda owner=owner, asked=asked: owner.read(asked))  # type: ignore[misc]
            found += _pairs(rows)
        if self._site.repairs != repairs:
            raise GoneError  # every node was stopped for it, and so was whoever ran this query
        return found

    def _judge(self) -> None:
        site, book = self._site, self._site.book
        machine = Machine(site.world, "judge")
        names: list[str] = []
        money = [0] * PARTITIONS
        for name, table in site.tables.items():
            for partition in EVERYWHERE:
                path = table.spec.path((partition,))
                manifest = PartitionStorage(site.store, table.folder, path, runtime=machine).read().document
                book.expect(
                    not manifest.prepared or name == REFRESHED, f"{name}/{path} waits for a decision for ever"
                )
                for file in manifest.files:
                    rows: list[tuple[str, int]] = []
                    with suppress(BallistaError):
                        rows = _pairs(read_data_file(site.store, file, table.schema))
                    book.expect(bool(rows) or not file.rows, f"file {file.path} is named and gone")
                    if name == MAIN:
                        names += [row for row, _ in rows]
                        money[partition] += sum(amount for _, amount in rows)
        self._judge_rows([name for name in names if not name.startswith("money")], money)

    def _judge_rows(self, names: Iterable[str], money: list[int]) -> None:
        book, rows = self._site.book, list(names)
        there = set(rows)
        book.expect(len(there) == len(rows), f"{len(rows) - len(there)} row(s) are there twice in the end")
        lost = book.acknowledged.keys() - there - book.deleting
        book.expect(not lost, f"{len(lost)} acknowledged row(s) are lost, such as {min(lost, default='')}")
        book.expect(book.deleted.keys().isdisjoint(there), "a row is there in the end that was deleted")
        book.expect(there <= book.sent.keys(), "a row is there that nobody sent")
        committed = set(book.moved)
        if not book.done["spoilt"]:
            decisions = TableDecisions(self._site.store, MAIN, runtime=self._site.god).read().decisions
            committed |= {decision.token for decision in decisions if decision.committed}
        expected = [MONEY] * PARTITIONS
        for token in committed & book.moves.keys():
            giver, taker, amount = book.moves[token]
            expected[giver] -= amount
            expected[taker] += amount
        if not (book.done["spoilt"] and book.unsure):
            book.expect(money == expected, f"{money} is left in the end, not {expected}")


def _pairs(rows: pa.Table) -> list[tuple[str, int]]:
    return list(zip(rows["name"].to_pylist(), rows["money"].to_pylist(), strict=True))
