"""The scalar functions that are taken: by the name of Substrait's extensions, what each becomes.

A function is here if the engine gives the same value for all arguments that its builder lets through, or one of those
that the specification leaves open; `options` says which of its options the engine follows. Whatever else a plan asks
for is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from attrs import field, frozen
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.calls import (
    BOOL,
    FP64,
    Call,
    Value,
    between_signs,
    cast,
    enclosed,
    function,
    given,
    joined,
    plain_number,
)
from ballista_py.sql.substrait.kinds import MONTHS, decimal, shown
from ballista_py.sql.substrait.text_functions import TEXT_FUNCTIONS, literal_text, literal_whole
from ballista_py.sql.substrait.time_functions import TIME_FUNCTIONS, moved

Builder = Callable[[Call], Value]
_types = pa.types


@frozen(kw_only=True, eq=False)
class Known:
    """A function that is taken: what builds it, the options that it follows, and whether a bare name may mean it.

    `own` is of DataFusion, which names no extension: there the name alone is known.
    """

    build: Builder
    options: Mapping[str, str] = field(factory=dict)
    own: bool = False


def scalar(call: Call) -> Value:
    """The value of a call. Raises `UnsupportedExpression` for a function, arguments or options that are not taken."""
    known = SCALARS.get(call.name)
    if known is None or (known.own and call.standard):
        raise UnsupportedExpression(
            f"the function '{call.name}' is not taken: apply it to what the plan without it gives, or send SQL"
        )
    require_options(call, known.options)
    return given(call, known.build(call))


def require_options(call: Call, followed: Mapping[str, str]) -> None:
    """Raise `UnsupportedExpression` for an option that a plan insists on, and the engine does otherwise."""
    for name, preferences in call.options.items():
        kept = followed.get(name.lower(), "")
        if not set(kept.split()) & {one.upper() for one in preferences}:
            wanted, possible = ", ".join(preferences)[:80], kept.replace(" ", " or ") or "leave it out"
            raise UnsupportedExpression(
                f"'{call.name}' with the option {name[:80]} = {wanted} is not taken: {possible}"
            )


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of both types are compared as what they are, with nothing lost."""
    whole = {left, right} - _EXACT
    if not whole:
        return True
    if _types.is_decimal(left) or _types.is_decimal(right):
        return all(_types.is_decimal(one) or _types.is_integer(one) for one in (left, right))
    if _types.is_floating(left) or _types.is_floating(right):
        return all(_types.is_floating(one) or one in _SMALL for one in (left, right))
    return left == right and not (_types.is_nested(left) or left == MONTHS)


_EXACT = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()}
_SMALL = {pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()}


def _compared(kind: type[exp.Binary]) -> Builder:
    def build(call: Call) -> Value:
        call.require(len(call.values) == 2 and comparable(*call.kinds), "cast both sides to one type")
        left, right = (plain_number(tree) for tree in call.trees)
        return Value(between_signs(kind, left, right), BOOL)

    return build


def _between(call: Call) -> Value:
    kinds = call.kinds
    fits = len(kinds) == 3 and comparable(kinds[0], kinds[1]) and comparable(kinds[0], kinds[2])
    call.require(fits, "cast all three to one type")
    value, low, high = (enclosed(plain_number(tree)) for tree in call.trees)
    return Value(exp.Between(this=value, low=low, high=high), BOOL)


def _is(what: Callable[[], exp.Expr], not_: bool = False, truth: bool = True) -> Builder:
    def build(call: Call) -> Value:
        call.require(len(call.values) == 1 and (not truth or call.kinds[0] == BOOL), "it takes one value")
        tree = exp.Is(this=enclosed(call.trees[0]), expression=what())
        return Value(exp.Not(this=tree) if not_ else tree, BOOL)

    return build


