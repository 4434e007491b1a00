"""Which part of a column conditions keep that compare it with constants, where it is known how its values lie.

For estimates: what is not understood is not told, and a month has as many days as the mean of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import BallistaError
from ballista_py.sql.bind.query import ColumnId, Draft, Expr, Scan, column_id
from ballista_py.sql.estimate.column_ranges import Spread, position_of
from ballista_py.sql.prune.partitions import InexactError, constant

Ends: TypeAlias = tuple[float | None, float | None]
_NO_CONSTANT = (InexactError, BallistaError, pa.ArrowException, OverflowError, TypeError, ValueError)
_BELOW, _ABOVE = (exp.LT, exp.LTE), (exp.GT, exp.GTE)
_DAYS = {
    "SECOND": 1 / 86_400, "MINUTE": 1 / 1_440, "HOUR": 1 / 24, "DAY": 1.0, "WEEK": 7.0, "MONTH": 30.44,
    "QUARTER": 91.31, "YEAR": 365.24,
}  # fmt: skip


def share_of_ranges(conjuncts: Iterable[Expr], draft: Draft) -> tuple[float, list[Expr]]:
    """The share of rows that conditions on ranges of columns keep together, and the other conjuncts."""
    ends: dict[ColumnId, Ends] = {}
    spreads: dict[ColumnId, Spread] = {}
    others: list[Expr] = []
    for conjunct in conjuncts:
        found = _range_of(conjunct.unnest(), draft)
        if found is None:
            others.append(conjunct)
            continue
        name, spreads[name], (low, high) = found[0], found[1], found[2]
        before = ends.get(name, (None, None))
        ends[name] = _later(before[0], low), _earlier(before[1], high)
    share = 1.0
    for name, (low, high) in ends.items():
        share *= spreads[name].share(low, high)
    return share, others


def _range_of(node: Expr, draft: Draft) -> tuple[ColumnId, Spread, Ends] | None:
    if isinstance(node, exp.Between):
        return _told(node.this, node.args["low"], node.args["high"], draft)
    if not isinstance(node, (*_BELOW, *_ABOVE)):
        return None
    left, right = node.this, node.expression
    below = isinstance(node, _BELOW)
    if isinstance(left.unnest(), exp.Column):
        return _told(left, None, right, draft) if below else _told(left, right, None, draft)
    return _told(right, left, None, draft) if below else _told(right, None, left, draft)


def _told(node: Expr, low: Expr | None, high: Expr | None, draft: Draft) -> tuple[ColumnId, Spread, Ends] | None:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        return None
    name = column_id(node)
    source = draft.sources.get(name[0])
    if source is None or not isinstance(source.relation, Scan):
        return None
    table = source.relation.table
    spread = draft.catalog.spread(table.name, name[1])
    if spread is None:
        return None
    kind = table.schema.field(name[1]).type
    try:
        return name, spread, (_position(low, kind), _position(high, kind))
    except _NO_CONSTANT:
        return None


def _position(node: Expr | None, kind: pa.DataType) -> float | None:
    if node is None:
        return None
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression.unnest(), exp.Interval):
        start = _position(node.this, kind)
        days = _days_of(node.expression.unnest())
        if start is None:
            raise InexactError
        return start + days if isinstance(node, exp.Add) else start - days
    found = position_of(constant(node, kind))
    if found is None:
        raise InexactError
    return found


def _days_of(interval: Expr) -> float:
    number, unit = interval.args.get("this"), interval.args.get("unit")
    days = None if unit is None else _DAYS.get(unit.name.upper().removesuffix("S"))
    if not isinstance(number, exp.Literal) or days is None:
        raise InexactError
    return float(number.name) * days


def _later(one: float | None, other: float | None) -> float | None:
    return max((end for end in (one, other) if end is not None), default=None)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((end for end in (one, other) if end is not None), default=None)
