"""An executor of a simulated cluster: the lease, the holder of partitions, the manifests, wired as in the node.

Only the engine is missing: rows are counted, not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.members.control import ExecutorInfo, Heartbeat, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import Loadable, LocalFile
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.manifest import DataFile, data_prefix
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.simulation.history import Leased, Serves
from ballista_py.testing.simulation.lease_notes import LeaseNotes
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.scheduler import Listener, Message
from ballista_py.testing.simulation.site import Site

REFRESH_SHARE = 0.1


class Hearer(Protocol):
    """A scheduler, as far as messages go."""

    machine: Machine

    def heard(self, listener: Listener, heartbeat: Heartbeat) -> None: ...
    def leave_executor(self, executor_id: str, instance_id: str) -> None: ...


class CountingLoader:
    """Takes files for an engine and knows their rows; a file says how many it has."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def create_table(self, table: str, schema: pa.Schema) -> None:
        return

    def alter_table(self, table: str, schema: pa.Schema) -> bool:
        return True

    def drop_table(self, table: str) -> None:
        return

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        return sum(int(self._store.get(file.path).data) for file in files if isinstance(file, LocalFile))

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        return


class VirtualExecutor:
    """One executor process. `hearers` gives the schedulers that it sends heartbeats to."""

    def __init__(self, site: Site, name: str, hearers: Callable[[], Sequence[Hearer]]) -> None:
        self.site = site
        self.machine = machine = Machine(site.world, name)
        self._hearers = hearers
        self._store = site.store_for(machine)
        self.lease = ExecutorLease(name, f"{name}:50053", runtime=machine)
        self.holder = PartitionHolder(
            self.lease, self._store, CountingLoader(site.store), runtime=machine, mapper=machine.map
        )
        self._lease_notes = LeaseNotes(site.world, self._note_leased)
        self._serving: dict[int, int] = {}
        self._serving_as = ""
        self._writes = 0
        times = site.times
        self._poke_holder = site.every(machine, times.hold_ms, self._hold)
        site.every(machine, times.heartbeat_ms, self._heartbeat)
        site.every(machine, times.write_ms, self._write)

    @property
    def info(self) -> ExecutorInfo:
        return self.lease.info

    def served(self) -> dict[int, int]:
        """The partitions that may be read here now, and the epochs."""
        return {} if self.machine.dead or not self.lease.valid() else dict(self._serving)

    def received(self, message: Message) -> None:
        """A scheduler's message arrived."""
        if isinstance(message, UpdatePartitions):
            if self.holder.apply(message):
                self._note_holdings()
                self._poke_holder()
        elif self.lease.answered(message):
            self.holder.drop_all()
            self._note_holdings()
            self.lease.rejoin()
            self._note_holdings()
        self._note_lease()

    def _hold(self) -> None:
        self.holder.tick()
        self._note_holdings()

    def _heartbeat(self) -> None:
        heartbeat = self.lease.heartbeat(self.holder.held())
        for hearer in self._hearers():
            link = (hearer.machine.name, self.machine.name)
            self.site.send(link, hearer.machine, lambda hearer=hearer: hearer.heard(self, heartbeat))  # type: ignore[misc]

    def _write(self) -> None:
        """Add rows to a partition that is served here, as an owner does it: check first, then commit."""
        machine, table = self.machine, self.site.table
        served = self.holder.held()
        owned = [pair for held in served for pair in zip(held.active, held.epochs, strict=True)]
        if not owned:
            return
        partition, epoch = owned[int(machine.random() * len(owned))]
        self.holder.files_for(_leg(self.info.executor_id, table.name, partition, epoch))
        self._writes += 1
        name = f"{self.info.instance_id[:12]}-{self._writes}"
        key = f"{data_prefix(table.name)}{name}.parquet"
        faults = self.site.faults
        if machine.random() < faults.long_write:
            machine.sleep_ms(faults.long_write_ms * machine.random())
        self._store.create(key, b"1")
        storage = PartitionStorage(
            self._store,
            table.name,
            self.site.paths[partition],
            runtime=machine,
            committed_by=self.info.instance_id,
        )
        file = DataFile(path=key, rows=1, bytes=1)
        storage.commit(add=[file], epoch=epoch, token=f"{epoch}:{name}")
        if machine.random() < REFRESH_SHARE:
            self.holder.refresh(table.name)
            self._note_holdings()

    def leave(self) -> None:
        """Stop as a process does that is told to: serve no more, then say so, then end."""
        self.lease.leave()
        self._note_lease()
        hearers, info = self._hearers(), self.info
        if hearers:
            hearer = hearers[int(self.machine.random() * len(hearers))]
            link = (hearer.machine.name, self.machine.name)
            self.site.send(link, hearer.machine, lambda: hearer.leave_executor(info.executor_id, info.instance_id))
        self.crash()

    def crash(self) -> None:
        """End at once."""
        self.machine.dead = True
        self._note_lease()

    def flush(self) -> None:
        """Note what is over by now; to be called before the history is judged."""
        self._note_lease()
        self._lease_notes.flush()

    def _note_lease(self) -> None:
        left_ms = 0.0 if self.machine.dead else self.lease.remaining_ms()
        self._lease_notes.seen(self.info.instance_id, self.machine.true_ms(left_ms))

    def _note_leased(self, instance: str, from_ms: float, until_ms: float) -> None:
        leased = Leased(at_ms=from_ms, node=self.machine.name, instance=instance, until_ms=until_ms)
        self.site.history.add(leased)

    def _note_holdings(self) -> None:
        """Note what is served from now on, and what no longer."""
        now = {p: e for held in self.holder.held() for p, e in zip(held.active, held.epochs, strict=True)}
        before = self._serving
        if now == before and (self._serving_as == self.info.instance_id or not now):
            return
        if self._serving_as != self.info.instance_id:
            for partition, epoch in sorted(before.items()):
                self._note_served(partition, epoch, self._serving_as, False)
            before, self._serving_as = {}, self.info.instance_id
        for partition, epoch in sorted(before.items() - now.items()):
            self._note_served(partition, epoch, self._serving_as, False)
        for partition, epoch in sorted(now.items() - before.items()):
            self._note_served(partition, epoch, self._serving_as, True)
        self._serving = now

    def _note_served(self, partition: int, epoch: int, instance: str, on: bool) -> None:
        self.site.history.add(
            Serves(
                at_ms=self.site.world.now_ms,
                node=self.machine.name,
                executor_id=self.machine.name,
                instance=instance,
                table=self.site.table.name,
                partition=partition,
                epoch=epoch,
                on=on,
            )
        )


def _leg(executor_id: str, table: str, partition: int, epoch: int) -> Leg:
    wanted = LegTable(table=table, revision=0, partitions=(partition,), epochs=(epoch,))
    return Leg(executor_id=executor_id, fragment="", sql="", tables=(wanted,))
