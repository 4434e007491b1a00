"""The gauges of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ballista_py.coordinator.queries.leg_opener import LegWatch
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.flight.server import FlightServer


def observe_scheduler(
    metrics: NodeMetrics,
    core: SchedulerCore,
    flight: FlightServer,
    control: ControlServer,
    legs: LegWatch,
    lags: Callable[[], Mapping[tuple[str, ...], float]],
    left: Callable[[str], Mapping[tuple[str, ...], float]],
) -> None:
    """Let `metrics` show how all these are, whenever somebody looks."""
    gauge = metrics.gauge
    gauge("node_open_calls", "Calls of clients that are not answered yet.", (), lambda: {(): flight.open_calls()})
    gauge(
        "scheduler_task_queue_depth",
        "Legs that were sent and that their executors have not accepted yet.",
        (),
        lambda: {(): legs.waiting()},
    )
    gauge(
        "scheduler_active_executors_count",
        "Executors of the cluster that this scheduler hears within their leases.",
        (),
        lambda: {(): core.active_executors()},
    )
    gauge(
        "scheduler_count",
        "Schedulers of the cluster.",
        (),
        lambda: {(): len(core.schedulers())},
    )
    gauge(
        "scheduler_connected_executors_count",
        "Executors with a stream to this scheduler.",
        (),
        lambda: {(): len(control.connected())},
    )
    gauge(
        "node_lease_remaining_ms",
        "Milliseconds until the lease ends, if it is not renewed.",
        (),
        lambda: {(): core.membership.remaining_ms()},
    )
    _observe_tables(metrics, core, lags, left)


def _observe_tables(
    metrics: NodeMetrics,
    core: SchedulerCore,
    lags: Callable[[], Mapping[tuple[str, ...], float]],
    left: Callable[[str], Mapping[tuple[str, ...], float]],
) -> None:
    """Let `metrics` show how the tables are, and how far behind their sources."""
    gauge = metrics.gauge
    gauge(
        "scheduler_partitions",
        "Partitions of each table: all of them, and those that are served.",
        ("table", "state"),
        lambda: _partitions(core),
    )
    gauge(
        "scheduler_map_revision",
        "The revision of the map of each table, as last read.",
        ("table",),
        lambda: {(name,): float(pmap.revision) for name, pmap in core.known().catalog.maps.items()},
    )
    gauge(
        "dataset_acceleration_refresh_lag_ms",
        "How long ago the source was looked at whose rows a table has, as this scheduler last saw it.",
        ("table", "mode"),
        lags,
    )
    gauge(
        "dataset_acceleration_refresh_lag_bytes",
        "Bytes of a source's log that a table which follows it lacks, at the scheduler that reads.",
        ("table", "mode"),
        lambda: left("lag_bytes"),
    )
    gauge(
        "dataset_acceleration_refresh_lag_rows",
        "Changed rows of a source that a table which follows it lacks, where the source counts them.",
        ("table", "mode"),
        lambda: left("lag_rows"),
    )


def _partitions(core: SchedulerCore) -> dict[tuple[str, ...], float]:
    rows = core.tables()
    states = ("partitions", "all"), ("serving", "serving")
    return {(row["table"], state): float(row[field]) for row in rows for field, state in states}
