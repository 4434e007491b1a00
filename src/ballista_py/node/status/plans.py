"""How a statement runs, small enough to be kept and to be drawn: its plan, and what each leg has given so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ballista_py.coordinator.queries.running_statement import Running
from ballista_py.node.status.tasks import MAX_TEXT_CHARS, shown_text
from ballista_py.sql.plan import Broadcast, Fragment, Leg, LegProgress

MAX_LEGS = 64  # of one statement; `stats` says how many there are
MAX_PARTS = 32  # fragments, and broadcasts
MAX_NOTES = 8
_READ_CHARS = 4 * MAX_TEXT_CHARS  # as much as `shown_text` looks at
_NOTHING = LegProgress(rows=0, bytes=0, took_ms=0.0)


def plan_of(running: Running, stats: Mapping[str, Any]) -> dict[str, Any]:
    """The plan, JSON-ready, with its texts as they are: `shown_plan` is for other eyes."""
    given: dict[int, LegProgress] = {
        id(leg): progress
        for legs, stream in zip(running.of_streams, running.streams, strict=False)
        for leg, progress in zip(legs, stream.progress, strict=False)
    }
    plan = running.plan
    return {
        "fragments": [_fragment(fragment) for fragment in plan.fragments[:MAX_PARTS]],
        "broadcasts": [_broadcast(one) for one in plan.broadcasts[:MAX_PARTS]],
        "legs": [_leg(leg, given.get(id(leg), _NOTHING)) for leg in running.legs[:MAX_LEGS]],
        "merge_sql": None if plan.merge_sql is None else plan.merge_sql[:_READ_CHARS],
        "merge_uses": list(plan.merge_uses[:MAX_PARTS]),
        "notes": [note[:_READ_CHARS] for note in plan.notes[:MAX_NOTES]],
        "stats": dict(stats),
    }


def shown_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan as clients see it: texts are cut, with `***` in place of what looks like a secret.

    >>> shown_plan({"merge_sql": "select secret_key = 'abc'", "notes": []})["merge_sql"]
    "select secret_key = '***'"
    """
    return {
        **plan,
        "merge_sql": None if plan["merge_sql"] is None else shown_text(plan["merge_sql"]),
        "notes": [shown_text(note) for note in plan["notes"]],
        **{part: _shown(plan[part]) for part in ("fragments", "broadcasts") if part in plan},
    }


def leg_progress(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How far each leg of a plan is, without its texts."""
    names = ("fragment", "executor_id", "rows", "bytes", "took_ms", "ended")
    return [{name: leg[name] for name in names} for leg in plan["legs"]]


def _shown(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**part, "sql": shown_text(part["sql"])} for part in parts]


def _fragment(fragment: Fragment) -> dict[str, Any]:
    tables = [
        {"table": one.table, "partitions": len(one.partitions), "total": one.total, "whole": one.whole}
        for one in fragment.tables[:MAX_PARTS]
    ]
    return {
        "name": fragment.name,
        "sql": fragment.sql[:_READ_CHARS],
        "tables": tables,
        "uses": list(fragment.uses),
        "merged": fragment.merged,
        "estimated_bytes": fragment.estimated_bytes,
    }


def _broadcast(broadcast: Broadcast) -> dict[str, Any]:
    return {
        "name": broadcast.name,
        "sql": broadcast.sql[:_READ_CHARS],
        "fragments": list(broadcast.fragments),
        "uses": list(broadcast.uses),
        "estimated_bytes": broadcast.estimated_bytes,
    }


def _leg(leg: Leg, given: LegProgress) -> dict[str, Any]:
    return {
        "fragment": leg.fragment,
        "executor_id": leg.executor_id,
        "partitions": sum(len(table.partitions) for table in leg.tables),
        "rows": given.rows,
        "bytes": given.bytes,
        "took_ms": given.took_ms,
        "ended": given.ended,
    }
