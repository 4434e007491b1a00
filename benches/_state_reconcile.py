"""The reconcile of one table with a million partitions: nothing to do, and an executor that was lost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa
from attrs import evolve

from _measure import peak_mb
from _state_codec import EXECUTORS, executors, placed_map
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import CLUSTER_KEY, AdmittedExecutor, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import ExecutorInfo
from ballista_py.state.members.membership import Membership
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.ownership.reconciler import Reconciler
from ballista_py.state.stores.memory import MemoryStore


def run(rounds: int, partitions: int) -> None:
    """Print the median seconds of both."""
    pmap = placed_map(partitions)
    store = MemoryStore()
    table = TableSpec(
        name=pmap.table, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]), spec=pmap.spec
    )
    members = {e.executor_id: _member(e) for e in executors()}
    cluster = ClusterDocument(tables={table.name: table}, executors=members, admissions=len(members))
    ObjectState(store, CLUSTER_KEY, ClusterDocument).create(cluster)
    maps = PartitionStore(store)
    maps.create(pmap)
    info = SchedulerInfo(scheduler_id="bench", instance_id="", flight_address="bench:2", control_address="bench:3")
    membership = Membership(store, info, ttl_ms=600_000.0)
    membership.join()
    assigner = PartitionAssigner(max_partitions_per_executor=2 * partitions)
    reconciler = Reconciler(maps, membership, reports=dict, assigner=assigner, limit=None)
    idle = [_seconds(reconciler.tick) for _ in range(rounds)]
    lost = []
    for n in range(rounds):
        membership.cluster.update(lambda document, n=n: _without(document, f"executor-{n:04}"))  # type: ignore[misc]
        lost.append(_seconds(reconciler.tick))
    print(f"\nreconcile {partitions:,} partitions on {EXECUTORS:,} executors, median of {rounds}")
    print(f"  nothing to do         {statistics.median(idle):8.3f} s")
    print(f"  an executor was lost  {statistics.median(lost):8.3f} s")
    print(f"  peak memory of this process {peak_mb():,.0f} MB")


def _seconds(tick: Callable[[], object]) -> float:
    begun = time.perf_counter()
    tick()
    return time.perf_counter() - begun


def _member(executor: Executor) -> AdmittedExecutor:
    info = ExecutorInfo(
        executor_id=executor.executor_id, instance_id=executor.instance_id, data_address="127.0.0.1:1"
    )
    return AdmittedExecutor(info=info, admitted=1)


def _without(document: ClusterDocument, executor_id: str) -> ClusterDocument:
    return evolve(document, executors={k: v for k, v in document.executors.items() if k != executor_id})
