"""The gauges of an executor."""

from __future__ import annotations

from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import Tasks
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.transport.control.client import ControlClient
from ballista_py.transport.flight.server import FlightServer


def observe_executor(
    metrics: NodeMetrics,
    *,
    tasks: Tasks,
    flight: FlightServer,
    control: ControlClient,
    lease: ExecutorLease,
    cache: FileCache,
    holder: PartitionHolder,
) -> None:
    """Let `metrics` show how all these are, whenever somebody looks."""
    gauge = metrics.gauge
    gauge("legs_running", "Legs that run now.", (), lambda: {(): tasks.running()})
    gauge("open_calls", "Calls that are not answered yet.", (), lambda: {(): flight.open_calls()})
    gauge(
        "schedulers_connected",
        "Schedulers that this executor tells what it holds.",
        (),
        lambda: {(): len(control.connected())},
    )
    gauge(
        "lease_remaining_seconds",
        "Seconds until the lease ends, if it is not renewed.",
        (),
        lambda: {(): lease.remaining_ms() / 1e3},
    )
    gauge("cache_bytes", "Bytes of data files in the cache.", (), lambda: {(): cache.stats().bytes})
    gauge(
        "cache_files",
        "Data files that were asked of the cache, by outcome.",
        ("outcome",),
        lambda: _cache_outcomes(cache),
    )
    gauge(
        "hydration_bytes",
        "Bytes of data files that are to be loaded, by state.",
        ("state",),
        lambda: _hydration(holder),
    )
    gauge(
        "partitions_wanted",
        "Partitions that this executor is to hold.",
        (),
        lambda: {(): holder.progress().partitions},
    )
    gauge(
        "replica_age_seconds",
        "Seconds since the replicas of a table were compared with its manifests.",
        ("table",),
        lambda: _replica_ages(holder),
    )
    gauge(
        "partitions_held",
        "Partitions that this executor holds, by table and state.",
        ("table", "state"),
        lambda: _partitions(holder),
    )


def _partitions(holder: PartitionHolder) -> dict[tuple[str, ...], float]:
    return {
        (held.table, state): float(len(members))
        for held in holder.held()
        for state, members in (("active", held.active), ("loaded", held.loaded), ("failed", held.failed))
    }


def _replica_ages(holder: PartitionHolder) -> dict[tuple[str, ...], float]:
    return {(table,): age_ms / 1e3 for table, age_ms in holder.replica_ages_ms().items()}


def _hydration(holder: PartitionHolder) -> dict[tuple[str, ...], float]:
    progress = holder.progress()
    return {
        ("asked",): progress.bytes_asked,
        ("here",): progress.bytes_here,
        ("loaded",): progress.bytes_loaded,
    }


def _cache_outcomes(cache: FileCache) -> dict[tuple[str, ...], float]:
    stats = cache.stats()
    return {("reused",): stats.reused, ("fetched",): stats.fetched, ("damaged",): stats.damaged}
