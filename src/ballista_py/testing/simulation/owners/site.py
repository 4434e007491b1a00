"""What all in a simulation of owners share: tables and documents, who owns what, calls, the book on what was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson
import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.errors import BallistaError, TransportError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import LegTable
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    SchedulerInfo,
    TableDocument,
    partition_map_key,
    table_key,
)
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import History
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.row_engine import Program
from ballista_py.testing.simulation.store import VirtualStore
from ballista_py.testing.simulation.time import World

if TYPE_CHECKING:
    from ballista_py.testing.simulation.owners.owner import VirtualOwner

PARTITIONS = 3
MONEY = 1_000
SCHEDULER = "scheduler-1"
CALL_MS = 500.0
LOST_CALL = 0.02
CALL_TIMEOUT_MS = 8_000.0
GIVES_UP = 0.03
STANDS_STILL = 0.04
STILL_MS = 150_000.0
SCHEMA = pa.schema(
    [
        pa.field("part", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("money", pa.int64(), nullable=False),
    ]
)
Reply = TypeVar("Reply")


class Called(Protocol):
    """A process that can be called."""

    machine: Machine


class GoneError(Exception):
    """A client that stopped for good in the middle of something."""


def table_of(name: str, *, source: bool = False, unique: bool = False, incarnation: str = "") -> TableSpec:
    """A table of `PARTITIONS` partitions by the column `part`."""
    return TableSpec(
        name=name,
        schema=SCHEMA,
        spec=PartitionSpec.parse(["part"], SCHEMA),
        source={"format": "simulated"} if source else None,
        primary_key=("part", "name") if unique else (),
        incarnation=incarnation,
    )


def rows_of(rows: Sequence[tuple[int, str, int]]) -> pa.Table:
    """Rows (partition, name, money)."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)


@define
class Book:
    """What clients were told, with the virtual time of it."""

    sent: dict[str, float] = field(factory=dict)
    acknowledged: dict[str, float] = field(factory=dict)
    deleting: set[str] = field(factory=set)  # may be there or not
    deleted: dict[str, float] = field(factory=dict)
    moves: dict[str, tuple[int, int, int]] = field(factory=dict)  # by token: giver, taker, amount
    moved: set[str] = field(factory=set)  # tokens that were acknowledged
    unsure: set[str] = field(factory=set)  # tokens of which nobody was told what became
    begun: dict[str, float] = field(factory=dict)  # what replaces all: when it was sent
    replaced: dict[str, float] = field(factory=dict)  # … and acknowledged
    emptied: set[str] = field(factory=set)  # which of these left nothing
    done: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)

    def send(self, rows: Iterable[str], now_ms: float) -> None:
        """Somebody may have asked for these rows from now on."""
        for row in rows:
            self.sent.setdefault(row, now_ms)

    def expect(self, holds: bool, what: str) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.wrong.append(what)