def _connected(kind: type[exp.Binary]) -> Builder:
    def build(call: Call) -> Value:
        call.require(bool(call.values) and set(call.kinds) == {BOOL}, "it takes values that are true or false")
        return Value(joined(kind, call.trees), BOOL)

    return build


def _not(call: Call) -> Value:
    call.require(call.kinds == (BOOL,), "it takes one value that is true or false")
    return Value(exp.Not(this=enclosed(call.trees[0])), BOOL)


def _alike(call: Call, least: int) -> pa.DataType:
    call.require(len(call.values) >= least and len(set(call.kinds)) == 1, "cast all of its values to one type")
    return call.kinds[0]


def _coalesce(call: Call) -> Value:
    kind = _alike(call, 1)
    return Value(exp.Coalesce(this=call.trees[0], expressions=list(call.trees[1:])), kind)


def _nullif(call: Call) -> Value:
    call.require(len(call.values) == 2 and comparable(*call.kinds), "cast both to one type")
    kind = _alike(call, 2)
    return Value(exp.Nullif(this=call.trees[0], expression=call.trees[1]), kind)


def _extreme(name: str) -> Builder:
    def build(call: Call) -> Value:
        kind = _alike(call, 1)
        call.require(comparable(kind, kind), "its values must have an order")
        return Value(function(name, *call.trees), kind)

    return build


def _numeric(kind: pa.DataType) -> bool:
    return bool(_types.is_integer(kind) or _types.is_floating(kind))


def _plus(kind: type[exp.Binary]) -> Builder:
    def build(call: Call) -> Value:
        call.require(len(call.values) == 2, "it takes two values")
        if MONTHS in call.kinds:
            return moved(call, kind)
        left, right = call.kinds
        if _types.is_decimal(left) and _types.is_decimal(right):
            return _decimal_sum(call, kind)
        call.require(left == right and _numeric(left), "cast both to one type of numbers")
        return Value(between_signs(kind, *call.trees), left)

    return build


def _decimal_sum(call: Call, kind: type[exp.Binary]) -> Value:
    left, right = call.kinds
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    made = _capped(call, digits, scale)
    return Value(cast(between_signs(kind, *(cast(tree, made) for tree in call.trees)), made), made)


def _capped(call: Call, digits: int, scale: int) -> pa.DataType:
    """With nothing behind the point 38 digits do, and it is an error where they do not; else some would be lost."""
    call.require(digits <= 38 or scale == 0, "its result has more than 38 digits: cast its values to fewer")
    return decimal(min(digits, 38), scale)


def _multiply(call: Call) -> Value:
    call.require(len(call.values) == 2, "it takes two values")
    left, right = call.kinds
    if not (_types.is_decimal(left) and _types.is_decimal(right)):
        call.require(left == right and _numeric(left), "cast both to one type of numbers")
        return Value(between_signs(exp.Mul, *call.trees), left)
    digits = left.precision + right.precision + 1
    made = _capped(call, digits, left.scale + right.scale)
    wide = [cast(value.tree, decimal(made.precision, value.kind.scale)) for value in call.values]
    return Value(cast(between_signs(exp.Mul, *wide), made), made)


def _divide(call: Call) -> Value:
    kind = _alike(call, 2)
    call.require(len(call.values) == 2 and _numeric(kind), "cast both to whole numbers, or to fp64")
    operator = exp.Div if _types.is_floating(kind) else exp.IntDiv
    return Value(between_signs(operator, *call.trees), kind)


def _modulus(call: Call) -> Value:
    kind = _alike(call, 2)
    call.require(len(call.values) == 2 and _numeric(kind), "cast both to one type of numbers, but no decimals")
    return Value(between_signs(exp.Mod, *call.trees), kind)


def _negate(call: Call) -> Value:
    call.require(len(call.values) == 1, "it takes one number")
    kind = call.kinds[0]
    signed = _types.is_signed_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind)
    call.require(bool(signed), "it takes one number with a sign")
    return Value(exp.Neg(this=enclosed(call.trees[0])), kind)


