"""The rows of the `runtime` tables that a scheduler knows itself: nodes, tables, partitions and its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import fields, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.jobs.service import JobService, job_row
from ballista_py.coordinator.queries.runtime_tables import RuntimeTables, history_rows, jobs_rows
from ballista_py.node.config import NodeConfig
from ballista_py.node.scheduler.core import SchedulerCore, view_row
from ballista_py.node.status.tasks import Tasks
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import HeldPartitions, TaskRecord
from ballista_py.transport.control.service import MAX_TASKS
from ballista_py.work import current_client

Histories = Callable[[Sequence[SchedulerInfo], Mapping[str, str]], list[TaskRecord]]
"""The last tasks of these schedulers and of these executors, by instance; of all of them, or an error."""
HIDDEN_SETTINGS = frozenset(("store_options", "spark_conf", "spark_remote"))  # endpoints with keys in them
SET = "set"


@frozen
class RuntimeRows:
    """What a scheduler says of the cluster, as its store and the heartbeats have it now."""

    core: SchedulerCore
    config: NodeConfig

    def nodes(self) -> list[dict[str, Any]]:
        """Every member; `heard` says whether this scheduler hears it itself."""
        known = {heartbeat.executor.instance_id for heartbeat in self.core.registry.newest()}
        known.add(self.core.membership.instance_id)
        return [{**row, "heard": row["instance_id"] in known} for row in self.core.members()]

    def tables(self) -> list[dict[str, Any]]:
        """As `_tables`, those that are the business of who asks."""
        return self.core.seen(self._tables(), "table_name")

    def partitions(self) -> list[dict[str, Any]]:
        """As `_partitions`, those that are the business of who asks."""
        return self.core.seen(self._partitions(), "table_name")

    def _tables(self) -> Iterator[dict[str, Any]]:
        """Every table, how far it is served and how large its partitions say that they are; then every view."""
        view, held = self.core.view(), self.core.registry.held()
        status = {row["table"]: row for row in self.core.tables()}
        for name, table in sorted(view.catalog.tables.items()):
            sizes = _sizes(view, name, held)
            yield {
                **status.get(name, {}),
                "table_name": name,
                "source": None if table.source is None else str(table.source.get("format", "")),
                "file_format": table.file_format,
                "primary_key": list(table.primary_key),
                "rows": sum(rows for rows, _ in sizes.values()),
                "bytes": sum(size for _, size in sizes.values()),
                "revision": view.catalog.maps[name].revision,
                **_followed(status.get(name, {})),
            }
        yield from ({**row, "table_name": row["table"]} for row in self.core.scanned())
        for one in sorted(view.sql_views.values(), key=lambda found: found.name):
            yield {**view_row(one), "table_name": one.name}

    def _partitions(self) -> Iterator[dict[str, Any]]:
        """Every partition: who owns it, who holds copies, and what its owner says of it."""
        view, held = self.core.view(), self.core.registry.held()
        for name, table in sorted(view.catalog.tables.items()):
            pmap, sizes = view.catalog.maps[name], _sizes(view, name, held)
            states = _states(held, table.folder)
            for partition in pmap.ids().tolist():
                owner, target = pmap.owner(partition), pmap.target(partition)
                rows, size = sizes.get(partition, (None, None))
                yield {
                    "table_name": name,
                    "partition": partition,
                    "path": pmap.path(partition),
                    "owner": owner and owner[0],
                    "target": target and target[0],
                    "state": "unassigned" if owner is None else states.get((owner, partition), "loading"),
                    "replicas": [replica[0] for replica in pmap.owners(partition)[1:]],
                    "epoch": pmap.epoch(partition),
                    "rows": rows,
                    "bytes": size,
                    "revision": pmap.revision,
                }

    def settings(self) -> Iterator[dict[str, Any]]:
        """What this scheduler was told at its start; of files only that they are set, of secrets nothing."""
        for attribute in fields(NodeConfig):
            name, value = attribute.name, getattr(self.config, attribute.name)
            if name in HIDDEN_SETTINGS or name.endswith("_options"):
                continue
            if name.endswith("_file") and value is not None:
                value = SET
            yield {"node_id": self.config.node_id, "name": name, "value": None if value is None else _text(value)}


def _followed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the refreshes and retentions of a table."""
    refresh, retention = row.get("refresh") or {}, row.get("retention") or {}
    return {
        "refresh_mode": refresh.get("mode"),
        "refresh_every": refresh.get("every"),
        "refresh_at": _moment(refresh.get("last_at_ms")),
        "refresh_took_ms": refresh.get("last_took_ms"),
        "refresh_rows": refresh.get("last_rows"),
        "refresh_error": refresh.get("last_error"),
        "refresh_next_at": _moment(refresh.get("next_at_ms")),
        "refresh_lag_ms": refresh.get("lag_ms"),
        "retention_sql": retention.get("sql"),
        "retention_every": retention.get("every"),
        "retention_at": _moment(retention.get("last_at_ms")),
        "retention_rows": retention.get("last_rows"),
        "retention_error": retention.get("last_error"),
    }


def _moment(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms * 1_000


def runtime_tables(
    core: SchedulerCore,
    config: NodeConfig,
    tasks: Tasks,
    histories: Histories,
    jobs: Callable[[], JobService],
) -> RuntimeTables:
    """The tables of a scheduler, with the history of all nodes by way of `histories`.

    Of `jobs` those are shown that are of the client whose statement asks.
    """
    rows = RuntimeRows(core, config)

    def own() -> Sequence[TaskRecord]:
        return tasks.seen(MAX_TASKS, current_client())

    def of_all() -> list[TaskRecord]:
        executors = {instance_id: executor_id for executor_id, instance_id in core.view().members}
        client = current_client()
        return [*own(), *tasks.shown_of(histories(core.membership.peers(), executors), client)]

    return RuntimeTables(
        {
            "task_history": lambda: history_rows(of_all()),
            "local_task_history": lambda: history_rows(own()),
            "nodes": rows.nodes,
            "partitions": rows.partitions,
            "tables": rows.tables,
            "jobs": lambda: jobs_rows(map(job_row, jobs().of_client(current_client()))),
            "settings": rows.settings,
        }
    )


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one}" for key, one in sorted(value.items()))
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


Held = Mapping[tuple[str, str], tuple[HeldPartitions, ...]]


def _sizes(view: ClusterView, table: str, held: Held) -> dict[int, tuple[int, int]]:
    """Rows and bytes of each partition, as its owner reports them."""
    folder, pmap = view.catalog.tables[table].folder, view.catalog.maps[table]
    found: dict[int, tuple[int, int]] = {}
    for member, reports in held.items():
        for report in reports:
            if report.table == folder and len(report.rows) == len(report.active):
                for partition, rows, size in zip(report.active, report.rows, report.bytes, strict=False):
                    if partition < len(pmap) and pmap.owner(partition) == member:
                        found[partition] = rows, size
    return found


def _states(held: Held, folder: str) -> dict[tuple[tuple[str, str], int], str]:
    found: dict[tuple[tuple[str, str], int], str] = {}
    for member, reports in held.items():
        for report in reports:
            if report.table == folder:
                for state, members in (
                    ("serving", report.active),
                    ("loaded", report.loaded),
                    ("failed", report.failed),
                ):
                    found.update({(member, partition): state for partition in members})
    return found