@define
class OwnerSite:
    """The world, its store and tables. Nothing fails while it is `calm`."""

    world: World
    tables: dict[str, TableSpec]
    book: Book = field(factory=Book)
    programs: dict[str, Program] = field(factory=dict)
    owners: list[VirtualOwner] = field(factory=list)
    places: dict[tuple[str, int], tuple[VirtualOwner, int]] = field(factory=dict)  # table, partition: owner, epoch
    revisions: Counter[str] = field(factory=Counter)
    instances: set[str] = field(factory=set)
    pace: float = 1.0
    calm: bool = True
    stopped: bool = False  # no node runs: somebody repairs
    spoilt: str = ""  # the document that was lost or put back, until it is repaired
    repairs: int = 0  # for each of which all nodes were stopped
    store: JudgedStore = field(init=False)
    god: Machine = field(init=False)
    _faults: Faults = field(factory=Faults.none)
    _names: int = 0

    def __attrs_post_init__(self) -> None:
        self.god = Machine(self.world, "god")
        self.store = JudgedStore(self.god, self)

    def found(self) -> None:
        """Make the catalog, the maps and the folders of all tables."""
        scheduler = SchedulerInfo(scheduler_id="s", instance_id=SCHEDULER)
        cluster = ClusterDocument(schedulers={"s": scheduler})
        ObjectState(self.store, CLUSTER_KEY, ClusterDocument, runtime=self.god).create(cluster)
        for table in list(self.tables.values()):
            self.enter(table)

    def enter(self, table: TableSpec) -> None:
        """Make a table part of the catalog, with manifests and a map."""
        god, store = self.god, self.store
        for partition in range(PARTITIONS):
            PartitionStorage(store, table.folder, table.spec.path((partition,)), runtime=god).create()
        pmap = PartitionMap.build(table.name, table.spec, [(p,) for p in range(PARTITIONS)])
        ObjectState(store, table_key(table.folder), TableDocument, runtime=god).create(TableDocument(table=table))
        document = PartitionMapDocument(map=pmap, incarnation=table.incarnation)
        maps = ObjectState(store, partition_map_key(table.map_name), PartitionMapDocument, runtime=god)
        maps.create(document)
        self.catalog().update(lambda cluster: cluster.with_table(table))
        self.tables[table.name] = table

    def catalog(self) -> ObjectState[ClusterDocument]:
        """The catalog, without faults."""
        return ObjectState(self.store, CLUSTER_KEY, ClusterDocument, runtime=self.god)

    def give(self, table: str, partition: int, owner: VirtualOwner, epoch: int) -> None:
        """Commit that a partition has this owner from now on; owners hear of it in their own time."""
        self.places[table, partition] = owner, epoch
        self.revisions[table] += 1
        info = owner.lease.info
        self.instances.add(info.instance_id)
        name = (info.executor_id, info.instance_id)

        def change(document: PartitionMapDocument) -> PartitionMapDocument:
            pmap = document.map
            known = pmap.executors if name in pmap.executors else (*pmap.executors, name)
            owners, epochs = pmap.owner_index.copy(), pmap.epochs.copy()
            owners[partition, 0], epochs[partition] = known.index(name), epoch
            return evolve(document, map=evolve(pmap, executors=known, owner_index=owners, epochs=epochs))

        key = partition_map_key(table)
        ObjectState(self.store, key, PartitionMapDocument, runtime=self.god).update(change)

    def parts(self, table: str, partitions: Sequence[int]) -> list[tuple[VirtualOwner, LegTable]]:
        """Whom to ask for which partitions, by what is committed now."""
        by_owner: dict[int, list[int]] = {}
        for partition in partitions:
            by_owner.setdefault(id(self.places[table, partition][0]), []).append(partition)
        return [
            (
                self.places[table, own[0]][0],
                LegTable(
                    table=table,
                    revision=self.revisions[table],
                    partitions=tuple(own),
                    epochs=tuple(self.places[table, p][1] for p in own),
                ),
            )
            for own in by_owner.values()
        ]

    def break_things(self, seldom: bool = False) -> None:
        """From now on things fail; if `seldom`, most statements get through all the same."""
        self.calm = False
        self._faults = evolve(Faults(), slow_ms=30_000.0, lost_reply=0.05, throttled=0.01)
        if seldom:
            self._faults = evolve(Faults.none(), slow_request=0.01, slow_ms=4_000.0, lost_reply=0.01)

    def rest(self) -> None:
        """From now on nothing fails."""
        self.calm = True
        self._faults = Faults.none()

    def step(self, machine: Machine) -> None:
        """A place where a client may stand still, or stop for good."""
        chance = machine.random()
        if self.calm:
            return
        if chance < GIVES_UP:
            raise GoneError
        if chance < GIVES_UP + STANDS_STILL:
            machine.sleep_ms(STILL_MS * machine.random())

    def call(
        self, machine: Machine, owner: Called, act: Callable[[], Reply], timeout_ms: float = CALL_TIMEOUT_MS
    ) -> Reply:
        """What `act` gives on the machine of an owner, over a link that is slow and loses one message of fifty.

        Raises what it raises, and `TransportError` when no answer comes in time; then it may have been done.
        """
        world, there = self.world, owner.machine
        wake: list[Callable[..., object]] = [world.here()]

        def arrive(reply: object) -> None:
            if wake:
                wake.pop()(reply)

        def serve() -> None:
            try:
                reply: object = act()
            except BallistaError as error:
                reply = error
            except Exception as error:
                self.book.wrong.append(f"{type(error).__name__} at an owner: {error}")
                raise
            if not self._loses():
                world.at(CALL_MS * world.chance.random(), machine, lambda: arrive(reply))

        if not self._loses():
            world.at(CALL_MS * world.chance.random(), there, lambda: world.spawn(there, serve))
        world.at(timeout_ms, machine, lambda: arrive(TransportError("no answer from the owner")))
        reply: Any = world.park()
        if isinstance(reply, BallistaError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def _loses(self) -> bool:
        return not self.calm and self.world.chance.random() < LOST_CALL

    def statements(self, machine: Machine, table: str) -> TableDecisions:
        """The decisions of a table as a machine sees them."""
        return TableDecisions(self.seen_by(machine), self.tables[table].folder, runtime=machine)

    def seen_by(self, machine: Machine) -> VirtualStore:
        """The store as a machine sees it, which may lose requests and replies."""
        return VirtualStore(machine, self.store, History(), lambda: self._faults)

    def name(self, kind: str) -> str:
        """A name that nothing has had."""
        self._names += 1
        return f"{kind}-{self._names}"

    def some(self, machine: Machine) -> int:
        """Any partition."""
        return int(machine.random() * PARTITIONS)


class JudgedStore(MemoryStore):
    """A store that sees when a manifest takes in what is signed by another owner than is active there (G5)."""

    def __init__(self, runtime: Runtime, site: OwnerSite) -> None:
        super().__init__(runtime=runtime)
        self._site = site
        self._seen: set[tuple[str, str]] = set()
        self.older: dict[str, list[bytes]] = {}

    def replace(self, key: str, data: bytes, version: str) -> str:
        before = self.get(key).data if key.startswith("accelerations/commits/") else b""
        landed = super().replace(key, data, version)
        if before:
            self.older.setdefault(key, []).append(before)
            del self.older[key][:-8]
        if key.endswith("/manifest.json"):
            manifest = orjson.loads(data)
            for applied in manifest["tokens"][-1:]:
                by, token = applied["by"], applied["token"]
                if by in self._site.instances and by != manifest["owner"] and (key, token) not in self._seen:
                    self._site.book.wrong.append(f"{key} took in '{token}' of an owner that is over")
                self._seen.add((key, token))
        return landed
