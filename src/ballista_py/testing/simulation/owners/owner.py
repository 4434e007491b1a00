"""An owner of partitions in virtual time: the real lease, holder, writes and compaction over a faulty store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa

from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError
from ballista_py.owner.pipeline_runs import OutsideRuns
from ballista_py.owner.writes import OwnerWrites
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.storage.decisions_check import Waiting, decided_files
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.upkeep.compaction import CompactionPolicy
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.row_engine import RowEngine
from ballista_py.testing.simulation.owners.site import OwnerSite

FOR_EVER_MS = 1e15
HOLD_MS = 2_000.0
END_MS = 3_000.0
COMPACT_MS = 15_000.0
SLOWEST = 10.0


class VirtualOwner:
    """One process: it holds what it is told to hold, writes, reads, and ends what was left prepared.

    Its lease never ends: a successor that it does not know of is what fences are for.
    """

    def __init__(self, site: OwnerSite, name: str) -> None:
        self.site = site
        self.machine = machine = Machine(site.world, name)
        store = site.seen_by(machine)
        self.engine = RowEngine(site.programs)
        self.lease = ExecutorLease(name, f"{name}:50053", runtime=machine)
        self.lease.answered(Grant(sequence=self.lease.heartbeat(()).sequence, lease_ms=FOR_EVER_MS))
        cache = FileCache(store, max_bytes=0, runtime=machine)
        self.holder = PartitionHolder(self.lease, store, self.engine, cache=cache, runtime=machine)
        engine = cast(Engine, self.engine)

        def instance() -> str:
            return self.lease.info.instance_id

        policy = CompactionPolicy(min_files=4)
        self.writes = OwnerWrites(
            self.holder, store, engine, machine, map, instance, policy=policy, each=machine.map
        )
        self.runs = OutsideRuns(self.holder, store, machine, instance)
        self._every(HOLD_MS, self._hold)
        self._every(END_MS, self.writes.tick)
        self._every(END_MS, self.runs.tick)
        self._every(COMPACT_MS, self._compact)

    def read(self, table: LegTable) -> pa.Table:
        """The rows of these partitions, as an executor answers a leg."""
        leg = Leg(fragment="f", executor_id=self.machine.name, sql="", tables=(table,))

        def look() -> Collection[Waiting]:
            counts = self.writes.catch_up(leg)
            self.runs.catch_up(leg)
            self.holder.check_decisions(leg)
            return counts or ()

        return self.engine.rows(table.table, decided_files(self.holder, leg, look)[table.table])

    def tell(self) -> None:
        """Hear now what is to be held."""
        for table, revision in list(self.site.revisions.items()):
            mine = tuple(
                PartitionAssignment(
                    partition=partition,
                    path=self.site.tables[table].spec.path((partition,)),
                    epoch=epoch,
                    role="owner",
                )
                for (name, partition), (owner, epoch) in sorted(self.site.places.items(), key=lambda one: one[0])
                if name == table and owner is self
            )
            self.holder.apply(
                UpdatePartitions(
                    instance_id=self.lease.info.instance_id,
                    table=self.site.tables[table],
                    revision=revision,
                    partitions=mine,
                )
            )

    def _hold(self) -> None:
        self.tell()
        self.holder.tick()

    def _compact(self) -> None:
        with suppress(BallistaError):
            self.site.book.done["compaction"] += self.writes.compact() is not None

    def _every(self, interval_ms: float, act: Callable[[], Any]) -> None:
        interval_ms *= min(SLOWEST, self.site.pace)

        def loop() -> None:
            while not self.machine.stopping:
                with suppress(BallistaError):
                    act()
                self.machine.sleep_ms(interval_ms * (0.5 + self.machine.random()))

        self.machine.spawn(loop)
