"""The kind of value an expression has, as the engine types it, as far as the planner must know.

Two decisions need it. A partial sum must be put together in the type that one node would give (`sum` of integers
is HUGEINT, of decimals DECIMAL(38, s)); and a HUGEINT travels through Arrow as DECIMAL(38, 0), so the merge must
cast it back before computing with it. None means "not known": such a value is never computed in a leg for the
merge to compute with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, cast

import pyarrow as pa
from sqlglot import exp

from ballista_py.sql.bind.query import (
    BroadcastScan,
    Draft,
    Expr,
    FragmentScan,
    Query,
    Relation,
    Scan,
    Select,
    SharedScan,
    column_id,
)

Kind: TypeAlias = Literal[
    "int", "huge", "decimal", "float", "double", "bool", "text", "date", "timestamp", "time", "interval", "plain"
]

NUMERIC: frozenset[Kind] = frozenset(("int", "huge", "decimal", "float", "double"))

_BOOL = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is,
    exp.Like, exp.ILike, exp.Escape, exp.SimilarTo, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Exists, exp.RegexpLike,
    exp.StartsWith, exp.EndsWith, exp.IsNan, exp.IsInf, exp.RegexpFullMatch, exp.LogicalAnd, exp.LogicalOr,
    exp.Boolean,
)  # fmt: skip
_TEXT = (
    exp.Upper, exp.Lower, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Pad, exp.Replace, exp.Repeat,
    exp.ConcatWs, exp.Chr, exp.Translate, exp.RegexpReplace, exp.MD5, exp.TimeToStr, exp.Dayname, exp.Monthname,
)  # fmt: skip
_INT = (
    exp.Count, exp.ApproxDistinct, exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute, exp.Second, exp.Quarter,
    exp.Week, exp.WeekOfYear, exp.DayOfWeek, exp.DayOfMonth, exp.DayOfYear, exp.DayOfWeekIso, exp.DateDiff, exp.Length,
    exp.StrPosition, exp.Ascii, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.Grouping,
)  # fmt: skip
_DOUBLE = (
    exp.Sqrt, exp.Cbrt, exp.Exp, exp.Ln, exp.Log, exp.Pow, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan,
    exp.Atan2, exp.Radians, exp.Degrees, exp.Pi, exp.Div, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance,
    exp.VariancePop, exp.PercentRank, exp.CumeDist,
)  # fmt: skip
_SAME_AS_ARGUMENT = (
    exp.Min, exp.Max, exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.FirstValue, exp.LastValue,
    exp.ArgMin, exp.ArgMax, exp.NthValue, exp.Lag, exp.Lead, exp.Filter, exp.Window, exp.Paren, exp.Distinct, exp.Neg,
    exp.Nullif,
)  # fmt: skip
_ROUNDINGS = (exp.Round, exp.Ceil, exp.Floor, exp.Abs, exp.Trunc)
_FIXED: dict[type[Expr], Kind] = {
    **dict.fromkeys(_BOOL, "bool"),
    **dict.fromkeys(_TEXT, "text"),
    **dict.fromkeys(_INT, "int"),
    **dict.fromkeys(_DOUBLE, "double"),
    exp.Interval: "interval",
    exp.CountIf: "huge",
    exp.LastDay: "date",
}
_CASTS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "UTINYINT", "USMALLINT", "UINT", "UBIGINT"), "int"),
    "INT128": "huge", "DECIMAL": "decimal", "FLOAT": "float", "DOUBLE": "double", "BOOLEAN": "bool",
    "VARCHAR": "text", "TEXT": "text", "CHAR": "text", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMPNTZ": "timestamp", "TIMESTAMPTZ": "plain", "TIME": "time", "INTERVAL": "interval",
}  # fmt: skip
_INT_PARTS = frozenset(("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "QUARTER", "WEEK", "DOW", "DOY"))
_RANK: dict[Kind, int] = {"int": 0, "huge": 1, "decimal": 2, "float": 3, "double": 4}


def kind_of_arrow(arrow_type: pa.DataType) -> Kind:
    """The kind of a table's column."""
    types = pa.types
    if types.is_integer(arrow_type):
        return "int"
    if types.is_decimal(arrow_type):
        return "decimal"
    if types.is_floating(arrow_type):
        return "double" if types.is_float64(arrow_type) else "float"
    if types.is_boolean(arrow_type):
        return "bool"
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return "text"
    if types.is_date(arrow_type):
        return "date"
    if types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz is None else "plain"
    return "time" if types.is_time(arrow_type) else "plain"


