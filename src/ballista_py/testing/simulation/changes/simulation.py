"""Readers that bring a table to where its source is, in virtual time; they die, stand still and overlap.

The reader, the rules of changes, the decisions with their position, the manifests, the compaction and the collection
are the real ones; the source is a database in virtual time whose slots send again and fall back, and files hold a note
instead of rows. Judged are: at every moment the table is the source as of one commit, the one that it says; nothing was
confirmed that was not decided; and when troubles end it comes to the source's last commit, with no slot too many.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field, frozen

from ballista_py.coordinator.changes.reader import ChangeReader
from ballista_py.errors import BallistaError, ObjectMissing
from ballista_py.state.documents.decisions import SourcePosition, TableDecisions
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.simulation.changes.followed import VirtualFollowed
from ballista_py.testing.simulation.changes.source import VirtualDatabase, VirtualSource
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.time import World
from ballista_py.testing.simulation.writes.actors import WriteActors
from ballista_py.testing.simulation.writes.site import TABLE, GoneError, WriteSite

CALM_MS = 900_000.0
READERS = 2
BATCH = 4
COPIES_AGAIN = 0.01
_SERVANTS = ("reader", "sweeper", "database", "watcher")


@frozen(kw_only=True)
class ChangeResult:
    """One run: what was done, and what was wrong."""

    seed: int
    transactions: int
    decided: int
    looks: int
    wrong: tuple[str, ...]


@define
class ChangeSimulation:
    """One run of `minutes` of virtual time. The same seed replays.

    >>> ChangeSimulation(1, minutes=2).run().wrong
    ()
    """

    seed: int
    minutes: float = 10.0
    sweeps: bool = True
    _site: WriteSite = field(init=False)
    _database: VirtualDatabase = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._site = WriteSite(World(self.seed))
        self._database = VirtualDatabase(self._site)

    def run(self) -> ChangeResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world = self._site, self._site.world
        actors = WriteActors(site)
        try:
            self._start("founder", 0.0, self._found)
            self._start("database", 1_500.0, self._database.work)
            world.run(20_000.0)
            for number in range(READERS):
                self._start_reader(f"reader-{number}")
            self._start("watcher", 2_000.0, self._look)
            self._start("compactor", 9_000.0, actors.compact)
            self._start("collector", 60_000.0, actors.collect)
            self._start("owners", 90_000.0, actors.change_owner)
            if self.sweeps:
                self._start("sweeper", 20_000.0, self._sweep)
            world.run(self.minutes * 60_000.0)
            site.rest()
            world.run(world.now_ms + CALM_MS)
            self._judge()
        finally:
            world.close()
        return ChangeResult(
            seed=self.seed,
            transactions=len(self._database.log),
            decided=site.done["decided"],
            looks=site.done["look"],
            wrong=tuple(dict.fromkeys(site.wrong)),
        )

    def _found(self, machine: Machine) -> None:
        for partition in range(2):
            VirtualFollowed(self._site, machine).found(partition)

    def _start_reader(self, name: str) -> None:
        """One that is started anew each time that it died, and goes on by what is decided."""
        made: list[ChangeReader] = []

        def act(machine: Machine) -> None:
            if not made:
                source = VirtualSource(self._database, machine, self._stands)
                made.append(ChangeReader(VirtualFollowed(self._site, machine), source, batch_changes=BATCH))
            try:
                if not self._site.calm and machine.random() < COPIES_AGAIN:
                    made[0].copy()
                made[0].tick()
            except GoneError:
                made.clear()
                raise

        self._start(name, 3_000.0, act)

    def _sweep(self, machine: Machine) -> None:
        """As owners do, of the partitions that there are."""
        actors = WriteActors(self._site)
        for partition in list(self._site.epochs):
            actors.sweep_one(machine, partition)

    def _start(self, name: str, every_ms: float, act: Callable[[Machine], None]) -> None:
        def live() -> None:
            while True:
                try:
                    act(machine)
                except (BallistaError, GoneError, KeyError):
                    self._site.done[f"{name.split('-')[0]} failed"] += 1
                if not every_ms or (self._site.calm and not name.startswith(_SERVANTS)):
                    return
                machine.sleep_ms(every_ms * 2 * machine.random())

        machine = Machine(self._site.world, name)
        machine.spawn(live)

    def _statements(self) -> TableDecisions:
        return TableDecisions(self._site.store, TABLE, runtime=Machine(self._site.world, "judge"))

    def _stands(self) -> SourcePosition | None:
        return self._statements().read().position

    def _look(self, _machine: Machine) -> None:
        """The table as whoever goes by the decisions sees it, held against the source."""
        site, document = self._site, self._statements().read()
        if document.position is None:
            return
        seen: list[str] = []
        for partition in site.epochs:
            try:
                storage = PartitionStorage(
                    site.store, TABLE, f"p={partition}", runtime=Machine(site.world, "judge")
                )
                manifest = storage.read().document
            except ObjectMissing:
                continue
            for waiting in manifest.prepared:
                decision = document.on(waiting.attempt)
                if decision is not None and decision.committed:
                    manifest = manifest.folded(waiting.attempt, None, decision.sequence)
            seen += [row for file in manifest.files for row in site.notes[file.path].rows]
        site.done["look"] += 1
        wanted = self._database.at(document.position.at)
        site.expect(sorted(seen) == wanted, "the table is not the source at the position that it says")

    def _judge(self) -> None:
        site, stands = self._site, self._stands()
        self._look(Machine(site.world, "judge"))
        last = self._database.position
        site.expect(
            stands is not None and stands.at == last, f"the table stays behind the source, which is at {last}"
        )
        older = [log for log in self._database.slots if stands is not None and log == stands.log]
        site.expect(len(older) == 1, "the table has no slot, or another one")
