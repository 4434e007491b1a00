"""The gauges of an executor."""

from __future__ import annotations

from collections.abc import Mapping

from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import Tasks
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.transport.control.client import ControlClient
from ballista_py.transport.flight.server import FlightServer

_OWN: Mapping[str, bool] = {"of_node": True, "adds_up": True}


def observe_executor(
    metrics: NodeMetrics,
    *,
    tasks: Tasks,
    flight: FlightServer,
    control: ControlClient,
    lease: ExecutorLease,
    cache: FileCache,
    holder: PartitionHolder,
    budget: MemoryBudget,
    slots: int,
) -> None:
    """Let `metrics` show how all these are, whenever somebody looks."""
    _observe_work(metrics, tasks, flight, budget, slots)
    _observe_membership(metrics, control, lease)
    _observe_files(metrics, cache, holder)
    _observe_partitions(metrics, holder)


def _observe_work(
    metrics: NodeMetrics, tasks: Tasks, flight: FlightServer, budget: MemoryBudget, slots: int
) -> None:
    gauge = metrics.gauge
    gauge("executor_tasks_active", "Legs and writes that run now.", (), lambda: {(): tasks.running()}, **_OWN)
    gauge("executor_task_slots", "Legs that compute at the same time at most.", (), lambda: {(): slots})
    gauge(
        "executor_memory_available_bytes",
        "Bytes of memory that nothing under way has reserved.",
        (),
        lambda: {(): _available(budget)},
    )
    gauge("node_open_calls", "Calls that are not answered yet.", (), lambda: {(): flight.open_calls()})


def _observe_membership(metrics: NodeMetrics, control: ControlClient, lease: ExecutorLease) -> None:
    metrics.gauge(
        "executor_connected_schedulers_count",
        "Schedulers that this executor tells what it holds.",
        (),
        lambda: {(): len(control.connected())},
    )
    metrics.gauge(
        "node_lease_remaining_ms",
        "Milliseconds until the lease ends, if it is not renewed.",
        (),
        lambda: {(): lease.remaining_ms()},
    )


def _observe_files(metrics: NodeMetrics, cache: FileCache, holder: PartitionHolder) -> None:
    metrics.gauge(
        "executor_cache_bytes", "Bytes of data files in the cache.", (), lambda: {(): cache.stats().bytes}
    )
    metrics.counter(
        "executor_cache_files",
        "Data files that were asked of the cache, by outcome.",
        ("outcome",),
        lambda: _cache_outcomes(cache),
    )
    metrics.counter(
        "executor_load_bytes",
        "Bytes of data files that were to be loaded, are on this machine, and are loaded.",
        ("state",),
        lambda: _hydration(holder),
    )


def _observe_partitions(metrics: NodeMetrics, holder: PartitionHolder) -> None:
    metrics.gauge(
        "executor_partitions_wanted",
        "Partitions that this executor is to hold.",
        (),
        lambda: {(): holder.progress().partitions},
    )
    metrics.gauge(
        "executor_replica_age_ms",
        "Milliseconds since the replicas of a table were compared with its manifests.",
        ("table",),
        lambda: _replica_ages(holder),
    )
    metrics.gauge(
        "executor_partitions",
        "Partitions that this executor holds, by table and state.",
        ("table", "state"),
        lambda: _partitions(holder),
    )
    metrics.gauge(
        "executor_map_revision",
        "The newest revision of the map of a table that this executor was told.",
        ("table",),
        lambda: {(table_named(held.table),): float(held.revision) for held in holder.held()},
    )


def _available(budget: MemoryBudget) -> float:
    return float(max(0, budget.ledger.max_bytes - budget.ledger.held_bytes))


def table_named(folder: str) -> str:
    """The table, of what its folder is called, which has the number of its incarnation at its end."""
    return folder.rpartition("-")[0] or folder


def _partitions(holder: PartitionHolder) -> dict[tuple[str, ...], float]:
    return {
        (table_named(held.table), state): float(len(members))
        for held in holder.held()
        for state, members in (("active", held.active), ("loaded", held.loaded), ("failed", held.failed))
    }


def _replica_ages(holder: PartitionHolder) -> dict[tuple[str, ...], float]:
    return {(table,): age_ms for table, age_ms in holder.replica_ages_ms().items()}


def _hydration(holder: PartitionHolder) -> dict[tuple[str, ...], float]:
    progress = holder.progress()
    return {
        ("asked",): progress.bytes_asked,
        ("here",): progress.bytes_here,
        ("loaded",): progress.bytes_loaded,
        ("kept",): progress.bytes_kept,
    }


def _cache_outcomes(cache: FileCache) -> dict[tuple[str, ...], float]:
    stats = cache.stats()
    return {("reused",): stats.reused, ("fetched",): stats.fetched, ("damaged",): stats.damaged}
