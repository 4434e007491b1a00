"""What each operation asks of the store, and what a month of a cluster's coordination costs on S3.

Counted on real components over a store that counts. A cluster does these whatever its executors do, because
executors ask the store nothing to stay members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
from attrs import field, frozen
from rich.console import Console
from rich.table import Table

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import ExecutorInfo, Heartbeat
from ballista_py.state.members.executor_registry import ExecutorRegistry
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import WATCHED, Reaper
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.ownership.reconciler import Reconciler
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ConditionalStore, ObjectEntry, StoredObject

TTL_MS, SKEW_MS = 300.0, 100.0  # of the bench only: it waits them out
PARTITIONS, EXECUTORS, TABLES = 100, 10, 1
WRITE_USD, READ_USD = 0.005 / 1_000, 0.0004 / 1_000  # S3 Standard, us-east-1: PUT and LIST, GET
DAY_S, MONTH_S = 86_400, 30 * 86_400
BEAT_S, REAP_S, RECONCILE_S = 10.0, 5.0, 30.0  # the defaults of the reference node


@frozen
class CountingStore:
    """Another store, and how often each verb was called."""

    store: ConditionalStore
    calls: Counter[str] = field(factory=Counter)

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        self.calls["read"] += 1
        return self.store.get(key, max_bytes)

    def get_if_changed(self, key: str, version: str) -> StoredObject | None:
        self.calls["read"] += 1
        return self.store.get_if_changed(key, version)

    def create(self, key: str, data: bytes) -> str:
        self.calls["write"] += 1
        return self.store.create(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        self.calls["write"] += 1
        return self.store.replace(key, data, version)

    def delete(self, key: str) -> None:
        self.calls["delete"] += 1
        self.store.delete(key)

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        self.calls["write"] += 1  # a listing costs as much
        return self.store.list(prefix)


def run() -> None:
    """Count, and print both tables."""
    table = Table("operation", "reads", "writes and lists", title="requests of one operation, one table")
    for name, calls in operations().items():
        table.add_row(name, str(calls["read"]), str(calls["write"]))
    console = Console(width=110)
    console.print(table)
    costs = Table("schedulers", "reads a second", "writes a second", "USD a month", title="an idle cluster")
    for schedulers in (3, 10, 100):
        reads, writes = idle_rates(schedulers)
        usd = MONTH_S * (reads * READ_USD + writes * WRITE_USD)
        costs.add_row(str(schedulers), f"{reads:.2f}", f"{writes:.2f}", f"{usd:,.2f}")
    console.print(costs)


def operations() -> dict[str, Counter[str]]:
    """The calls of each operation, on a cluster of its own."""
    runtime = SystemRuntime()
    base = MemoryStore()
    _found(base)
    found: dict[str, Counter[str]] = {}

    def count(name: str, store: CountingStore, operation: Callable[[], object]) -> None:
        store.calls.clear()
        operation()
        found[name] = Counter(store.calls)

    store = CountingStore(base)
    membership = _member(store, "one")
    count("join", store, membership.join)
    count("beat", store, membership.beat)
    count("discover the peers", store, membership.peers)
    reaper = Reaper(store, membership)
    count("look for the dead (1 scheduler)", store, reaper.tick)
    registry = ExecutorRegistry(membership)
    for number in range(EXECUTORS):
        registry.heard(_heartbeat(number))
    count(f"admit {EXECUTORS} executors", store, registry.tick)
    reconciler = Reconciler(PartitionStore(store), membership, reports=registry.held)
    count(f"reconcile with {PARTITIONS} assignments", store, reconciler.tick)
    count("reconcile with nothing to do", store, reconciler.tick)
    catalogs = Catalogs(store, runtime)
    catalogs.refresh()
    count("refresh the catalog", store, catalogs.refresh)
    other = _member(CountingStore(base), "two")
    other.join()
    count("look for the dead (2 schedulers)", store, reaper.tick)
    membership.beat()
    for _ in range(4):  # the other is silent; this one beats on
        runtime.sleep_ms((TTL_MS + SKEW_MS) / 3)
        membership.beat()
    count("evict a scheduler", store, reaper.tick)
    count("leave", store, membership.leave)
    return found


def idle_rates(schedulers: int) -> tuple[float, float]:
    """Reads and writes a second of so many schedulers with one table and nothing to do."""
    calls = operations()
    one, two = calls["look for the dead (1 scheduler)"], calls["look for the dead (2 schedulers)"]
    look = one["read"] + min(schedulers - 1, WATCHED) * (two["read"] - one["read"])
    tick, view = calls["reconcile with nothing to do"], calls["refresh the catalog"]
    reads = calls["beat"]["read"] / BEAT_S + look / REAP_S + (tick["read"] + view["read"]) / RECONCILE_S
    writes = calls["beat"]["write"] / BEAT_S + (tick["write"] + view["write"]) / RECONCILE_S
    return schedulers * reads, schedulers * writes


def _found(store: ConditionalStore) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    spec = PartitionSpec.parse([f"bucket({PARTITIONS}, id)"], schema)
    table = TableSpec(name="events", schema=schema, spec=spec)
    ObjectState(store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument(tables={table.name: table}))
    PartitionStore(store).create(PartitionMap.build(table.name, spec, spec.static_values() or ()))


def _member(store: ConditionalStore, name: str) -> Membership:
    info = SchedulerInfo(
        scheduler_id=name, instance_id="", flight_address="127.0.0.1:1", control_address="127.0.0.1:2"
    )
    return Membership(store, info, ttl_ms=TTL_MS, skew_ms=SKEW_MS)


def _heartbeat(number: int) -> Heartbeat:
    info = ExecutorInfo(
        executor_id=f"executor-{number}", instance_id=f"instance-{number}", data_address="127.0.0.1:3"
    )
    return Heartbeat(executor=info, sequence=1, admitted=False, lapsed=False)
