"""Aggregates and functions of windows as those of a plan, so that DataFusion gives what the engine gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.kinds import decimal
from ballista_py.sql.substrait.written_expressions import BOOL, FP64, HUGE, I64, TermWriter, form
from ballista_py.sql.substrait.written_kinds import is_number
from ballista_py.sql.substrait.written_pieces import (
    RESULT,
    Term,
    again,
    cast_to,
    choice,
    field_ref,
    fill_call,
    float_of,
    known,
    whole_as,
)

_types = pa.types
_ALL, _DISTINCT = 1, 2
_ROWS, _RANGE = 1, 2
_NUMBERED: Mapping[type, str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_SHARED: Mapping[type, str] = {exp.PercentRank: "percent_rank", exp.CumeDist: "cume_dist"}
_NEIGHBOURS: Mapping[type, str] = {exp.Lag: "lag", exp.Lead: "lead"}
_ENDS: Mapping[type, str] = {exp.FirstValue: "first_value", exp.LastValue: "last_value"}
_AGGREGATES = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.AnyValue,
)  # fmt: skip


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, with its filter if it has one, and of no window."""
    inner = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(inner, exp.AggFunc):
        return False
    return not isinstance(node.parent, exp.Window | exp.Filter | exp.IgnoreNulls | exp.RespectNulls)


def add_measure(relation: Any, writer: TermWriter, node: exp.Expr, place: int) -> Term:
    """Add an aggregate to a relation, whose next field is at `place`; returns what it is over the relation's fields."""
    only: list[Term] = []
    if isinstance(node, exp.Filter):
        only.append(writer.condition(node.expression.this))
        node = node.this
    if isinstance(node, exp.Min | exp.Max) and not node.expressions:
        value = writer.value(node.this)
        if _types.is_floating(known(value)):
            return _float_extreme(relation, writer, isinstance(node, exp.Min), value, only, place)
    said = _measure(relation, writer, only)
    said.invocation = _DISTINCT if isinstance(node.this, exp.Distinct) else _ALL
    return field_ref(place, _aggregate(said, writer, node))


def _measure(relation: Any, writer: TermWriter, only: list[Term]) -> Any:
    measure = relation.measures.add()
    if only:
        measure.filter.CopyFrom((writer.call("and", only, BOOL) if len(only) > 1 else only[0]).message)
    measure.measure.phase, measure.measure.invocation = RESULT, _ALL
    return measure.measure


def _float_extreme(
    relation: Any, writer: TermWriter, least: bool, value: Term, only: list[Term], place: int
) -> Term:
    """The least or greatest float by those that are numbers and how many are NaN: NaN comes last.

    Among the values of a group DataFusion finds NaN, or does not.
    """
    kind, value = known(value), writer.settled(value)
    number = writer.call("lte", [value, float_of("inf", kind)], BOOL)
    fill_call(
        _measure(relation, writer, [*only, number]), writer.functions, "min" if least else "max", [value], kind
    )
    counted = [*only, writer.call("gt", [value, float_of("inf", kind)], BOOL)]
    fill_call(_measure(relation, writer, counted), writer.functions, "count", [], I64)
    found, strange = field_ref(place, kind), field_ref(place + 1, I64)
    if least:
        fewest, instead = writer.call("is_null", [found], BOOL), found
        some = writer.call("gt", [strange, whole_as(0, I64)], BOOL)
        return choice(writer.call("and", [fewest, some], BOOL), float_of("nan", kind), instead)
    return choice(writer.call("gt", [strange, whole_as(0, I64)], BOOL), float_of("nan", kind), found)


def _aggregate(said: Any, writer: TermWriter, node: exp.Expr) -> pa.DataType:
    """Put function and argument of an aggregate into a message of aggregate or window."""
    if type(node) not in _AGGREGATES:
        raise UnsupportedExpression(f"the aggregate '{form(node)[:80]}' cannot be said with the same meaning")
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star | None.__class__):
        fill_call(said, writer.functions, "count", [], I64)
        return I64
    only = node.this
    if isinstance(only, exp.Distinct):
        if len(only.expressions) != 1:
            raise UnsupportedExpression("DISTINCT of several values cannot be said in Substrait")
        only = only.expressions[0]
    if isinstance(only, exp.Order | exp.HavingMax) or node.expressions:
        raise UnsupportedExpression(f"the aggregate '{form(node)[:80]}' depends on an order")
    value = writer.value(only)
    name, value, kind = _typed(node, writer.settled(value) if isinstance(node.this, exp.Distinct) else value)
    fill_call(said, writer.functions, name, [value], kind)
    return kind


def _typed(node: exp.Expr, value: Term) -> tuple[str, Term, pa.DataType]:
    """The name of an aggregate, its argument and its type: sums as wide as the engine has them."""
    held = known(value)
    if isinstance(node, exp.Count):
        return "count", value, I64
    if isinstance(node, exp.Sum | exp.Avg):
        if not is_number(held):
            raise UnsupportedExpression("only numbers are summed")
        if isinstance(node, exp.Avg) or _types.is_floating(held):
            return ("avg" if isinstance(node, exp.Avg) else "sum"), cast_to(value, FP64), FP64
        kind = decimal(38, held.scale) if _types.is_decimal(held) else HUGE
        return "sum", cast_to(value, kind), kind
    if isinstance(node, exp.LogicalAnd | exp.LogicalOr):
        if held != BOOL:
            raise UnsupportedExpression(f"'{form(node)[:80]}' takes conditions")
        return ("bool_and" if isinstance(node, exp.LogicalAnd) else "bool_or"), value, BOOL
    if isinstance(node, exp.AnyValue):
        raise UnsupportedExpression("any_value may be NULL to some, and never is to others")
    if _types.is_nested(held) or _types.is_floating(held):
        raise UnsupportedExpression(f"the least or greatest of {held} here is not the same to everybody")
    return ("min" if isinstance(node, exp.Min) else "max"), value, held