def _abs(call: Call) -> Value:
    call.require(len(call.values) == 1, "it takes one number")
    kind = call.kinds[0]
    call.require(_numeric(kind) or _types.is_decimal(kind), "it takes one number")
    return Value(exp.Abs(this=call.trees[0]), kind)


def _sign(call: Call) -> Value:
    fits = len(call.values) == 1 and _types.is_signed_integer(call.kinds[0])
    call.require(bool(fits), "it takes a whole number with a sign")  # of NaN and -0.0 the engine says 0
    return Value(cast(exp.Sign(this=call.trees[0]), call.kinds[0]), call.kinds[0])


def _of_floats(name: str, count: int = 1) -> Builder:
    def build(call: Call) -> Value:
        kinds = set(call.kinds)
        call.require(len(call.values) == count and kinds == {FP64}, "cast its values to fp64")
        return Value(function(name, *call.trees), FP64)

    return build


def _whole_of(name: str) -> Builder:
    """Rounding up or down keeps floats floats, and what is whole already as it is."""

    def build(call: Call) -> Value:
        call.require(len(call.values) == 1, "it takes one number")
        kind = call.kinds[0]
        call.require(bool(_types.is_floating(kind)), "it takes an fp32 or fp64")
        return Value(function(name, call.trees[0]), kind)

    return build


def _round(call: Call) -> Value:
    """To whole numbers, ties away from zero."""
    places = literal_whole(call.trees[1]) if len(call.values) == 2 else 0
    fits = 1 <= len(call.values) <= 2 and _types.is_floating(call.kinds[0]) and places == 0
    call.require(bool(fits), "it takes an fp32 or fp64, to no digits behind the point")
    return Value(exp.Round(this=call.trees[0]), call.kinds[0])


def _asks_float(name: str) -> Builder:
    def build(call: Call) -> Value:
        call.require(len(call.values) == 1 and _types.is_floating(call.kinds[0]), "it takes an fp32 or fp64")
        return Value(function(name, call.trees[0]), BOOL)

    return build


def _bits(kind: type[exp.Binary] | None) -> Builder:
    def build(call: Call) -> Value:
        made = _alike(call, 1 if kind is None else 2)
        call.require(bool(_types.is_signed_integer(made)), "it takes whole numbers with a sign, of one type")
        if kind is None:
            call.require(len(call.values) == 1, "it takes one number")
            return Value(exp.BitwiseNot(this=enclosed(call.trees[0])), made)
        if kind is exp.BitwiseXor:
            return Value(function("xor", *call.trees), made)
        return Value(between_signs(kind, *call.trees), made)

    return build


def _field(call: Call) -> Value:
    """A field of a struct by its name, as DataFusion asks for it."""
    call.require(len(call.values) == 2 and _types.is_struct(call.kinds[0]), "it takes a struct and a name")
    name = literal_text(call.trees[1])
    call.require(name is not None, "the name must be a text of the plan")
    places = [one for one in call.kinds[0] if one.name == name]
    if len(places) != 1:
        raise InvalidData(f"the plan is malformed: {shown(call.kinds[0])[:200]} has no field of that name")
    return field_of(call.values[0], call.kinds[0].get_field_index(name))


def field_of(value: Value, place: int) -> Value:
    """A field of a struct by its place."""
    if not _types.is_struct(value.kind) or not 0 <= place < value.kind.num_fields:
        raise InvalidData(f"the plan is malformed: {shown(value.kind)[:200]} has no field {place}")
    one = value.kind.field(place)
    return Value(function("struct_extract", value.tree, exp.Literal.string(one.name)), one.type)


