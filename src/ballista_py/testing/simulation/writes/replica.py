"""A replica of a table in virtual time: the real lease, holder, file cache and replica reads over a faulty store.

Only the engine is missing: files are remembered by name, and rows are counted by whoever knows what a file holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.files import Loadable, LocalFile
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.replicas import ReplicaReads

SCHEMA = pa.schema([("n", pa.int64())])
FOR_EVER_MS = 1e15


class NamingLoader:
    """Takes files for an engine and knows their names."""

    def __init__(self, rows_of: Callable[[str], int]) -> None:
        self._rows_of = rows_of
        self.names: dict[int, str] = {}

    def create_table(self, table: str, schema: pa.Schema) -> None:
        return

    def alter_table(self, table: str, schema: pa.Schema) -> bool:
        return True

    def drop_table(self, table: str) -> None:
        return

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        named = [file for file in files if isinstance(file, LocalFile)]
        self.names.update({file.file_id: file.name for file in named})
        return sum(self._rows_of(file.name) for file in named)

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        return  # a query that was handed the names may go on


class VirtualReplica:
    """Holds partitions 0 to `partitions` - 1 of a managed table as replicas, with a lease that never ends."""

    def __init__(
        self,
        runtime: Runtime,
        store: ConditionalStore,
        table: str,
        partitions: int,
        path: Callable[[int], str],
        rows_of: Callable[[str], int],
    ) -> None:
        self._table = table
        self._partitions = tuple(range(partitions))
        self._loader = NamingLoader(rows_of)
        lease = ExecutorLease("replica", "replica:50053", runtime=runtime)
        lease.answered(Grant(sequence=lease.heartbeat(()).sequence, lease_ms=FOR_EVER_MS))
        self._holder = PartitionHolder(lease, store, self._loader, runtime=runtime)
        self._reads = ReplicaReads(self._holder, store, runtime)
        spec = TableSpec(name=table, schema=SCHEMA, spec=PartitionSpec.parse([f"bucket({partitions}, n)"], SCHEMA))
        self._holder.apply(
            UpdatePartitions(
                instance_id=lease.info.instance_id,
                table=spec,
                revision=1,
                partitions=tuple(
                    PartitionAssignment(partition=p, path=path(p), epoch=1, role="replica")
                    for p in self._partitions
                ),
            )
        )

    def read(self, sequence: int, max_lag_ms: float) -> list[str]:
        """The files that a query of that sequence reads here. Raises what an executor answers."""
        self._holder.tick()
        table = LegTable(
            table=self._table,
            revision=1,
            partitions=self._partitions,
            epochs=(1,) * len(self._partitions),
            sequence=sequence,
        )
        leg = Leg(fragment="f", executor_id="replica", sql="", tables=(table,), max_replica_lag_ms=max_lag_ms)
        self._reads.freshen(leg)
        return [self._loader.names[file_id] for file_id in self._holder.files_for(leg)[self._table]]
