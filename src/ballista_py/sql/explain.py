"""A query plan in words for people and as a dict for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ballista_py.partitions.scanned_table import AT
from ballista_py.sql.plan import Fragment, FragmentTable, Leg, LegProgress, LegTable, QueryPlan

Measured = Mapping[tuple[str, str], LegProgress]
"""What legs really gave, by fragment and executor id."""
NOTHING_RAN: Measured = {}


def plan_as_dict(plan: QueryPlan, legs: Sequence[Leg], measured: Measured = NOTHING_RAN) -> dict[str, Any]:
    """JSON-ready values: `fragments` with their tables and legs, `broadcasts`, `merge_sql`, `output`, `notes`.

    Legs that are in `measured` say under `ran` what they gave.
    """
    return {
        "sql": plan.sql,
        "output": [{"name": column.name, "type": str(column.type)} for column in plan.output],
        "fragments": [_fragment(fragment, legs, measured) for fragment in plan.fragments],
        "broadcasts": [
            {
                "name": one.name,
                "sql": one.sql,
                "fragments": list(one.fragments),
                "broadcasts": list(one.uses),
                "estimated_bytes": one.estimated_bytes,
            }
            for one in plan.broadcasts
        ],
        "merge_sql": plan.merge_sql,
        "notes": list(plan.notes),
    }


def explain_text(plan: QueryPlan, legs: Sequence[Leg], measured: Measured = NOTHING_RAN) -> str:
    """The plan as indented text: what is read where, under which SQL, and what the merge does."""
    lines: list[str] = []
    for fragment in plan.fragments:
        lines.append(f"fragment {fragment.name}, about {fragment.estimated_bytes:,} bytes")
        lines += [f"  {_table_line(table)}" for table in fragment.tables]
        if fragment.uses:
            lines.append(f"  with {', '.join(fragment.uses)} sent along")
        lines.append(f"  sql: {fragment.sql}")
        own = [leg for leg in legs if leg.fragment == fragment.name]
        lines.append(f"  {len(own)} leg{'' if len(own) == 1 else 's'}")
        for leg in (one for one in own if not one.scans):
            parts = ", ".join(f"{t.table} {_ranges(t.partitions)}{_copies(t, leg)}" for t in leg.tables)
            ran = measured.get((fragment.name, leg.executor_id))
            gave = f" gave {ran.rows:,} rows, {ran.bytes:,} bytes in {ran.took_ms:.0f} ms" if ran else ""
            lines.append(f"    {leg.executor_id}: {parts}{gave}")
        lines += _tasks(fragment.name, own, measured)
    for one in plan.broadcasts:
        lines.append(
            f"broadcast {one.name}, about {one.estimated_bytes:,} bytes, from {', '.join(one.fragments or one.uses)}"
        )
        lines.append(f"  sql: {one.sql}")
    lines.append(f"merge: {plan.merge_sql}" if plan.merge_sql else "merge: none, the legs' rows are the answer")
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _leg(leg: Leg, measured: Measured) -> dict[str, Any]:
    ran = measured.get((leg.fragment, leg.executor_id))
    if ran is None:
        return leg.to_json(shown=True)
    return {**leg.to_json(shown=True), "ran": {"rows": ran.rows, "bytes": ran.bytes, "took_ms": ran.took_ms}}


def _fragment(fragment: Fragment, legs: Sequence[Leg], measured: Measured) -> dict[str, Any]:
    return {
        "name": fragment.name,
        "sql": fragment.sql,
        "tables": [
            {
                "table": t.table,
                "partitions": list(t.partitions),
                "total": t.total,
                "replicated": t.whole,
                "pruned_by": t.pruned_by,
            }
            for t in fragment.tables
        ],
        "broadcasts": list(fragment.uses),
        "merged": fragment.merged,
        "estimated_bytes": fragment.estimated_bytes,
        "legs": [_leg(leg, measured) for leg in legs if leg.fragment == fragment.name],
    }


def _table_line(table: FragmentTable) -> str:
    if AT in table.table:
        return f"{table.table}: scanned where it lies"
    if table.whole:
        return f"{table.table}: replicated, read whole by each leg"
    by = f", pruned by {table.pruned_by}" if table.pruned_by else ""
    return f"{table.table}: {len(table.partitions)} of {table.total} partitions{by}"


def _copies(table: LegTable, leg: Leg) -> str:
    """How many of the partitions are read at a replica, and how old those may be."""
    if not table.at_replicas:
        return ""
    return f" ({table.at_replicas} at replicas, at most {leg.max_replica_lag_ms:g} ms old)"


def _tasks(fragment: str, legs: Sequence[Leg], measured: Measured) -> list[str]:
    """The tasks of each executor, a line each."""
    found: dict[str, list[tuple[int, int]]] = {}
    for leg in legs:
        for tasks in leg.scans.values():
            found.setdefault(leg.executor_id, []).extend((len(task.files), task.cost) for task in tasks)
    lines = []
    for name, own in sorted(found.items()):
        ran = measured.get((fragment, name))
        gave = f" gave {ran.rows:,} rows, {ran.bytes:,} bytes in {ran.took_ms:.0f} ms" if ran else ""
        files, size = sum(count for count, _ in own), sum(cost for _, cost in own)
        shown = f"{len(own)} task{'' if len(own) == 1 else 's'} of {files} file{'' if files == 1 else 's'}"
        lines.append(f"    {name or 'this scheduler'}: {shown}, {size:,} bytes{gave}")
    return lines


def _ranges(partitions: Sequence[int]) -> str:
    """`[1-3, 7]` for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for partition in sorted(partitions):
        if runs and partition == runs[-1][1] + 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return "[" + ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) + "]"
