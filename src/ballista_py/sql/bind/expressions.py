"""What the planner asks of a scalar expression: its conjuncts, what it refers to, whether a leg may evaluate it.

An expression is *portable* if it gives the same value wherever and whenever it is evaluated and its meaning is
known here. Everything else (volatile functions, functions this list does not know) is evaluated at the merge, as
written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import is_not
from typing import Any

from sqlglot import exp

from ballista_py.sql.bind.engine_functions import aggregates
from ballista_py.sql.bind.query import (
    ColumnId,
    Draft,
    Expr,
    Facts,
    Item,
    Query,
    Select,
    SetOperation,
    SharedScan,
    Source,
    column_id,
)

_LEAVES = (exp.Column, exp.Literal)  # in bound expressions; names below them are nobody's to replace
MAX_WRITTEN = 500  # nodes that columns of a subquery become where they are named
_PREDICATES = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is,
    exp.Like, exp.ILike, exp.Escape, exp.SimilarTo, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Exists, exp.RegexpLike,
    exp.StartsWith, exp.EndsWith, exp.Contains, exp.IsNan, exp.IsInf, exp.RegexpFullMatch,
)  # fmt: skip
_OPERATORS = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Paren, exp.DPipe, exp.Case, exp.If,
    exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Cast, exp.TryCast, exp.BitwiseAnd, exp.BitwiseOr,
    exp.BitwiseXor, exp.BitwiseNot, exp.BitwiseLeftShift, exp.BitwiseRightShift,
)  # fmt: skip
_FUNCTIONS = (
    exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Sign, exp.Sqrt, exp.Cbrt, exp.Exp, exp.Ln, exp.Log,
    exp.Pow, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2, exp.Radians, exp.Degrees, exp.Pi,
    exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Pad, exp.Replace,
    exp.Reverse, exp.Repeat, exp.Concat, exp.ConcatWs, exp.StrPosition, exp.Ascii, exp.Chr, exp.Translate,
    exp.RegexpReplace, exp.RegexpExtract, exp.MD5, exp.TimeToStr, exp.Extract, exp.Year, exp.Month, exp.Day,
    exp.Hour, exp.Minute, exp.Second, exp.Quarter, exp.Week, exp.WeekOfYear, exp.DayOfWeek, exp.DayOfMonth,
    exp.DayOfYear, exp.DayOfWeekIso, exp.Dayname, exp.Monthname, exp.LastDay, exp.DateDiff, exp.TimestampTrunc,
    exp.DateTrunc, exp.DateFromParts,
)  # fmt: skip
_AGGREGATES = (
    exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Stddev, exp.StddevSamp, exp.StddevPop,
    exp.Variance, exp.VariancePop, exp.LogicalAnd, exp.LogicalOr, exp.BitwiseAndAgg, exp.BitwiseOrAgg,
    exp.BitwiseXorAgg, exp.Median, exp.ApproxDistinct, exp.Grouping, exp.ArgMin, exp.ArgMax,
)  # fmt: skip
_WINDOWS = (
    exp.Window, exp.WindowSpec, exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile,
    exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue,
)  # fmt: skip
_PIECES = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Interval, exp.Var, exp.DataType,
    exp.DataTypeParam, exp.Star, exp.Distinct, exp.Filter, exp.Where, exp.Order, exp.Ordered, exp.Tuple,
    exp.Placeholder, exp.Subquery, exp.IntervalSpan,
)  # fmt: skip
_PORTABLE = frozenset(_PREDICATES + _OPERATORS + _FUNCTIONS + _AGGREGATES + _WINDOWS + _PIECES)

# Scalar functions that sqlglot has no class for; they depend on nothing but their arguments.
_PORTABLE_NAMES = frozenset((
    "age", "bit_count", "century", "date_part", "datepart", "date_sub", "datesub", "decade", "epoch_ms",
    "epoch_ns", "epoch_us", "even", "gamma", "gcd", "hamming", "hash", "isoyear", "jaccard", "lcm",
    "left_grapheme", "length_grapheme", "lgamma", "microsecond", "millennium", "millisecond", "nanosecond",
    "octet_length", "prefix", "right_grapheme", "strip_accents", "strlen", "substring_grapheme", "suffix",
    "weekday", "yearweek", "to_days", "to_hours", "to_minutes", "to_months", "to_seconds", "to_years",
))  # fmt: skip


_ATOMS = (
    exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Cast, exp.Placeholder, exp.Null, exp.Boolean, exp.Subquery,
)  # fmt: skip


def conjuncts(expr: Expr | None) -> Iterator[Expr]:
    """The parts of a conjunction, left to right."""
    if expr is None:
        return
    node = expr.unnest()
    if isinstance(node, exp.And):
        yield from conjuncts(node.args["this"])
        yield from conjuncts(node.args["expression"])
    else:
        yield node


def disjuncts(expr: Expr) -> Iterator[Expr]:
    """The parts of a disjunction, left to right."""
    node = expr.unnest()
    if isinstance(node, exp.Or):
        yield from disjuncts(node.args["this"])
        yield from disjuncts(node.args["expression"])
    else:
        yield node


def is_portable(expr: Expr) -> bool:
    """Whether a leg may evaluate the expression; nested queries are judged by whoever places them."""
    return all(type(node) in _PORTABLE or _is_known_function(node) for node in expr.walk())


def columns_of(expr: Expr) -> Iterator[exp.Column]:
    """The bound references outside nested queries."""
    return expr.find_all(exp.Column)


def facts_of(expr: Expr, draft: Draft) -> Facts:
    """What a bound expression consists of, found in one walk and remembered: bound trees do not change."""
    known = draft.facts.get(id(expr))
    if known is not None:
        return known[1]
    columns, nested, portable = [], [], True
    waiting = [expr]
    for node in waiting:  # grows on the way: level by level, as a walk of the tree; below a column are names alone
        if isinstance(node, exp.Column):
            columns.append(column_id(node))
            continue
        if isinstance(node, exp.Placeholder):
            nested.append(node.this)
            continue
        portable = portable and (type(node) in _PORTABLE or _is_known_function(node))
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                waiting.append(value)
            elif isinstance(value, list):
                waiting.extend(one for one in value if isinstance(one, exp.Expr))
    facts = Facts(tuple(columns), tuple(nested), portable)
    draft.facts[id(expr)] = (expr, facts)
    return facts


def _is_known_function(node: Expr) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    name = str(node.this).lower()
    return name in _PORTABLE_NAMES and (name != "age" or len(node.expressions) > 1)  # of one, it is until today


def nested_of(expr: Expr, draft: Draft) -> list[Query]:
    """The nested queries directly inside an expression."""
    return [draft.nested[name] for name in facts_of(expr, draft).nested]


def aliases_of(expr: Expr, draft: Draft) -> frozenset[str]:
    """The sources that an expression needs, those that its nested queries take from outside included."""
    known = draft.aliases_in.get(id(expr))
    if known is not None:
        return known[1]
    found = frozenset(alias for alias, _ in facts_of(expr, draft).columns)
    for query in nested_of(expr, draft):
        found |= free_aliases(query, draft)
    draft.aliases_in[id(expr)] = (expr, found)
    return found


def free_aliases(query: Query, draft: Draft) -> frozenset[str]:
    """The sources of enclosing blocks that a query refers to."""
    known = draft.free_of.get(id(query))
    if known is not None:
        return known[1]
    if isinstance(query, Select):
        used: set[str] = set()
        for expr in query.expressions():
            used |= aliases_of(expr, draft)
        for source in query.sources:
            used |= _free_in_source(source, draft)
        free = frozenset(used - {source.alias for source in query.sources})
    else:
        free = free_aliases(query.left, draft) | free_aliases(query.right, draft)
    draft.free_of[id(query)] = (query, free)
    return free


def _free_in_source(source: Source, draft: Draft) -> frozenset[str]:
    if isinstance(source.relation, Query):
        return free_aliases(source.relation, draft)
    return frozenset()


def references(expr: Expr, draft: Draft) -> Iterable[ColumnId]:
    """Every (alias, column) that an expression or a query nested in it refers to, whatever its level."""
    facts = facts_of(expr, draft)
    if not facts.nested:
        return facts.columns
    inner = (query_references(draft.nested[name], draft) for name in facts.nested)
    return chain(facts.columns, *inner)


def query_references(query: Query, draft: Draft) -> Iterator[ColumnId]:
    """Every (alias, column) referred to anywhere inside a query."""
    if isinstance(query, Select):
        for expr in query.expressions():
            yield from references(expr, draft)
        for source in query.sources:
            if isinstance(source.relation, Query):
                yield from query_references(source.relation, draft)
    else:
        yield from query_references(query.left, draft)
        yield from query_references(query.right, draft)


def sources_of(query: Query, draft: Draft, shared: bool = True) -> Iterator[Source]:
    """Every FROM item of a query, at any depth; with `shared` also the inside of each shared one, one time.

    Common tables of which each uses the one before twice would else be looked at two to their number times.
    """
    return _sources_of(query, draft, set() if shared else None)


def _sources_of(query: Query, draft: Draft, seen: set[int] | None) -> Iterator[Source]:
    if isinstance(query, SetOperation):
        yield from _sources_of(query.left, draft, seen)
        yield from _sources_of(query.right, draft, seen)
        return
    for source in query.sources:
        yield source
        inner = source.relation
        if isinstance(inner, SharedScan) and seen is not None and id(inner.shared) not in seen:
            seen.add(id(inner.shared))
            inner = inner.shared.query if inner.shared.merged is None else inner
        if isinstance(inner, Query):
            yield from _sources_of(inner, draft, seen)
    for expr in query.expressions() if draft.nested else ():
        for nested in nested_of(expr, draft):
            yield from _sources_of(nested, draft, seen)


def rewritten(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with every topmost node that `replace` answers for replaced by its answer.

    What holds no such node is shared with the original, the whole of it if there is none: its parent is then that of
    the newest tree, which has the same form.
    """
    answer = replace(expr)
    if answer is not None:
        return answer
    if isinstance(expr, _LEAVES):
        return expr
    changed: dict[str, Any] | None = None
    for key, value in expr.args.items():
        fresh = value
        if isinstance(value, exp.Expr):
            fresh = rewritten(value, replace)
        elif isinstance(value, list):
            parts = [rewritten(v, replace) if isinstance(v, exp.Expr) else v for v in value]
            if any(map(is_not, parts, value)):
                fresh = parts
        if fresh is not value:
            changed = changed or dict(expr.args)
            changed[key] = fresh
    return expr if changed is None else expr.__class__(**changed)


