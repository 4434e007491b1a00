"""What the page of a scheduler shows of the cluster: as its store, the heartbeats and the other nodes say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from ballista_py.coordinator.jobs.service import JobService, job_row
from ballista_py.node.http.feed import Part
from ballista_py.node.running import Foundation
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.node.scheduler.runtime_rows import Histories, RuntimeRows
from ballista_py.node.status.memory_rows import memory_part, memory_row
from ballista_py.node.status.seen_tables import table_seen_by
from ballista_py.state.members.control import NodeReport
from ballista_py.work import current_client

NODES_MS = 1_900.0  # between two looks
TABLES_MS = 2_900.0
JOBS_MS = 3_900.0
ELSEWHERE_MS = 2_900.0
MAX_TABLES = 200  # with their partitions, on one page
MAX_NAMED = 2_000  # further ones, which a filter finds by their names
MAX_PARTITIONS = 8_192
MAX_JOBS = 100
MAX_ELSEWHERE = 100
MAX_ASKED = 64  # executors, for their memory
_NAMED = ("table_name", "group", "partitions", "serving", "ready")
_CELL = ("partition", "path", "owner", "state", "rows", "bytes", "replicas", "target", "epoch")

Reports = Callable[[Sequence[str]], Mapping[str, NodeReport]]


def scheduler_parts(
    ground: Foundation,
    core: SchedulerCore,
    histories: Histories,
    reports: Reports,
    jobs: Callable[[], JobService],
) -> list[Part]:
    """The parts that a scheduler has beside its own tasks. Nobody asks the store for them while nobody looks."""
    page = _PageRows(ground=ground, core=core, histories=histories, reports=reports, jobs=jobs)
    return [
        Part(name="nodes", every_ms=NODES_MS, make=lambda _: page.nodes()),
        Part(name="tables", every_ms=TABLES_MS, make=page.tables, differs=True),
        Part(name="elsewhere", every_ms=ELSEWHERE_MS, make=page.elsewhere, differs=True),
        Part(name="jobs", every_ms=JOBS_MS, make=lambda _: page.own_jobs(), of_client=True),
        memory_part(page.memory),
    ]


@frozen(kw_only=True)
class _PageRows:
    ground: Foundation
    core: SchedulerCore
    histories: Histories
    reports: Reports
    jobs: Callable[[], JobService]

    @property
    def _rows(self) -> RuntimeRows:
        return RuntimeRows(self.core, self.ground.config)

    def nodes(self) -> dict[str, Any]:
        """The members, how long each was silent towards this scheduler, and how long its own lease lasts."""
        now_ms = self.ground.runtime.monotonic_ms()
        heard = self.core.registry.heard_ms()
        known = {one.executor.instance_id: one.executor for one in self.core.registry.newest()}
        own = self.core.membership.instance_id
        rows = []
        for row in self._rows.nodes():
            instance, executor = row["instance_id"], known.get(row["instance_id"])
            rows.append(
                {
                    **row,
                    "silent_ms": 0 if instance == own else now_ms - heard[instance] if instance in heard else None,
                    "engine": None if executor is None else executor.engine,
                    "draining": executor is not None and executor.capacity == 0,
                }
            )
        return {
            "nodes": rows,
            "lease_ms": self.core.membership.remaining_ms(),
            "ttl_ms": self.ground.config.ttl_ms,
        }

    def tables(self, client: str | None) -> dict[str, Any]:
        """The tables, each with its partitions as arrays of `cells`, in the order of `columns`; those not ready come
        first where there are too many. The `others` are arrays in the order of `named`, `totals` are of them all.
        """
        rows = [table_seen_by(row, client) for row in self._rows.tables()]
        first = sorted(rows, key=lambda row: (row.get("ready", False), row["table_name"]))[:MAX_TABLES]
        shown = {
            row["table_name"]: {**row, "cells": []} for row in sorted(first, key=lambda row: row["table_name"])
        }
        others = [row for row in rows if row["table_name"] not in shown]
        totals = {name: sum(row.get(name) or 0 for row in rows) for name in ("partitions", "serving")}
        count = 0
        for row in self._rows.partitions():
            table = shown.get(row["table_name"])
            if table is not None and count < MAX_PARTITIONS:
                count += 1
                table["cells"].append([row[name] for name in _CELL])
        return {
            "columns": _CELL,
            "tables": list(shown.values()),
            "named": _NAMED,
            "others": [[row.get(name) for name in _NAMED] for row in others[:MAX_NAMED]],
            "totals": {**totals, "tables": len(rows)},
        }

    def elsewhere(self, client: str | None) -> list[dict[str, Any]]:
        """What the other schedulers do and did last. Raises `TransportError` naming those that do not say."""
        found = self.histories(self.core.membership.peers(), {})
        newest = sorted(found, key=lambda task: -task.started_at_ms)
        return [asdict(task) for task in self.ground.tasks.shown_of(newest[:MAX_ELSEWHERE], client)]

    def own_jobs(self) -> list[dict[str, Any]]:
        """The last jobs of the client that looks."""
        return [job_row(job) for job in self.jobs().of_client(current_client())[:MAX_JOBS]]

    def memory(self) -> list[dict[str, Any]]:
        """This node and its executors; those that do not answer are rows without values."""
        own = {state: int(size) for (state,), size in self.ground.budget.shown().items()}
        config = self.ground.config
        rows: list[dict[str, Any]] = [
            {
                "node_id": config.node_id,
                "role": config.node_role,
                "memory": own,
                "spill_bytes": self.ground.spilled(),
            }
        ]
        asked = [one.executor for one in self.core.registry.newest()][:MAX_ASKED]
        reports = self.reports([executor.instance_id for executor in asked])
        for executor in sorted(asked, key=lambda one: one.executor_id):
            report = reports.get(executor.instance_id)
            text = b"" if report is None else report.metrics_text
            rows.append({**memory_row(executor.executor_id, "executor", text), "answered": report is not None})
        return rows
