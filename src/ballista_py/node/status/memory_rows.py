"""What nodes have reserved, hold in their caches and have spilled, by their own metrics: a row for each node."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ballista_py.node.http.feed import Part

EVERY_MS = 2_900.0
_LINE = re.compile(rb"([a-z_]+)(?:\{([^}]*)\})? ([0-9.eE+-]+)")
_LABEL = re.compile(rb'(?:state|outcome)="([a-z_]{1,32})"')
# Where each value stands in a row: by the name of its metric, and of its label if it has one that tells values apart.
_NAMES = {
    b"node_memory_reserved_bytes": "memory",
    b"node_spill_bytes": "spill_bytes",
    b"executor_cache_bytes": "cache_bytes",
    b"executor_cache_files_total": "cache_files",
    b"executor_load_bytes_total": "load",
    b"executor_tasks_active": "active",
    b"executor_task_slots": "slots",
    b"node_lease_remaining_ms": "lease_ms",
}
_BY_LABEL = frozenset(("memory", "cache_files", "load"))


def memory_part(rows: Callable[[], Iterable[dict[str, Any]]]) -> Part:
    """The part of a page that shows these rows."""
    return Part(name="memory", every_ms=EVERY_MS, make=lambda _: list(rows()))


def memory_row(node_id: str, role: str, metrics_text: bytes) -> dict[str, Any]:
    """The row of a node, of its metrics as Prometheus gets them. What they do not say is not in it.

    >>> memory_row("e1", "executor", b'node_memory_reserved_bytes{state="held"} 7.0')["memory"]
    {'held': 7}
    """
    row: dict[str, Any] = {"node_id": node_id, "role": role}
    for line in metrics_text.splitlines():
        if line.partition(b"{")[0].partition(b" ")[0] not in _NAMES:
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        name, value = _NAMES[found[1]], int(float(found[3]))
        label = _LABEL.search(found[2] or b"")
        if name not in _BY_LABEL:
            row[name] = value
        elif label is not None:
            row.setdefault(name, {})[label[1].decode()] = value
    return row