def written(expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """As `rewritten`, sharing nothing: whoever gets it may change it."""
    answer = replace(expr)
    if answer is not None:
        return answer
    fresh: dict[str, Any] = {}
    for key, value in expr.args.items():
        if isinstance(value, exp.Expr):
            fresh[key] = written(value, replace)
        elif isinstance(value, list):
            fresh[key] = [written(v, replace) if isinstance(v, exp.Expr) else v for v in value]
        else:
            fresh[key] = value
    return expr.__class__(**fresh)


def nodes_written(items: Iterable[Item], alias: str, exprs: Iterable[Expr]) -> int:
    """How many nodes the columns of a subquery become where they are named: blocks in each other may each name one
    of the next twice."""
    named = Counter(
        column_id(column)[1]
        for expr in exprs
        for column in expr.find_all(exp.Column)
        if column_id(column)[0] == alias
    )
    return sum(named[item.name] * sum(1 for _ in item.expr.walk()) for item in items if named[item.name])


def copied(expr: Expr) -> Expr:
    """A copy of the expression, to stand somewhere else."""
    return written(expr, _keep)


def _keep(_node: Expr) -> None:
    return None


def enclosed(expr: Expr) -> Expr:
    """The expression in parentheses, unless it is one word anyway."""
    if isinstance(expr, _ATOMS) and not isinstance(expr, exp.Connector | exp.Case | exp.If | exp.Binary):
        return expr
    return exp.Paren(this=expr)


def all_of(parts: Iterable[Expr]) -> Expr | None:
    """The conjunction of `parts`, which become pieces of it."""
    joined: Expr | None = None
    for part in parts:
        one = exp.Paren(this=part) if isinstance(part, exp.Or) else part
        joined = one if joined is None else exp.And(this=joined, expression=one)
    return joined


def equated_columns(expr: Expr) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The two columns of `a.x = b.y`."""
    if isinstance(expr, exp.EQ):
        left, right = expr.args["this"].unnest(), expr.args["expression"].unnest()
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            return column_id(left), column_id(right)
    return None


def is_number(expr: Expr) -> bool:
    """Whether an expression is a bare number, which GROUP BY and ORDER BY take for a position."""
    if isinstance(expr, exp.Neg | exp.Paren):
        return is_number(expr.args["this"])
    return isinstance(expr, exp.Literal) and not expr.is_string


def is_aggregate(node: Expr) -> bool:
    """Whether a node aggregates rows of its block (rather than being a window function)."""
    if not isinstance(node, exp.AggFunc) and not _aggregates_by_name(node):
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        parent = parent.parent
    return not (isinstance(parent, exp.Window) and parent.args.get("this") is not None and _heads(parent, node))


def _aggregates_by_name(node: Expr) -> bool:
    """Whether a function that the parser has no class for is an aggregate to the engine."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in aggregates()


def _heads(window: Expr, node: Expr) -> bool:
    head = window.args["this"]
    while isinstance(head, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        head = head.args["this"]
    return head is node
