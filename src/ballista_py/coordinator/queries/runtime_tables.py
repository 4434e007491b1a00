"""The tables of the schema `runtime`: what the cluster does and did, as rows for every way into a scheduler.

What they hold is asked for when a query names them. Whoever may send statements may read them, as `members`, `tables`
and `tasks` (`docs/security.md`): the history shows the statements of everybody. Of jobs each client sees its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from attrs import Factory, frozen

from ballista_py.errors import SqlError
from ballista_py.sql.parse.table_names import SEEN
from ballista_py.state.members.control import TaskRecord

RUNNING = "running"
_TEXT, _LONG, _MOMENT = pa.string(), pa.int64(), pa.timestamp("us")
HISTORY = pa.schema(
    [
        *((name, _TEXT) for name in ("trace_id", "span_id", "parent_span_id", "task", "input", "captured_output")),
        ("start_time", _MOMENT),
        ("end_time", _MOMENT),
        ("execution_duration_ms", pa.float64()),
        ("error_message", _TEXT),
        ("labels", pa.map_(_TEXT, _TEXT)),
        *((name, _TEXT) for name in ("node_id", "user", "job_id")),
        ("rows", _LONG),
        ("bytes", _LONG),
        ("engine", _TEXT),
        ("outcome", _TEXT),
    ]
)
NODES = pa.schema(
    [
        *((name, _TEXT) for name in ("node_id", "role", "address", "instance_id")),
        ("partitions", _LONG),
        ("heard", pa.bool_()),
    ]
)
PARTITIONS = pa.schema(
    [
        ("table_name", _TEXT),
        ("partition", _LONG),
        *((name, _TEXT) for name in ("path", "owner", "target", "state")),
        ("replicas", pa.list_(_TEXT)),
        *((name, _LONG) for name in ("epoch", "rows", "bytes", "revision")),
    ]
)
TABLES = pa.schema(
    [
        ("table_name", _TEXT),
        ("distribution", _TEXT),
        ("partition_by", pa.list_(_TEXT)),
        *((name, _TEXT) for name in ("source", "file_format")),
        ("primary_key", pa.list_(_TEXT)),
        *((name, _LONG) for name in ("partitions", "serving")),
        ("ready", pa.bool_()),
        *((name, _LONG) for name in ("rows", "bytes", "revision")),
        *((name, _TEXT) for name in ("refresh_mode", "refresh_every")),
        ("refresh_at", _MOMENT),
        ("refresh_took_ms", pa.float64()),
        ("refresh_rows", _LONG),
        ("refresh_error", _TEXT),
        ("refresh_next_at", _MOMENT),
        ("refresh_lag_ms", pa.float64()),
        *((name, _TEXT) for name in ("retention_sql", "retention_every")),
        ("retention_at", _MOMENT),
        ("retention_rows", _LONG),
        ("retention_error", _TEXT),
    ]
)
JOBS = pa.schema(
    [
        *((name, _TEXT) for name in ("job_id", "name", "state", "sql", "dialect", "engine")),
        ("priority", _LONG),
        ("scheduler", _TEXT),
        *((name, _LONG) for name in ("attempt", "chunks", "rows", "bytes")),
        *((name, _TEXT) for name in ("outcome", "error_code", "error_message")),
        *((name, _MOMENT) for name in ("submitted_at", "started_at", "ended_at")),
    ]
)
SETTINGS = pa.schema([(name, _TEXT) for name in ("node_id", "name", "value")])
RUNTIME_SCHEMAS: Mapping[str, pa.Schema] = {
    f"{SEEN}.task_history": HISTORY,
    f"{SEEN}.local_task_history": HISTORY,
    f"{SEEN}.nodes": NODES,
    f"{SEEN}.partitions": PARTITIONS,
    f"{SEEN}.tables": TABLES,
    f"{SEEN}.jobs": JOBS,
    f"{SEEN}.settings": SETTINGS,
}
_US_PER_MS = 1_000

Rows = Callable[[], Iterable[Mapping[str, Any]]]


@frozen
class RuntimeTables:
    """The tables of a scheduler: by name without the schema, what gives their rows."""

    sources: Mapping[str, Rows] = Factory(dict)

    def schema(self, name: str) -> pa.Schema:
        """The columns of the table. Raises `SqlError` naming those that there are.

        >>> RuntimeTables().schema("runtime.settings").names
        ['node_id', 'name', 'value']
        """
        found = RUNTIME_SCHEMAS.get(name)
        if found is None:
            raise SqlError(f"Table '{name}' does not exist: there are {', '.join(RUNTIME_SCHEMAS)}")
        return found

    def table(self, name: str) -> pa.Table:
        """The rows as of now. Raises `SqlError`, and what its source raises."""
        schema = self.schema(name)
        rows = list(self.sources.get(name.partition(".")[2], tuple)())
        return pa.table(
            {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}
        )


def history_rows(tasks: Iterable[TaskRecord]) -> list[dict[str, Any]]:
    """The tasks as rows of `HISTORY`, those that started last first. What runs has no end."""
    return [_history_row(task) for task in sorted(tasks, key=lambda task: (-task.started_at_ms, task.span_id))]


def jobs_rows(jobs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Jobs, as `jobs.service.job_row` tells each, as rows of `JOBS`. What has not come yet is null."""
    return [_job_row(job) for job in jobs]


def _job_row(job: Mapping[str, Any]) -> dict[str, Any]:
    error = job["error"] or {}
    moments = ("submitted_at", "started_at", "ended_at")
    return {
        **job,
        "engine": job["engine"] or None,
        "scheduler": job["scheduler"] or None,
        "outcome": job["outcome"] or None,
        "error_code": error.get("code"),
        "error_message": error.get("message"),
        **{name: job[f"{name}_ms"] * _US_PER_MS if job[f"{name}_ms"] else None for name in moments},
    }


def _history_row(task: TaskRecord) -> dict[str, Any]:
    start_us = task.started_at_ms * _US_PER_MS
    is_over = task.outcome != RUNNING
    return {
        "trace_id": task.trace_id or None,
        "span_id": task.span_id or None,
        "parent_span_id": task.parent_span_id or None,
        "task": task.kind,
        "input": task.text,
        "captured_output": None,  # no node captures what a statement gives
        "start_time": start_us,
        "end_time": start_us + int(task.took_ms * _US_PER_MS) if is_over else None,
        "execution_duration_ms": task.took_ms,
        "error_message": task.error_message or None,
        "labels": sorted(task.labels.items()),
        "node_id": task.node_id,
        "user": task.user or None,
        "job_id": task.job_id or None,
        "rows": task.rows,
        "bytes": task.bytes,
        "engine": task.engine or None,
        "outcome": task.outcome,
    }
