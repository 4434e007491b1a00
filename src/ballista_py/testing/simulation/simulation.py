"""An hour of a whole cluster in seconds: real components, virtual time, faults and interleavings from a seed.

`Simulation` runs the parts of the state and storage floors unmodified on virtual machines, breaks what can break,
ends every fault, waits until the cluster should have recovered, and has the recorded history judged. The same
arguments give the same history byte for byte.
"""

from __future__ import annotations

import gc

import pyarrow as pa
from attrs import evolve, field, frozen

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.simulation.checkers.check import Violation, check_history
from ballista_py.testing.simulation.executor import VirtualExecutor
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import Healed, History
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.scheduler import VirtualScheduler
from ballista_py.testing.simulation.site import LEDGER_KEY, Ledger, Site, Times
from ballista_py.testing.simulation.spans import served_share
from ballista_py.testing.simulation.time import World
from ballista_py.testing.simulation.troubles import Nodes, Troubles

HOUR_MS = 3_600_000.0
JUDGED_EVERY_MS = 600_000.0
HEAL_INTERVALS = 3
HEAL_STEP_MS = 1_000.0
FOUNDED_MS = 1_000.0
QUIET_MS = 45_000.0  # longer than any request or message may be under way


@frozen(kw_only=True)
class SimulationResult:
    """What one run was like. `served` is the mean share of partitions that were served while faults happened.

    `healed_ms` is how long after the last fault every partition was served by its owner; None if it never was.
    """

    seed: int
    violations: tuple[Violation, ...]
    virtual_ms: float
    events: int
    served: float
    healed_ms: float | None
    history: History = field(repr=False)


class Simulation:
    """One cluster, one seed; see `run`. `hours` are virtual and full of faults; healing comes on top."""

    def __init__(
        self,
        seed: int,
        *,
        schedulers: int = 3,
        executors: int = 8,
        partitions: int = 64,
        hours: float = 1.0,
        faults: Faults | None = None,
        times: Times | None = None,
    ) -> None:
        self.seed = seed
        self._hours = hours
        world = World(seed)
        table = _table(partitions)
        first = PartitionMap.build(table.name, table.spec, table.spec.static_values() or ())
        self.site = Site(
            world=world,
            history=History(),
            store=MemoryStore(runtime=Machine(world, "store")),
            table=table,
            times=times or Times(),
            faults=Faults.none(),
            paths=tuple(first.path(p) for p in range(partitions)),
        )
        self._found(first)
        self.site.faults = faults or Faults()
        self.nodes = Nodes()
        self._troubles = Troubles(self.site, self.nodes, self._new_scheduler, self._new_executor)
        self.nodes.schedulers = [self._new_scheduler(f"scheduler-{n}") for n in range(schedulers)]
        self.nodes.executors = [self._new_executor(f"executor-{n}") for n in range(executors)]

    def run(self, *, stop_at_first: bool = False) -> SimulationResult:
        """Live through the hours, heal, and judge. With `stop_at_first` it ends soon after the first violation."""
        world = self.site.world
        collecting = gc.isenabled()
        gc.disable()  # greenlets of the dead are kept on purpose, and a pass over all of them is slow
        try:
            self._troubles.start()
            end_ms = self._hours * HOUR_MS
            violations: tuple[Violation, ...] = ()
            while world.now_ms < end_ms and not violations:
                world.run(min(end_ms, world.now_ms + JUDGED_EVERY_MS) if stop_at_first else end_ms)
                violations = self._judge() if stop_at_first and world.now_ms < end_ms else ()
            self._flush()
            served = served_share(self.site.history, len(self.site.paths), world.now_ms)
            healed_ms = None if violations else self._heal()
            violations = violations or self._judge()
            return SimulationResult(
                seed=self.seed,
                violations=violations,
                virtual_ms=world.now_ms,
                events=world.events,
                served=served,
                healed_ms=healed_ms,
                history=self.site.history,
            )
        finally:
            world.close()
            if collecting:
                gc.enable()

    def _heal(self) -> float | None:
        """End all faults, wait for every partition to be served, then for what is still under way to arrive."""
        site, world = self.site, self.site.world
        self._troubles.stop()
        site.faults = evolve(Faults.none(), latency_ms=site.faults.latency_ms, message_ms=site.faults.message_ms)
        stopped_ms = world.now_ms
        limit_ms = self.heal_limit_ms
        while (unserved := self._unserved()) and world.now_ms - stopped_ms < limit_ms:
            world.run(world.now_ms + HEAL_STEP_MS)
        healed_ms = None if unserved else world.now_ms - stopped_ms
        served_ms = world.now_ms if healed_ms is not None else float("inf")
        world.run(world.now_ms + QUIET_MS)
        site.history.add(Healed(at_ms=stopped_ms, node="", served_ms=served_ms, unserved=unserved))
        return healed_ms

    @property
    def heal_limit_ms(self) -> float:
        """How long after the last fault every partition must be served (L1)."""
        return HEAL_INTERVALS * self.site.times.interval_ms

    def _unserved(self) -> tuple[int, ...]:
        """The partitions that their committed owner does not serve at their epoch."""
        machine = Machine(self.site.world, "observer")
        pmap = PartitionStore(self.site.store, runtime=machine).read(self.site.table.name)
        serving = {
            (e.info.executor_id, e.info.instance_id, p, epoch)
            for e in self.nodes.all_executors()
            for p, epoch in e.served().items()
        }
        return tuple(
            p for p in pmap.ids().tolist() if (*(pmap.owner(p) or ("", "")), p, pmap.epoch(p)) not in serving
        )

    def _judge(self) -> tuple[Violation, ...]:
        self._flush()
        return tuple(check_history(self.site.history))

    def _flush(self) -> None:
        for scheduler in self.nodes.all_schedulers():
            scheduler.lease.flush()
        for executor in self.nodes.all_executors():
            executor.flush()

    def _found(self, first: PartitionMap) -> None:
        """Make the documents that are there before the first node."""
        site = self.site
        machine = Machine(site.world, "founder")
        store = site.store_for(machine)

        def found() -> None:
            cluster = ClusterDocument(tables={site.table.name: site.table})
            ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=machine).create(cluster)
            ObjectState(store, LEDGER_KEY, Ledger, runtime=machine).create(Ledger())
            PartitionStore(store, runtime=machine).create(first)
            list(machine.map(create, site.paths))

        def create(path: str) -> object:
            return PartitionStorage(store, site.table.name, path, runtime=machine).create()

        machine.spawn(found)
        site.world.run(FOUNDED_MS)

    def _new_scheduler(self, name: str) -> VirtualScheduler:
        return VirtualScheduler(self.site, name)

    def _new_executor(self, name: str) -> VirtualExecutor:
        return VirtualExecutor(self.site, name, self.nodes.all_schedulers)


def _table(partitions: int) -> TableSpec:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    return TableSpec(name="events", schema=schema, spec=PartitionSpec.parse([f"bucket({partitions}, id)"], schema))
