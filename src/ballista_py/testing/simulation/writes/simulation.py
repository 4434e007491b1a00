"""Writers, movers of money, readers, a compactor, a collector and changing owners over one table, in virtual time.

The manifests, the decisions on statements, the compaction, the collection and two replicas (lease, holder, file cache,
what they ask before they answer) are the real ones; files hold a note instead of rows. Owners are no more than their
epochs here: which executor has a lease, and what becomes of partitions when it loses it, is what `Simulation` is
about, with the same holders and manifests, and a manifest sees nothing of an owner but its epoch.

Every machine pauses, loses requests and replies, and gives up in the middle of things. Judged are: what was
acknowledged is there exactly once and what was not at most once (G8), nothing is taken in of an owner whose epoch is
over (G5), every reader sees money add up and every row that was acknowledged before it began (at a replica with a lag:
that long before) and none that was deleted, most queries are answered at their first try, no file is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from attrs import define, field, frozen

from ballista_py.errors import BallistaError
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.time import World
from ballista_py.testing.simulation.writes.actors import WriteActors
from ballista_py.testing.simulation.writes.readers import WriteReaders
from ballista_py.testing.simulation.writes.site import MONEY, PARTITIONS, TABLE, GoneError, WriteSite

CALM_MS = 600_000.0
LAG_MS = 60_000.0
FEW = 5


@frozen(kw_only=True)
class WriteResult:
    """One run: what was done, and what was wrong."""

    seed: int
    acknowledged: int
    transfers: int
    inserts: int
    deletes: int
    reads: int
    replica_reads: int
    compactions: int
    collected: int
    wrong: tuple[str, ...]


@define
class WriteSimulation:
    """One run of `minutes` of virtual time. The same seed replays.

    >>> WriteSimulation(1, minutes=2).run().wrong
    ()
    """

    seed: int
    minutes: float = 12.0
    min_age_ms: float = MAX_WRITE_MS
    catches_up: bool = True
    _site: WriteSite = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._site = WriteSite(World(self.seed))

    def run(self) -> WriteResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world = self._site, self._site.world
        actors, readers = WriteActors(site, self.min_age_ms), WriteReaders(site, self.catches_up)
        try:
            self._start("founder", 0.0, actors.found)
            world.run(10_000.0)
            for number in range(3):
                self._start(f"writer-{number}", 4_000.0, actors.append)
                self._start(f"mover-{number}", 3_000.0, actors.transfer)
                self._start(f"inserter-{number}", 6_000.0, actors.insert)
                self._start(f"deleter-{number}", 6_000.0, actors.delete)
                self._start(f"reader-{number}", 5_000.0, readers.read)
            self._start("replica", 5_000.0, partial(readers.read_replica, 0.0))
            self._start("replica-late", 5_000.0, partial(readers.read_replica, LAG_MS))
            self._start("compactor", 6_000.0, actors.compact)
            self._start("collector", 60_000.0, actors.collect)
            self._start("sweeper", 20_000.0, actors.sweep)
            self._start("owners", 90_000.0, actors.change_owner)
            world.run(self.minutes * 60_000.0)
            site.rest()
            world.run(world.now_ms + CALM_MS)
            self._judge()
        finally:
            world.close()
        return WriteResult(
            seed=self.seed,
            acknowledged=len(site.acknowledged),
            transfers=site.done["transfer"],
            inserts=site.done["insert"],
            deletes=site.done["delete"],
            reads=site.done["read"],
            replica_reads=site.done["replica read"],
            compactions=site.done["compaction"],
            collected=site.done["collected"],
            wrong=tuple(site.wrong),
        )

    def _start(self, name: str, every_ms: float, act: Callable[[Machine], None]) -> None:
        """A machine that does `act` again and again, each time as if it were started anew."""

        def live() -> None:
            while True:
                try:
                    act(machine)
                except (BallistaError, GoneError):
                    self._site.done[f"{name.split('-')[0]} failed"] += 1
                if not every_ms or (self._site.calm and not name.startswith(("sweeper", "collector"))):
                    return
                machine.sleep_ms(every_ms * 2 * machine.random())

        machine = Machine(self._site.world, name)
        machine.spawn(live)

    def _judge(self) -> None:
        machine = Machine(self._site.world, "judge")
        money, rows = [0] * PARTITIONS, Counter[str]()
        for partition in range(PARTITIONS):
            manifest = PartitionStorage(self._site.store, TABLE, f"p={partition}", runtime=machine).read().document
            self._site.expect(not manifest.prepared, f"partition {partition} still waits for a decision")
            for file in manifest.files:
                self._site.expect(
                    bool(list(self._site.store.list(file.path))), f"file {file.path} is named and gone"
                )
                money[partition] += self._site.notes[file.path].money
                rows.update(self._site.notes[file.path].rows)
        expected = [MONEY] * PARTITIONS
        for decision in TableDecisions(self._site.store, TABLE, runtime=machine).read().decisions:
            if decision.committed and decision.attempt in self._site.moves:
                giver, taker, amount = self._site.moves[decision.attempt]
                expected[giver] -= amount
                expected[taker] += amount
        self._site.expect(money == expected, f"{money} is left in the end, not {expected}")
        self._site.expect(self._site.deleted.keys().isdisjoint(rows), "a row is there that was deleted")
        done = self._site.done
        self._site.expect(
            done["replan"] <= done["read"] + FEW, f"{done['replan']} queries had to be planned again"
        )
        lost = self._site.acknowledged.keys() - rows.keys() - self._site.deleting
        self._site.expect(not lost, f"{len(lost)} acknowledged row(s) are lost")
        doubled = [row for row, count in rows.items() if count > 1]
        self._site.expect(not doubled, f"{len(doubled)} row(s) are there twice")
        self._site.expect(rows.keys() <= self._site.sent, "a row is there that nobody sent")