def add_window(project: Any, writer: TermWriter, node: exp.Window, place: int) -> Term:
    """Add a function of a window to a projection, as its field at `place`; returns what it is over all fields.

    DataFusion numbers rows without a sign, whatever a plan says: a cast gives what the engine gives.
    """
    if node.args.get("alias") or node.args.get("first") is not None:
        raise UnsupportedExpression("a window by its name cannot be said in Substrait")
    said = project.expressions.add().window_function
    said.phase, said.invocation = RESULT, _ALL
    kind = _head(said, writer, node.this)
    for one in node.args.get("partition_by") or ():
        said.partitions.add().CopyFrom(writer.settled(writer.value(one)).message)
    order = node.args.get("order")
    for one in order.expressions if order is not None else ():
        add_sort(said.sorts.add(), writer.settled(writer.value(one.this)), one)
    _frame(said, node, order is not None, kind)
    found = field_ref(place, kind)
    return again(found) if type(node.this) in _NUMBERED else found


def _head(said: Any, writer: TermWriter, head: exp.Expr) -> pa.DataType:
    kind = type(head)
    for known_names, made in ((_NUMBERED, I64), (_SHARED, FP64)):
        if kind in known_names and not head.expressions:
            fill_call(said, writer.functions, known_names[kind], [], made)
            return made
    if kind in _NEIGHBOURS:
        return _neighbour(said, writer, head)
    if kind in _ENDS:
        value = writer.value(head.this)
        fill_call(said, writer.functions, _ENDS[kind], [value], known(value))
        return known(value)
    if isinstance(head.this, exp.Distinct):
        raise UnsupportedExpression("DISTINCT in a window cannot be said in Substrait")
    return _aggregate(said, writer, head)


def _neighbour(said: Any, writer: TermWriter, head: exp.Expr) -> pa.DataType:
    value = writer.value(head.this)
    values, kind = [value], known(value)
    offset, default = head.args.get("offset"), head.args.get("default")
    if offset is not None or default is not None:
        if offset is not None and not (isinstance(offset, exp.Literal) and offset.name.isdigit()):
            raise UnsupportedExpression("how many rows away must be a number of the statement")
        values.append(cast_to(writer.value(offset or exp.Literal.number("1")), I64))
    if default is not None:
        values.append(cast_to(writer.value(default), kind))
    fill_call(said, writer.functions, _NEIGHBOURS[type(head)], values, kind)
    return kind


def add_sort(sort: Any, value: Term, node: exp.Expr) -> None:
    """Put a key and its direction into a message."""
    known(value)
    sort.expr.CopyFrom(value.message)
    sort.direction = (
        (3 if node.args.get("nulls_first") else 4)
        if node.args.get("desc")
        else (1 if node.args.get("nulls_first") else 2)
    )


def _frame(said: Any, node: exp.Window, ordered: bool, kind: pa.DataType) -> None:
    spec = node.args.get("spec")
    if spec is None:
        said.bounds_type = _RANGE
        said.lower_bound.unbounded.SetInParent()
        _bound(said.upper_bound, "CURRENT ROW" if ordered else "UNBOUNDED")
        return
    if spec.args.get("exclude") or spec.args.get("kind") not in ("ROWS", "RANGE"):
        raise UnsupportedExpression("the frame of a window can be said in rows, or over a range without bounds")
    said.bounds_type = _ROWS if spec.args["kind"] == "ROWS" else _RANGE
    start, end = spec.args.get("start"), spec.args.get("end") or "CURRENT ROW"
    if start != "UNBOUNDED" and _types.is_floating(kind):
        raise UnsupportedExpression("floats over a frame that leaves rows behind are reckoned in several ways")
    for bound, what, side, own in (
        (said.lower_bound, start, spec.args.get("start_side"), "PRECEDING"),
        (said.upper_bound, end, spec.args.get("end_side"), "FOLLOWING"),
    ):
        if what == "UNBOUNDED" and side != own:
            raise UnsupportedExpression("the frame of a window has its bounds the wrong way round")
        _bound(bound, what, side, said.bounds_type == _ROWS)


def _bound(bound: Any, what: object, side: str | None = None, by_rows: bool = False) -> None:
    if what == "UNBOUNDED":
        bound.unbounded.SetInParent()
    elif what == "CURRENT ROW":
        bound.current_row.SetInParent()
    elif by_rows and isinstance(what, exp.Literal) and what.name.isdigit() and side in ("PRECEDING", "FOLLOWING"):
        getattr(bound, str(side).lower()).offset = int(what.name)
    else:
        raise UnsupportedExpression("the bound of a window must be a number of rows")
