"""What the HTTP port says of a cluster, as classes: answers are made of them, and so is the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen


@frozen(kw_only=True)
class Health:
    """A node that answers."""

    node_id: str
    role: str
    healthy: bool


@frozen(kw_only=True)
class Ready:
    """Whether a node serves."""

    node_id: str
    role: str
    ready: bool


@frozen(kw_only=True)
class Column:
    """A column of a table, with its Arrow type."""

    name: str
    type: str


@frozen(kw_only=True)
class Retained:
    """How the retention of a table stands; times are ms since 1970."""

    sql: str
    every: str
    slot: int
    running: str | None
    last_at_ms: int | None
    last_took_ms: float | None
    last_rows: int | None
    last_skipped: bool
    last_error: str | None
    next_at_ms: int | None
    asked: int
    answered: int


@frozen(kw_only=True)
class Refreshed:
    """How refreshes of a table from its source stand; times are ms since 1970.

    `lag_ms` is how long ago the source was looked at whose rows the table has.
    """

    mode: str
    every: str | None
    time_column: str | None
    lag_ms: float | None
    slot: int
    running: str | None
    last_at_ms: int | None
    last_took_ms: float | None
    last_rows: int | None
    last_skipped: bool
    last_error: str | None
    next_at_ms: int | None
    asked: int
    answered: int


@frozen(kw_only=True)
class Dataset:
    """A table, and how far its partitions are served; `failed` says by partition why not.

    How many partitions there are is not said of a table of which policies hide something.
    """

    name: str
    distribution: str
    partition_by: list[str]
    group: str | None
    columns: list[Column]
    partitions: int | None
    serving: int | None
    ready: bool
    failed: dict[str, str]
    refresh: Refreshed | None
    retention: Retained | None


@frozen(kw_only=True)
class Node:
    """A member of the cluster; `partitions` is how many it owns."""

    node_id: str
    role: str
    address: str
    instance_id: str
    partitions: int


@frozen(kw_only=True)
class ShownTask:
    """A statement or leg that runs, or one of the last that ended."""

    node_id: str
    task_id: str
    kind: str
    text: str
    started_at_ms: int
    took_ms: float
    rows: int
    outcome: str
    trace_id: str
    span_id: str
    parent_span_id: str
    error_message: str
    user: str
    job_id: str
    bytes: int
    engine: str
    labels: Mapping[str, str]


@frozen(kw_only=True)
class ShownPlan:
    """How a statement runs: fragments with their tables, broadcasts, what the merge does; each leg and what it gave."""

    fragments: list[dict[str, Any]]
    broadcasts: list[dict[str, Any]]
    legs: list[dict[str, Any]]
    merge_sql: str | None
    merge_uses: list[str]
    notes: list[str]
    stats: dict[str, Any]


@frozen(kw_only=True)
class Told:
    """How many executors were told to look at what is stored."""

    executors: int


@frozen(kw_only=True)
class Cancelled:
    """A statement that was asked to end."""

    task_id: str


@frozen(kw_only=True)
class HttpError:
    """What happened and the way out, and the code of `errors.py`."""

    error: str
    code: str


def dataset(row: Mapping[str, Any]) -> Dataset:
    """A row of `SchedulerCore.tables`."""
    return Dataset(
        name=row["table"],
        distribution=row["distribution"],
        partition_by=list(row["partition_by"]),
        group=row["group"],
        columns=[Column(**column) for column in row["columns"]],
        partitions=row["partitions"],
        serving=row["serving"],
        ready=row["ready"],
        failed={str(partition): str(reason) for partition, reason in row["failed"].items()},
        refresh=None if row["refresh"] is None else Refreshed(**row["refresh"]),
        retention=None if row["retention"] is None else Retained(**row["retention"]),
    )


@frozen(kw_only=True)
class JobFailure:
    """Why a job failed."""

    code: str
    message: str


@frozen(kw_only=True)
class Job:
    """A job of this client: PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED or CLOSED. Times are ms since 1970."""

    job_id: str
    name: str
    state: str
    sql: str
    dialect: str | None
    engine: str | None
    priority: int
    scheduler: str
    attempt: int
    chunks: int
    rows: int
    bytes: int
    outcome: str
    error: JobFailure | None
    submitted_at_ms: int
    started_at_ms: int
    ended_at_ms: int


def job(row: Mapping[str, Any]) -> Job:
    """A job, of what `coordinator.jobs.service.job_row` says of it."""
    error = row["error"]
    return Job(**{**row, "error": None if error is None else JobFailure(**error)})
