"""A plan as a drawing: fragments with their tables and legs on the left, broadcasts and the merge on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _LINE, _PAD, _GAP = 420, 18, 10, 24
_LINE_CHARACTERS = 62


class ExplainedPlan(dict[str, Any]):
    """A plan as `plan_as_dict` gives it, with the same in words under `text`; notebooks show it as a drawing."""

    def __str__(self) -> str:
        return str(self.get("text", ""))

    def _repr_html_(self) -> str:
        return plan_svg(self)


def plan_svg(plan: Mapping[str, Any]) -> str:
    """The plan as an SVG element, for people to look at.

    >>> plan = {"fragments": [], "broadcasts": [], "merge_sql": "select 1", "notes": []}
    >>> plan_svg(plan)[:4], "select 1" in plan_svg(plan)
    ('<svg', True)
    """
    left = {f["name"]: _fragment_lines(f) for f in plan["fragments"]}
    right = {b["name"]: [f"broadcast {b['name']}", *_wrapped(b["sql"])] for b in plan["broadcasts"]}
    merge = _wrapped(plan["merge_sql"]) if plan["merge_sql"] else ["none: the legs' rows are the answer"]
    right["merge"] = ["merge", *merge, *(line for note in plan["notes"] for line in _wrapped(f"note: {note}"))]
    places = {**_column(left, 0), **_column(right, _WIDTH + 90)}
    edges = [(name, b["name"]) for b in plan["broadcasts"] for name in (*b["fragments"], *b["broadcasts"])]
    edges += [(name, f["name"]) for f in plan["fragments"] for name in f["broadcasts"]]
    edges += [(f["name"], "merge") for f in plan["fragments"] if f["merged"]]
    height = max(y + h for _, y, h in places.values()) + _PAD
    drawn = [_edge(places[start], places[end]) for start, end in edges]
    drawn += [_box(places[name], lines) for name, lines in {**left, **right}.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _WIDTH + 110}" height="{height}" '
        f'font-family="monospace" font-size="11">{"".join(drawn)}</svg>'
    )


def _fragment_lines(fragment: Mapping[str, Any]) -> list[str]:
    lines = [f"fragment {fragment['name']}, about {fragment['estimated_bytes']:,} bytes"]
    for table in fragment["tables"]:
        read = "whole" if table["replicated"] else f"{len(table['partitions'])} of {table['total']} partitions"
        lines += _wrapped(
            f"{table['table']}: {read}" + (f" by {table['pruned_by']}" if table["pruned_by"] else "")
        )
    lines += _wrapped(fragment["sql"])
    for leg in fragment["legs"]:
        ran = leg.get("ran")
        took = f": {ran['rows']:,} rows, {ran['bytes']:,} bytes, {ran['took_ms']:.0f} ms" if ran else ""
        lines.append(f"leg on {leg['executor_id']}{took}")
    return lines


def _wrapped(text: str) -> list[str]:
    lines = [text[start : start + _LINE_CHARACTERS] for start in range(0, len(text), _LINE_CHARACTERS)]
    return lines if len(lines) <= 6 else [*lines[:6], "…"]


def _column(boxes: Mapping[str, Sequence[str]], x: int) -> dict[str, tuple[int, int, int]]:
    """The x, y and height of each box of one column."""
    places, y = {}, _PAD
    for name, lines in boxes.items():
        height = len(lines) * _LINE + 2 * _PAD
        places[name] = (x + _PAD, y, height)
        y += height + _GAP
    return places


def _box(place: tuple[int, int, int], lines: Sequence[str]) -> str:
    x, y, height = place
    texts = "".join(
        f'<text x="{x + _PAD}" y="{y + _PAD + _LINE * (number + 1) - 6}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    rectangle = (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="6" fill="#f4f6f8" stroke="#5b6b7b"/>'
    )
    return rectangle + texts


def _edge(start: tuple[int, int, int], end: tuple[int, int, int]) -> str:
    forward = start[0] < end[0]
    x1, x2 = (start[0] + _WIDTH, end[0]) if forward else (start[0], end[0] + _WIDTH)
    y1, y2 = start[1] + start[2] // 2, end[1] + end[2] // 2
    return f'<path d="M{x1},{y1} L{x2},{y2}" stroke="#5b6b7b" fill="none"/><circle cx="{x2}" cy="{y2}" r="3"/>'
