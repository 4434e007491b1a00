"""What all in a simulation of definitions share: the store with the catalog, schedulers, owners, and what is true."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import BallistaError, ObjectMissing
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    SchedulerInfo,
    partition_map_key,
)
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.testing.simulation.definitions.ledger import KEY, Ledger
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.site import CALL_MS, JudgedStore, OwnerSite

if TYPE_CHECKING:
    from ballista_py.testing.simulation.definitions.owner import DefinitionOwner
    from ballista_py.testing.simulation.definitions.scheduler import VirtualScheduler

BUCKETS = 2
KEYS = [f"bucket({BUCKETS}, {KEY})"]
NAMES = ("a", "b", "c")  # of which one is free
LATE = 0.03
LATE_MS = 40_000.0
FIRST_COLUMNS = pa.schema(
    [pa.field(KEY, pa.string(), nullable=False), pa.field("x", pa.int64()), pa.field("y", pa.int32())]
)


@define
class DefinitionSite(OwnerSite):
    """The world of one run."""

    schedulers: list[VirtualScheduler] = field(factory=list)
    members: list[DefinitionOwner] = field(factory=list)
    addresses: dict[str, DefinitionOwner] = field(factory=dict)
    ledger: Ledger = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.god = Machine(self.world, "god")
        self.ledger = Ledger(self.book)
        self.store = CatalogStore(self.god, self)

    def found(self) -> None:
        """Make the catalog and two tables, by the code that makes tables; to be called by a thread of the world."""
        ObjectState(self.store, CLUSTER_KEY, ClusterDocument, runtime=self.god).create(ClusterDocument())
        maker = TableMaker(self.store, self.god, spawn=self.god.spawn)
        for name in NAMES[:2]:
            maker.create(name, None, KEYS, schema=FIRST_COLUMNS)

    def join(self, owner: DefinitionOwner) -> None:
        """Admit an owner."""
        info = owner.lease.info
        self.addresses[info.data_address] = owner
        self.instances.add(info.instance_id)
        self.members.append(owner)
        self.catalog().update(lambda cluster: cluster.admit(info))

    def part_with(self, owner: DefinitionOwner) -> None:
        """Take note that an owner is gone; what it owned is given to others by `assign`."""
        self.members.remove(owner)
        name = (owner.lease.info.executor_id, owner.lease.info.instance_id)
        self.catalog().update(lambda cluster: cluster.without_executors(frozenset([name])))

    def begin(self, scheduler: VirtualScheduler) -> None:
        """Let a scheduler be one."""
        info = SchedulerInfo(scheduler_id=scheduler.machine.name, instance_id=scheduler.instance_id)
        self.schedulers.append(scheduler)
        known = {info.scheduler_id: info}
        self.catalog().update(lambda cluster: evolve(cluster, schedulers={**cluster.schedulers, **known}))

    def end(self, scheduler: VirtualScheduler) -> None:
        """Kill a scheduler."""
        self.schedulers.remove(scheduler)
        scheduler.machine.dead = True
        name, instance = scheduler.machine.name, scheduler.instance_id
        self.catalog().update(lambda cluster: cluster.without_scheduler(name, instance))

    def assign(self) -> None:
        """Give every partition of every table that has none an owner, at its next epoch."""
        cluster = self.catalog().read().document
        live = sorted(cluster.members())
        for table in cluster.tables.values():
            with suppress(ObjectMissing):
                self._assign(table, live)

    def _assign(self, table: TableSpec, live: list[tuple[str, str]]) -> None:
        def change(document: PartitionMapDocument) -> PartitionMapDocument:
            pmap = document.map
            orphans = [p for p in pmap.ids().tolist() if pmap.owner(p) not in live]
            if document.incarnation != table.incarnation or not orphans or not live:
                return document
            known = (*pmap.executors, *(one for one in live if one not in pmap.executors))
            owners, epochs = pmap.owner_index.copy(), pmap.epochs.copy()
            for p in orphans:
                owners[p, 0], epochs[p] = known.index(live[(p + table.named) % len(live)]), epochs[p] + 1
            return evolve(document, map=evolve(pmap, executors=known, owner_index=owners, epochs=epochs))

        key = partition_map_key(table.map_name)
        ObjectState(self.store, key, PartitionMapDocument, runtime=self.god).update(change)

    def send(self, there: Machine, act: Callable[[], object]) -> None:
        """Have `act` done at a machine: soon, late, or not at all."""

        def arrive() -> None:
            with suppress(BallistaError):
                act()

        chance = self.world.chance
        if self._loses():
            return
        late = not self.calm and chance.random() < LATE
        delay_ms = (LATE_MS if late else CALL_MS) * chance.random()
        self.world.at(delay_ms, there, lambda: self.world.spawn(there, arrive))


class CatalogStore(JudgedStore):
    """A store that tells the ledger of every catalog, the instant it is one."""

    def __init__(self, runtime: Runtime, site: DefinitionSite) -> None:
        super().__init__(runtime, site)
        self._definitions = site
        self._god = runtime

    def create(self, key: str, data: bytes) -> str:
        landed = super().create(key, data)
        self._noted(key)
        return landed

    def replace(self, key: str, data: bytes, version: str) -> str:
        landed = super().replace(key, data, version)
        self._noted(key)
        return landed

    def _noted(self, key: str) -> None:
        if key == CLUSTER_KEY:
            cluster = ObjectState(self, key, ClusterDocument, runtime=self._god).read().document
            self._definitions.ledger.note(self._definitions.world.now_ms, cluster)
