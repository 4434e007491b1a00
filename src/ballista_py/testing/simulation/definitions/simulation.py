"""ALTER TABLE, RENAME TO and CREATE OR REPLACE beside inserts, deletes, updates and readers, in virtual time.

Real are the schedulers' catalogs, definitions, replacements, rounds and looks for statements that are sent again, the
letters to owners, and all that owners do; SQL is played. Clients, schedulers and owners stand still, die, and lose
requests and replies.

Judged are: whoever reads a name sees the rows of one table, by one definition, which that name had at an instant
between question and answer; each acknowledged row is there once, in the table that it went into, with its values under
the columns that they belong to by then, whatever that table is called; nothing of a dropped column or a replaced table
comes back; no NOT NULL column lacks a value; there are as many tables as ever; columns that were added are there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import BallistaError
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.testing.simulation.definitions.actors import DefinitionActors
from ballista_py.testing.simulation.definitions.owner import DefinitionOwner
from ballista_py.testing.simulation.definitions.scheduler import VirtualScheduler
from ballista_py.testing.simulation.definitions.site import BUCKETS, DefinitionSite
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.site import GoneError
from ballista_py.testing.simulation.owners.statements import UnsureError
from ballista_py.testing.simulation.owners.troubles import OwnerTroubles
from ballista_py.testing.simulation.time import World

CALM_MS = 120_000.0
LAST_MS = 60_000.0
OWNERS = SCHEDULERS = 2
CLIENTS = 3  # of each kind
STILL_MS = 60_000.0
Act = Callable[[Machine], None]


@frozen(kw_only=True)
class DefinitionResult:
    """One run: how often what was done, and what was wrong."""

    seed: int
    done: tuple[tuple[str, int], ...]
    wrong: tuple[str, ...]


@define
class DefinitionSimulation:
    """One run of `minutes` of virtual time; it ends at the first thing that is wrong. The same seed replays.

    Everybody waits `pace` times as long between two statements.

    >>> DefinitionSimulation(1, minutes=1).run().wrong
    ()
    """

    seed: int
    minutes: float = 5.0
    pace: float = 1.0
    _site: DefinitionSite = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._site = DefinitionSite(World(self.seed), {}, pace=self.pace)

    def run(self) -> DefinitionResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world, book = self._site, self._site.world, self._site.book
        actors, troubles = DefinitionActors(site), OwnerTroubles(site, MAX_WRITE_MS)
        kinds: dict[str, tuple[float, Act]] = {
            "append": (4_000.0, actors.append), "read": (4_000.0, actors.read), "delete": (10_000.0, actors.delete),
            "touch": (8_000.0, actors.touch), "alter": (8_000.0, actors.alter), "rename": (25_000.0, actors.rename),
            "replace": (40_000.0, actors.replace),
        }  # fmt: skip
        try:
            self._once("founder", self._found)
            world.run(60_000.0)
            site.break_things()
            for name, (every_ms, act) in kinds.items():
                for number in range(CLIENTS):
                    self._again(f"{name}-{number}", every_ms * self.pace, act)
            self._again("owners", 60_000.0 * self.pace, self._succeed)
            self._again("schedulers", 90_000.0 * self.pace, self._exchange)
            self._again("collector", 120_000.0 * self.pace, troubles.collect)
            self._again("keeper", 3_000.0, lambda _machine: site.assign())
            self._live(world.now_ms + self.minutes * 60_000.0)
            if not book.wrong:
                self._come_to_rest({name: act for name, (_, act) in kinds.items()})
        except Exception:
            if not book.wrong:  # what an owner or a scheduler died of is told there
                raise
        finally:
            world.close()
        return DefinitionResult(seed=self.seed, done=tuple(sorted(book.done.items())), wrong=tuple(book.wrong))

    def _found(self, _machine: Machine) -> None:
        site = self._site
        site.found()
        for _ in range(SCHEDULERS):
            site.begin(VirtualScheduler(site, site.name("scheduler")))
        for _ in range(OWNERS):
            site.join(DefinitionOwner(site, site.name("owner")))
        site.assign()

    def _succeed(self, machine: Machine) -> None:
        """An owner stands still, dies, or leaves with things under way; another one comes for one that is gone."""
        site, chance = self._site, machine.random()
        owner = site.members[int(machine.random() * len(site.members))]
        site.book.done["owner"] += 1
        if chance < 0.5:
            owner.machine.pause(STILL_MS * machine.random())
            return
        if chance < 0.75:
            owner.machine.dead = True
        else:
            owner.leave()
        site.part_with(owner)
        site.join(DefinitionOwner(site, site.name("owner")))
        site.assign()

    def _exchange(self, machine: Machine) -> None:
        """A scheduler stands still, or dies and another one comes."""
        site = self._site
        scheduler = site.schedulers[int(machine.random() * len(site.schedulers))]
        site.book.done["scheduler"] += 1
        if machine.random() < 0.5:
            scheduler.machine.pause(STILL_MS * machine.random())
            return
        site.begin(VirtualScheduler(site, site.name("scheduler")))
        site.end(scheduler)

    def _live(self, until_ms: float) -> None:
        world = self._site.world
        while world.now_ms < until_ms and not self._site.book.wrong:
            world.run(min(until_ms, world.now_ms + 10_000.0))

    def _come_to_rest(self, kinds: dict[str, Act]) -> None:
        """Nothing fails any more: everything goes through once, and then all is counted."""
        site, world, book = self._site, self._site.world, self._site.book
        site.rest()
        world.run(world.now_ms + CALM_MS)
        for name, act in kinds.items():
            before = book.done[name]
            self._once(f"last-{name}", act)
            world.run(world.now_ms + LAST_MS)
            went = book.done[name] > before or name in ("delete", "touch", "alter")
            book.expect(went, f"nothing fails, and '{name}' does not go through")
        self._judge()

    def _once(self, name: str, act: Act) -> None:
        machine = Machine(self._site.world, name)
        machine.spawn(lambda: self._try(name, act, machine))

    def _again(self, name: str, every_ms: float, act: Act) -> None:
        machine = Machine(self._site.world, name)

        def live() -> None:
            while not self._site.calm:
                machine.sleep_ms(every_ms * 2 * machine.random())
                self._try(name.split("-")[0], act, machine)

        machine.spawn(live)

    def _try(self, name: str, act: Act, machine: Machine) -> None:
        book = self._site.book
        try:
            act(machine)
        except BallistaError as error:
            book.done[f"{name} failed"] += 1
            book.done[f"{name} failed: {error.code}"] += 1
            book.expect(not name.startswith("last"), f"nothing fails, and '{name}' does: {error}")
        except (GoneError, UnsureError):
            book.done[f"{name} gone"] += 1

    def _judge(self) -> None:
        """What lies on the store in the end is what was acknowledged."""
        site, ledger = self._site, self._site.ledger
        found: list[str] = []
        for name, table in ledger.now().items():
            parts = [table.schema.empty_table()]
            for partition in range(BUCKETS):
                path = table.spec.path((partition,))
                storage = PartitionStorage(site.store, table.folder, path, runtime=site.god)
                manifest = storage.read().document
                site.book.expect(not manifest.prepared, f"'{name}' {path} waits for a decision for ever")
                for file in manifest.files:
                    with suppress(BallistaError):
                        parts.append(read_data_file(site.store, file, table.schema))
                        continue
                    site.book.wrong.append(f"file {file.path} is named and cannot be read")
            rows = pa.concat_tables(parts)
            found += rows["name"].to_pylist()
            known = {row for row, (folder, _) in ledger.rows.items() if folder == table.folder}
            ledger.judge(f"'{name}' in the end", table, rows, known, set(ledger.deleted))
        site.book.expect(len(found) == len(set(found)), "a row is in two tables in the end")
        ledger.judge_columns()
