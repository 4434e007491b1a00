"""What all in a simulation of refreshes share: the store, a source whose content changes, and what is true."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.refreshes.schedule import Done, Schedule
from ballista_py.errors import BallistaError, ObjectMissing, TransportError
from ballista_py.partitions.refresh import Refresh
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.codec import DocumentCodec
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.slots import SlotsDocument, SlotWork, slots_key
from ballista_py.state.members.liveness import jittered_ms
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import Publication, visible_files
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import History
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.store import VirtualStore
from ballista_py.testing.simulation.time import World

EVERY = "60s"
EVERY_MS = 60_000.0
PATIENCE_MS = 20_000.0
LIMIT_MS = 240_000.0
TICK_MS = 5_000.0
STEP_MS = 8_000.0
LONG_STEP_MS, LONG = 90_000.0, 0.25
BREAKS = 0.06
PATHS = ("expr0=0", "expr0=1")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TABLE = TableSpec(
    name="t",
    schema=SCHEMA,
    spec=PartitionSpec.parse(["bucket(2, id)"], SCHEMA),
    source={"path": "/source"},
    incarnation="0a",
    refresh=Refresh(every=EVERY),
)
KEY = slots_key(TABLE.folder, "refresh")
_CODEC = DocumentCodec(SlotsDocument)


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
class RefreshSite:
    """The world of one run. `content` is what the source has now."""

    world: World
    faults: Faults = field(factory=Faults)
    book: Book = field(factory=Book)
    content: int = 0
    calm: bool = False
    schedulers: list[RefreshScheduler] = field(factory=list)
    god: Machine = field(init=False)
    store: JudgedStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.god = Machine(self.world, "god")
        self.store = JudgedStore(self)

    def store_for(self, machine: Machine) -> VirtualStore:
        """The store as that machine reaches it."""
        return VirtualStore(machine, self.store, History(), lambda: self.faults)

    def slots(self) -> SlotsDocument | None:
        """The slots as they are now."""
        try:
            return _CODEC.decode(KEY, self.store.get(KEY).data).document
        except ObjectMissing:
            return None

    def shown(self) -> set[int]:
        """The contents of which a reader sees rows now."""
        decisions = TableDecisions(self.store, TABLE.folder, runtime=self.god).read()
        found = set()
        for path in PATHS:
            try:
                manifest = PartitionStorage(self.store, TABLE.folder, path, runtime=self.god).read().document
            except ObjectMissing:
                continue
            found |= {int(file.path.rpartition("-")[2]) for file in visible_files(manifest, decisions)}
        return found


class JudgedStore(MemoryStore):
    """A store that judges every commit to the slots the instant it lands."""

    def __init__(self, site: RefreshSite) -> None:
        super().__init__(runtime=site.god)
        self._site = site

    def replace(self, key: str, data: bytes, version: str) -> str:
        before = self._site.slots() if key == KEY else None
        landed = super().replace(key, data, version)
        after = self._site.slots() if key == KEY else None
        if before is not None and after is not None:
            self._judge(before, after)
        return landed

    def _judge(self, before: SlotsDocument, after: SlotsDocument) -> None:
        site, book = self._site, self._site.book
        book.expect(after.slot in (before.slot, before.slot + 1), f"S1: slot {before.slot} became {after.slot}")
        if after.slot > before.slot:
            book.done["slots"] += 1
        if before.holder and after.holder and after.holder != before.holder:
            book.done["taken over"] += 1
        if after.last is not None and after.last != before.last:
            book.expect(
                after.last.slot == after.slot, f"S1: slot {after.last.slot} ended while {after.slot} was at hand"
            )
            kind = "skipped" if after.last.skipped else "failed" if after.last.error else "refreshed"
            book.done["repeated" if after.last.repeated else kind] += 1
        if after.over and after.seen == str(site.content):
            shown = site.shown()
            book.expect(
                shown == {site.content},
                f"S2: slot {after.slot} is over at content {site.content}, and the table has {sorted(shown)}",
            )


class RefreshScheduler:
    """One scheduler process: the real schedule, over a Spark that is played."""

    def __init__(self, site: RefreshSite, name: str) -> None:
        self.machine = machine = Machine(site.world, name)
        self._site = site
        store = site.store_for(machine)
        self.schedule = Schedule(
            store,
            machine,
            PlayedWork(site, machine, store),
            machine.spawn,
            lambda: name,
            lambda: True,
            lambda: name.endswith("0"),
            PATIENCE_MS,
            LIMIT_MS,
        )
        machine.spawn(self._live)

    def _live(self) -> None:
        machine = self.machine
        while not machine.stopping:
            try:
                self.schedule.tick({TABLE.name: TABLE})
            except BallistaError as error:
                self._site.book.done[f"failed: {error.code}"] += 1
            machine.sleep_ms(jittered_ms(TICK_MS, machine.random()))


@define
class PlayedWork:
    """A refresh that reads the source at one instant, takes a while, breaks now and then, and publishes for real."""

    site: RefreshSite
    machine: Machine
    store: VirtualStore

    def declaration(self, table: TableSpec) -> object:
        return table.refresh

    @property
    def kind(self) -> SlotWork:
        return "refresh"

    def wanted(self, _table: TableSpec) -> bool:
        """The one there is."""
        return True

    declared = wanted

    def every_ms(self, _table: TableSpec) -> float | None:
        """As the table declares."""
        return EVERY_MS

    def mode(self, _table: TableSpec) -> str:
        """All rows."""
        return "full"

    def look(self, _table: TableSpec) -> str:
        """What the source has."""
        self._take()
        return str(self.site.content)

    def run(self, _table: TableSpec, token: str, _mode: str) -> Done:
        """See `TableWork.run`."""
        runs = Publication(self.store, TABLE.folder, self.machine)
        begun = runs.begin(PATHS, token=token)
        if begun.earlier is not None:
            return Done(repeated=True)
        self._take()
        content = self.site.content
        self._take()
        attempt = self.machine.new_id()
        files = {
            path: [DataFile(path=f"snapshots/{TABLE.folder}/data/{attempt}{place}-{content}", rows=1, bytes=1)]
            for place, path in enumerate(PATHS)
        }
        position = f'{{"run": "{attempt}"}}'
        decision = runs.publish(begun, files, attempt=attempt, token=token, position=position)
        return Done(rows=2, repeated=decision.attempt != attempt)

    def _take(self) -> None:
        is_long = not self.site.calm and self.machine.random() < LONG
        self.machine.sleep_ms((LONG_STEP_MS if is_long else STEP_MS) * self.machine.random())
        if not self.site.calm and self.machine.random() < BREAKS:
            raise TransportError("Spark is gone")