_PLAIN_OF_FLOATS = ("exp", "sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees")
_ERROR = {"overflow": "ERROR"}
_TRUE, _FALSE = (lambda: exp.true()), (lambda: exp.false())
SCALARS: Mapping[str, Known] = {
    **{
        name: Known(build=_compared(kind))
        for name, kind in {
            "equal": exp.EQ, "not_equal": exp.NEQ, "lt": exp.LT, "lte": exp.LTE, "gt": exp.GT, "gte": exp.GTE,
            "is_not_distinct_from": exp.NullSafeEQ, "is_distinct_from": exp.NullSafeNEQ,
        }.items()
    },
    "between": Known(build=_between),
    "is_null": Known(build=_is(exp.null, truth=False)),
    "is_not_null": Known(build=_is(exp.null, not_=True, truth=False)),
    "is_true": Known(build=_is(_TRUE)),
    "is_not_true": Known(build=_is(_TRUE, not_=True)),
    "is_false": Known(build=_is(_FALSE)),
    "is_not_false": Known(build=_is(_FALSE, not_=True)),
    "is_unknown": Known(build=_is(exp.null), own=True),
    "is_not_unknown": Known(build=_is(exp.null, not_=True), own=True),
    "and": Known(build=_connected(exp.And)),
    "or": Known(build=_connected(exp.Or)),
    "not": Known(build=_not),
    "coalesce": Known(build=_coalesce),
    "nullif": Known(build=_nullif),
    "least_skip_null": Known(build=_extreme("least")),
    "greatest_skip_null": Known(build=_extreme("greatest")),
    "add": Known(build=_plus(exp.Add), options=_ERROR | {"rounding": "TIE_TO_EVEN"}),
    "subtract": Known(build=_plus(exp.Sub), options=_ERROR | {"rounding": "TIE_TO_EVEN"}),
    "multiply": Known(build=_multiply, options=_ERROR | {"rounding": "TIE_TO_EVEN"}),
    "divide": Known(
        build=_divide,
        options=_ERROR | {"rounding": "TIE_TO_EVEN", "on_domain_error": "NAN", "on_division_by_zero": "LIMIT"},
    ),
    **dict.fromkeys(("modulus", "mod"), Known(build=_modulus, options=_ERROR | {"division_type": "TRUNCATE"})),
    "negate": Known(build=_negate, options=_ERROR),
    "abs": Known(build=_abs, options=_ERROR),
    "sign": Known(build=_sign),
    "sqrt": Known(build=_of_floats("sqrt"), options={"rounding": "TIE_TO_EVEN", "on_domain_error": "NAN"}),
    **{name: Known(build=_of_floats(name)) for name in _PLAIN_OF_FLOATS},
    **{
        name: Known(build=_of_floats(name), options={"on_domain_error": "NAN", "on_log_zero": "MINUS_INFINITY"})
        for name in ("ln", "log10", "log2")
    },
    "power": Known(build=_of_floats("power", 2), options=_ERROR),
    "cbrt": Known(build=_of_floats("cbrt"), own=True),
    "ceil": Known(build=_whole_of("ceil")),
    "floor": Known(build=_whole_of("floor")),
    "trunc": Known(build=_whole_of("trunc"), own=True),
    "round": Known(build=_round, options={"rounding": "TIE_AWAY_FROM_ZERO"}),
    "is_nan": Known(build=_asks_float("isnan")),
    "is_infinite": Known(build=_asks_float("isinf")),
    "is_finite": Known(build=_asks_float("isfinite")),
    "bitwise_and": Known(build=_bits(exp.BitwiseAnd)),
    "bitwise_or": Known(build=_bits(exp.BitwiseOr)),
    "bitwise_xor": Known(build=_bits(exp.BitwiseXor)),
    "bitwise_not": Known(build=_bits(None)),
    "get_field": Known(build=_field, own=True),
    **{name: Known(build=build, options=options, own=own) for name, (build, options, own) in TEXT_FUNCTIONS.items()},
    **{name: Known(build=build, own=own) for name, (build, own) in TIME_FUNCTIONS.items()},
}  # fmt: skip
