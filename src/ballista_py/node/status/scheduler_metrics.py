"""The gauges of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

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
    for name, what, value in (
        ("node_open_calls", "Calls of clients that are not answered yet.", flight.open_calls),
        (
            "scheduler_task_queue_depth",
            "Legs that were sent and that their executors have not accepted yet.",
            legs.waiting,
        ),
        (
            "scheduler_active_executors_count",
            "Executors of the cluster that this scheduler hears within their leases.",
            core.active_executors,
        ),
        ("scheduler_count", "Schedulers of the cluster.", lambda: len(core.schedulers())),
        (
            "scheduler_connected_executors_count",
            "Executors with a stream to this scheduler.",
            lambda: len(control.connected()),
        ),
        (
            "node_lease_remaining_ms",
            "Milliseconds until the lease ends, if it is not renewed.",
            core.membership.remaining_ms,
        ),
    ):
        metrics.gauge(name, what, (), partial(_alone, value))
    metrics.gauge(
        "scheduler_partitions",
        "Partitions of each table: all of them, and those that are served.",
        ("table", "state"),
        partial(_partitions, core),
    )
    metrics.gauge(
        "scheduler_map_revision",
        "The revision of the map of each table, as last read.",
        ("table",),
        lambda: {(table,): float(pmap.revision) for table, pmap in core.known().catalog.maps.items()},
    )
    _observe_followed(metrics, lags, left)


def _observe_followed(
    metrics: NodeMetrics,
    lags: Callable[[], Mapping[tuple[str, ...], float]],
    left: Callable[[str], Mapping[tuple[str, ...], float]],
) -> None:
    """Let `metrics` show how far tables are behind their sources."""
    labels = ("table", "mode")
    metrics.gauge(
        "dataset_acceleration_refresh_lag_ms",
        "How long ago the source was looked at whose rows a table has, as this scheduler last saw it.",
        labels,
        lags,
    )
    metrics.gauge(
        "dataset_acceleration_refresh_lag_bytes",
        "Bytes of a source's log that a table which follows it lacks, at the scheduler that reads.",
        labels,
        partial(left, "lag_bytes"),
    )
    metrics.gauge(
        "dataset_acceleration_refresh_lag_rows",
        "Changed rows of a source that a table which follows it lacks, where the source counts them.",
        labels,
        partial(left, "lag_rows"),
    )


def _alone(value: Callable[[], float]) -> dict[tuple[str, ...], float]:
    return {(): value()}


def _partitions(core: SchedulerCore) -> dict[tuple[str, ...], float]:
    rows = core.tables()
    states = ("partitions", "all"), ("serving", "serving")
    return {(row["table"], state): float(row[field]) for row in rows for field, state in states}
