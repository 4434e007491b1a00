"""The gauges that nodes of both roles have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import Tasks

_OWN: Mapping[str, bool] = {"of_node": True}


def observe_node(metrics: NodeMetrics, tasks: Tasks, budget: MemoryBudget, ready: Callable[[], bool]) -> None:
    """Let `metrics` show whether the node may serve, what it is at, and what that has reserved."""
    metrics.gauge(
        "node_status",
        "Whether the node may serve: 1 while its lease is valid.",
        (),
        lambda: {(): float(ready())},
        **_OWN,
    )
    metrics.gauge(
        "node_tasks_active",
        "Statements, changes, legs and writes that run now.",
        (),
        lambda: {(): float(tasks.running())},
        adds_up=True,
        **_OWN,
    )
    metrics.gauge(
        "node_memory_reserved_bytes",
        "Bytes of memory that statements reserved or wait for, and all that there are.",
        ("state",),
        budget.shown,
    )