class _Seen:
    """A draft, and the kinds of columns that were told on the way: blocks in each other may name one twice each."""

    def __init__(self, draft: Draft) -> None:
        self.sources, self.nested, self.catalog = draft.sources, draft.nested, draft.catalog
        self.kinds: dict[tuple[int, str], Kind | None] = {}


def kind_of(expr: Expr, draft: Draft | _Seen) -> Kind | None:
    """The kind of a bound expression, or None."""
    if not isinstance(draft, _Seen):
        draft = _Seen(draft)
    fixed = _FIXED.get(type(expr))
    if fixed is not None:
        return fixed
    if isinstance(expr, exp.Column):
        alias, name = column_id(expr)
        return _kind_of_column(draft.sources[alias].relation, name, draft)
    if isinstance(expr, exp.Literal):
        return _kind_of_literal(expr)
    if isinstance(expr, exp.Cast):
        return _CASTS.get(expr.args["to"].this.name)
    if isinstance(expr, exp.Sum):
        return _kind_of_sum(_kind_of_argument(expr, draft))
    if isinstance(expr, exp.Avg):
        return "double" if _kind_of_argument(expr, draft) in NUMERIC else None
    if isinstance(expr, exp.Add | exp.Sub | exp.Mul | exp.Mod | exp.IntDiv):
        return _kind_of_arithmetic(expr, draft)
    return _kind_of_composite(expr, draft)


def _kind_of_composite(expr: Expr, draft: _Seen) -> Kind | None:
    if isinstance(expr, _SAME_AS_ARGUMENT):
        return None if expr.args.get("count") is not None else _kind_of_argument(expr, draft)
    if isinstance(expr, _ROUNDINGS):
        kind = _kind_of_argument(expr, draft)
        return kind if kind in ("decimal", "double", "int") and not _rescales(expr, kind) else None
    if isinstance(expr, exp.Case):
        branches = [branch.args["true"] for branch in expr.args["ifs"]]
        return _common(_kinds([*branches, expr.args.get("default")], draft))
    if isinstance(expr, exp.If):
        return _common(_kinds([expr.args["true"], expr.args.get("false")], draft))
    if isinstance(expr, exp.Coalesce | exp.Greatest | exp.Least):
        return _common(_kinds([expr.this, *expr.expressions], draft))
    if isinstance(expr, exp.Extract):
        return "int" if expr.args["this"].name.upper() in _INT_PARTS else None
    if isinstance(expr, exp.TimestampTrunc | exp.DateTrunc):
        return "timestamp" if _kind_of_argument(expr, draft) in ("date", "timestamp") else None
    if isinstance(expr, exp.DPipe | exp.Concat):
        parts = [expr.this, expr.expression] if isinstance(expr, exp.DPipe) else expr.expressions
        return "text" if all(kind_of(part, draft) == "text" for part in parts) else None
    if isinstance(expr, exp.Subquery) and isinstance(expr.this, exp.Placeholder):
        return kinds_of_query(draft.nested[expr.this.this], draft)[0]
    return None


def kinds_of_query(query: Query, draft: Draft | _Seen) -> list[Kind | None]:
    """The kinds of a query's output columns."""
    if not isinstance(draft, _Seen):
        draft = _Seen(draft)
    if isinstance(query, Select):
        return [kind_of(item.expr, draft) for item in query.items]
    left, right = kinds_of_query(query.left, draft), kinds_of_query(query.right, draft)
    return [a if a == b else None for a, b in zip(left, right, strict=True)]


