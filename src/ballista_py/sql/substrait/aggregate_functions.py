"""The aggregates that are taken, and the functions of windows.

Sums of whole numbers are as wide as the plan says, and an error where they do not fit; what DataFusion leaves unsaid
is of the type that it gives itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.calls import BOOL, FP64, I64, Call, Value, cast, function, given
from ballista_py.sql.substrait.kinds import MONTHS, decimal
from ballista_py.sql.substrait.scalar_functions import require_options
from ballista_py.sql.substrait.text_functions import literal_whole

Builder = Callable[[Call], Value]
Wrap = Callable[[exp.Expr], exp.Expr]
_types = pa.types
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "sum": {"overflow": "ERROR"},
    "sum0": {"overflow": "ERROR"},
    "avg": {"overflow": "ERROR"},
    "count": {"overflow": "ERROR"},
    "std_dev": {"distribution": "SAMPLE POPULATION", "rounding": "TIE_TO_EVEN"},
    "variance": {"distribution": "SAMPLE POPULATION", "rounding": "TIE_TO_EVEN"},
    "any_value": {"ignore_nulls": "TRUE"},
}
_BY_ORDER = frozenset(["any_value"])


def aggregate(call: Call, distinct: bool, ordered: bool, over: Wrap) -> Value:
    """The value of an aggregate; `over` puts its filter or window around the bare call.

    Raises `UnsupportedExpression` for an aggregate, arguments or options that are not taken.
    """
    build = _AGGREGATES.get(call.name)
    if build is None or (call.name in _OWN and call.standard):
        raise UnsupportedExpression(
            f"the aggregate '{call.name}' is not taken: possible are {', '.join(sorted(_AGGREGATES.keys() - _OWN))}"
        )
    require_options(call, _OPTIONS.get(call.name, {}))
    call.require(not (ordered and call.name in _BY_ORDER), "it is not taken over rows in an order")
    call.require(not (distinct and len(call.values) != 1), "DISTINCT is taken of one value")
    if call.name == "count" and not distinct and call.trees and _never_null(call.trees[0]):
        call = attrs.evolve(call, values=())
    return given(call, build(call, lambda tree: over(_distinct(tree, distinct))))


def _distinct(tree: exp.Expr, distinct: bool) -> exp.Expr:
    if distinct:
        tree.set("this", exp.Distinct(expressions=[tree.this]))
    return tree


def _one(call: Call) -> tuple[exp.Expr, pa.DataType]:
    call.require(len(call.values) == 1, "it takes one value")
    return call.trees[0], call.kinds[0]


def _sum(call: Call, over: Wrap) -> Value:
    tree, kind = _one(call)
    bare = over(exp.Sum(this=tree))
    if _types.is_decimal(kind):
        return _decimal_sum(call, bare)
    if _types.is_floating(kind):
        return Value(bare, FP64)
    call.require(bool(_types.is_integer(kind)), "it takes numbers")
    made = I64 if _types.is_signed_integer(kind) else pa.uint64()
    return Value(cast(bare, made), made)


def _decimal_sum(call: Call, bare: exp.Expr) -> Value:
    """38 digits by Substrait; DataFusion, which says nothing, has ten more than there were."""
    kind = call.kinds[0]
    said = call.said or decimal(38 if call.standard else min(38, kind.precision + 10), kind.scale)
    same = _types.is_decimal(said) and said.scale == kind.scale
    call.require(bool(same), "its sum has as many digits behind the point as its values")
    return Value(bare if said.precision == 38 else cast(bare, said), said)


def _sum0(call: Call, over: Wrap) -> Value:
    value = _sum(call, over)
    return Value(
        exp.Coalesce(this=value.tree, expressions=[cast(exp.Literal.number("0"), value.kind)]), value.kind
    )


def _avg(call: Call, over: Wrap) -> Value:
    tree, kind = _one(call)
    numeric = _types.is_floating(kind) or _types.is_integer(kind)
    call.require(bool(numeric), "it takes fp64, or whole numbers for fp64; cast decimals")
    call.require(not (call.standard and call.said is None) or kind == FP64, "say that it gives fp64")
    return Value(over(exp.Avg(this=tree)), FP64)


def _count(call: Call, over: Wrap) -> Value:
    call.require(len(call.values) <= 1, "it takes one value or none")
    one = call.trees[0] if call.values else exp.Star()
    return Value(over(exp.Count(this=one)), I64)


def _never_null(tree: exp.Expr) -> bool:
    """Whether it is a literal, by which `count(1)` is said."""
    while isinstance(tree, exp.Cast):
        tree = tree.this
    return isinstance(tree, exp.Literal | exp.Boolean)


def _extreme(kind: type[exp.AggFunc]) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        tree, held = _one(call)
        call.require(not (_types.is_nested(held) or held == MONTHS), "its values must have an order")
        return Value(over(kind(this=tree)), held)

    return build


def _logical(kind: type[exp.AggFunc]) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        tree, held = _one(call)
        call.require(held == BOOL, "it takes values that are true or false")
        return Value(over(kind(this=tree)), BOOL)

    return build


def _any(call: Call, over: Wrap) -> Value:
    tree, held = _one(call)
    return Value(over(exp.AnyValue(this=tree)), held)


def _spread(sample: str, population: str) -> Callable[[Call, Wrap], Value]:
    """Which of the two is meant a word or an option says, and DataFusion by the name."""

    def build(call: Call, over: Wrap) -> Value:
        tree, kind = _one(call)
        call.require(kind == FP64, "cast its values to fp64")
        said = [word.upper() for word in (*call.words, *call.options.get("distribution", ()))][:1]
        call.require(said in (["SAMPLE"], ["POPULATION"]), "say SAMPLE or POPULATION")
        return Value(over(function(sample if said == ["SAMPLE"] else population, tree)), FP64)

    return build


def _own_spread(name: str) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        tree, kind = _one(call)
        call.require(bool(_types.is_floating(kind) or _types.is_integer(kind)), "cast its values to fp64")
        return Value(over(function(name, tree)), FP64)

    return build


_OWN = frozenset(["stddev", "stddev_pop", "var", "var_pop", "mean"])
_AGGREGATES: Mapping[str, Callable[[Call, Wrap], Value]] = {
    "sum": _sum,
    "sum0": _sum0,
    "avg": _avg,
    "count": _count,
    "min": _extreme(exp.Min),
    "max": _extreme(exp.Max),
    "bool_and": _logical(exp.LogicalAnd),
    "bool_or": _logical(exp.LogicalOr),
    "any_value": _any,
    "std_dev": _spread("stddev_samp", "stddev_pop"),
    "variance": _spread("var_samp", "var_pop"),
    "stddev": _own_spread("stddev_samp"),
    "stddev_pop": _own_spread("stddev_pop"),
    "var": _own_spread("var_samp"),
    "var_pop": _own_spread("var_pop"),
}


def window(call: Call, over: Wrap) -> Value:
    """The value of a function of a window; aggregates are taken as well."""
    build = _WINDOWS.get(call.name)
    if build is None:
        return aggregate(call, False, False, over)
    require_options(call, {"on_domain_error": "ERROR"})
    return given(call, build(call, over))


def takes_frame(name: str) -> bool:
    """Whether what a function gives depends on the frame; ranks and neighbours go by the partition alone."""
    return name not in _WINDOWS or name in _IN_FRAMES


def _numbered(name: str) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        call.require(not call.values, "it takes nothing")
        return _as_number(call, over(function(name)))

    return build


def _as_number(call: Call, tree: exp.Expr) -> Value:
    """The number of a row: without a sign to DataFusion, which says nothing."""
    kind = call.said or (I64 if call.standard else pa.uint64())
    call.require(bool(_types.is_integer(kind)), "it gives whole numbers")
    return Value(tree if kind == I64 else cast(tree, kind), kind)


def _shared(name: str) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        call.require(not call.values, "it takes nothing")
        return Value(over(function(name)), FP64)

    return build


def _ntile(call: Call, over: Wrap) -> Value:
    call.require(len(call.values) == 1, "it takes one number")
    count = literal_whole(call.trees[0])
    call.require(count is not None and 0 < count < 1 << 31, "its number must be one of the plan, from 1")
    return _as_number(call, over(function("ntile", exp.Literal.number(str(count)))))


def _neighbour(kind: type[exp.AggFunc]) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        call.require(1 <= len(call.values) <= 3, "it takes a value, how many rows away, and what stands for none")
        offset = literal_whole(call.trees[1]) if len(call.values) > 1 else 1
        call.require(
            offset is not None and 0 <= offset < 1 << 31, "the distance must be a number of the plan, from 0"
        )
        made = kind(this=call.trees[0], offset=exp.Literal.number(str(offset)))
        if len(call.values) == 3:
            alike = call.kinds[2] == call.kinds[0] or all(_types.is_integer(call.kinds[n]) for n in (0, 2))
            call.require(alike, "what stands for none must be of the type of the values")
            made.set("default", cast(call.trees[2], call.kinds[0]))
        return Value(over(made), call.kinds[0])

    return build


def _of_frame(kind: type[exp.AggFunc]) -> Callable[[Call, Wrap], Value]:
    def build(call: Call, over: Wrap) -> Value:
        call.require(
            len(call.values) == (2 if kind is exp.NthValue else 1), "it takes a value, nth_value a number too"
        )
        made = kind(this=call.trees[0])
        if kind is exp.NthValue:
            place = literal_whole(call.trees[1])
            call.require(place is not None and 0 < place < 1 << 31, "its number must be one of the plan, from 1")
            made.set("offset", exp.Literal.number(str(place)))
        return Value(over(made), call.kinds[0])

    return build


_IN_FRAMES = frozenset(["first_value", "last_value", "nth_value"])
_WINDOWS: Mapping[str, Callable[[Call, Wrap], Value]] = {
    **{name: _numbered(name) for name in ("row_number", "rank", "dense_rank")},
    **{name: _shared(name) for name in ("percent_rank", "cume_dist")},
    "ntile": _ntile,
    "lag": _neighbour(exp.Lag),
    "lead": _neighbour(exp.Lead),
    "first_value": _of_frame(exp.FirstValue),
    "last_value": _of_frame(exp.LastValue),
    "nth_value": _of_frame(exp.NthValue),
}