def _kind_of_column(relation: Relation, name: str, draft: _Seen) -> Kind | None:
    if isinstance(relation, Scan):
        table = relation.table
        kinds: dict[str, Kind] = draft.catalog.once(
            "kinds", table.name, lambda: {column.name: kind_of_arrow(column.type) for column in table.schema}
        )
        return kinds[name]
    if isinstance(relation, SharedScan):
        return _kind_of_column(relation.shared.query, name, draft)
    if isinstance(relation, Select):
        place = id(relation), name
        if place not in draft.kinds:
            found = next(item.expr for item in relation.items if item.name == name)
            draft.kinds[place] = kind_of(found, draft)
        return draft.kinds[place]
    if isinstance(relation, FragmentScan):
        return "huge" if name in relation.huge else None
    if isinstance(relation, BroadcastScan):
        return cast(Kind, relation.kinds[relation.names.index(name)])
    if isinstance(relation, Query):
        return kinds_of_query(relation, draft)[relation.names.index(name)]
    position = relation.names.index(name)
    return _common([kind_of(row[position], draft) for row in relation.rows])


def _kind_of_argument(expr: Expr, draft: _Seen) -> Kind | None:
    argument = expr.args.get("this")
    if isinstance(argument, exp.Distinct) and len(argument.expressions) == 1:
        argument = argument.expressions[0]
    return kind_of(argument, draft) if isinstance(argument, exp.Expr) else None


def _kind_of_literal(literal: exp.Literal) -> Kind:
    if literal.is_string:
        return "text"
    text = literal.name.lower()
    if "e" in text:
        return "double"
    if "." in text:
        return "decimal" if len(text) <= 38 else "double"
    return "int" if int(text) < 2**63 else "huge"


def _kind_of_sum(kind: Kind | None) -> Kind | None:
    if kind in ("int", "huge", "bool"):
        return "huge"
    if kind in ("float", "double"):
        return "double"
    return "decimal" if kind == "decimal" else None


def _kind_of_arithmetic(expr: Expr, draft: _Seen) -> Kind | None:
    left, right = kind_of(expr.args["this"], draft), kind_of(expr.args["expression"], draft)
    if left in NUMERIC and right in NUMERIC:
        if isinstance(expr, exp.IntDiv | exp.Mod) and {left, right} - {"int", "double"}:
            return None
        return None if {left, right} == {"huge", "decimal"} else _common([left, right])
    pair = (left, right)
    if isinstance(expr, exp.Sub) and pair == ("date", "date"):
        return "int"
    if isinstance(expr, exp.Add | exp.Sub) and left == "date":
        return {"int": "date", "interval": "timestamp"}.get(str(right))  # type: ignore[return-value]
    if isinstance(expr, exp.Add | exp.Sub) and pair == ("timestamp", "interval"):
        return "timestamp"
    if isinstance(expr, exp.Sub) and pair == ("timestamp", "timestamp"):
        return "interval"
    return None


def _kinds(parts: Iterable[Expr | None], draft: _Seen) -> list[Kind | None]:
    return [kind_of(part, draft) for part in parts if part is not None and not isinstance(part, exp.Null)]


def _common(kinds: list[Kind | None]) -> Kind | None:
    distinct = set(kinds)
    if len(distinct) == 1:
        return kinds[0]
    if distinct == {"date", "timestamp"}:
        return "timestamp"
    if not distinct or not distinct <= NUMERIC or distinct >= {"huge", "decimal"}:
        return None
    if "float" in distinct and "double" not in distinct:
        return None
    return max((kind for kind in distinct if kind is not None), key=_RANK.__getitem__)


def _rescales(expr: Expr, kind: Kind) -> bool:
    """Rounding an integer to negative digits, or with a computed number of digits, may change its type."""
    digits = expr.args.get("decimals")
    return digits is not None and (kind == "int" or not isinstance(digits, exp.Literal))
