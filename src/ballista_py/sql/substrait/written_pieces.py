"""Pieces of a plan that is written: fields, literals, casts and calls, each with the type of what it gives."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.kinds import decimal, message_of
from ballista_py.sql.substrait.messages import messages

_URI = "https://github.com/substrait-io/substrait/blob/main/extensions/functions_{}.yaml"
TEXT_TIMES = (pa.date32(), pa.timestamp("us"))
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?")
_DAY_US = 86_400 * 10**6
_SHORT = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float": "fp32", "double": "fp64",
    "string": "str", "binary": "vbin", "date32[day]": "date",
}  # fmt: skip
THROW, RESULT = 2, 3
# Where each function is said to be of, and whether its name ends in the types of its arguments or in "any".
_OF = {
    **dict.fromkeys(
        ("equal", "not_equal", "lt", "lte", "gt", "gte", "is_not_distinct_from", "is_distinct_from", "is_null",
         "is_not_null", "nullif", "coalesce", "is_true", "is_false"),
        "comparison",
    ),
    **dict.fromkeys(("and", "or", "not", "bool_and", "bool_or"), "boolean"),
    **dict.fromkeys(("count", "any_value"), "aggregate_generic"),
    **dict.fromkeys(("like", "upper", "lower", "substring", "starts_with", "ends_with", "contains"), "string"),
    **dict.fromkeys(("ceil", "floor", "round"), "rounding"),
}  # fmt: skip
_OF_ANY = frozenset(
    ("equal", "not_equal", "lt", "lte", "gt", "gte", "is_not_distinct_from", "is_distinct_from", "is_null", "nullif",
     "is_not_null", "coalesce", "count", "any_value", "first_value", "last_value", "lag", "lead")
)  # fmt: skip


@frozen(eq=False)
class Term:
    """An expression of a plan and its type, which NULL alone has none of; `whole` is the number that a literal is."""

    message: Any
    kind: pa.DataType | None
    whole: int | None = None


@define(eq=False)
class Functions:
    """The functions that a plan uses, each declared once; the one thing here that grows."""

    anchors: dict[tuple[str, str], int] = field(factory=dict)

    def anchor(self, name: str, kinds: Sequence[pa.DataType]) -> int:
        """The anchor of a function with arguments of these types."""
        key = (_OF.get(name, _arithmetic(kinds)), compound(name, kinds))
        return self.anchors.setdefault(key, len(self.anchors) + 1)

    def declare(self, plan: Any) -> None:
        """Put all of them into the plan."""
        files = {name: n for n, name in enumerate(dict.fromkeys(file for file, _ in self.anchors), 1)}
        for name, place in files.items():
            plan.extension_uris.add(extension_uri_anchor=place, uri=_URI.format(name))
        for (file, name), anchor in self.anchors.items():
            one = plan.extensions.add().extension_function
            one.extension_uri_reference, one.function_anchor, one.name = files[file], anchor, name


def _arithmetic(kinds: Sequence[pa.DataType]) -> str:
    return "arithmetic_decimal" if any(pa.types.is_decimal(kind) for kind in kinds) else "arithmetic"


def compound(name: str, kinds: Sequence[pa.DataType]) -> str:
    """The name with the types of its arguments, as Substrait tells functions of one name apart.

    >>> compound("add", [pa.int64(), pa.int64()]), compound("equal", [pa.string(), pa.string()])
    ('add:i64_i64', 'equal:any_any')
    """
    if name in ("and", "or"):
        return f"{name}:bool"
    shorts = ["any" if name in _OF_ANY else _short(kind) for kind in kinds]
    return f"{name}:{'_'.join(shorts)}"


def _short(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return "dec"
    if pa.types.is_timestamp(kind):
        return "ptstz" if kind.tz else "pts"
    return _SHORT.get(str(kind), "any")


def expression() -> Any:
    """An empty expression."""
    return messages().algebra.Expression()


def field_ref(place: int, kind: pa.DataType) -> Term:
    """A field by its place."""
    made = expression()
    made.selection.direct_reference.struct_field.field = place
    made.selection.root_reference.SetInParent()
    return Term(made, kind)


def call(functions: Functions, name: str, values: Sequence[Term], kind: pa.DataType) -> Term:
    """A call of a scalar function."""
    made = expression()
    said = made.scalar_function
    fill_call(said, functions, name, values, kind)
    return Term(made, kind)


def fill_call(said: Any, functions: Functions, name: str, values: Sequence[Term], kind: pa.DataType) -> None:
    """Put function, arguments and type into a call of any kind."""
    said.function_reference = functions.anchor(name, [known(value) for value in values])
    said.output_type.CopyFrom(message_of(kind))
    for value in values:
        said.arguments.add().value.CopyFrom(value.message)


def known(value: Term) -> pa.DataType:
    """The type of a value. Raises `UnsupportedExpression` for a NULL that nothing gives a type."""
    if value.kind is None:
        raise UnsupportedExpression("a NULL without a type cannot be said in Substrait: cast it")
    return value.kind


def cast_to(value: Term, kind: pa.DataType) -> Term:
    """The value as this type, or an error where it does not fit; NULL takes it, and a whole number that fits."""
    if value.kind == kind:
        return value
    if value.kind is None:
        return null(kind)
    if value.whole is not None and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return whole_as(value.whole, kind)
    if (text := plain_text(value)) is not None:
        return _of_text(text, kind)
    made = expression()
    made.cast.type.CopyFrom(message_of(kind))
    made.cast.input.CopyFrom(value.message)
    made.cast.failure_behavior = THROW
    return Term(made, kind)


def plain_text(value: Term) -> str | None:
    """The text that a literal is."""
    said = value.message
    if said.WhichOneof("rex_type") != "literal" or said.literal.WhichOneof("literal_type") != "string":
        return None
    return str(said.literal.string)


def _of_text(text: str, kind: pa.DataType) -> Term:
    """The date or time that a text is in its plainest form: others read further forms, and not the same ones."""
    made = expression()
    moment = None
    if _DATE.fullmatch(text) or (_MOMENT.fullmatch(text) and kind != pa.date32()):
        with contextlib.suppress(ValueError):
            moment = dt.datetime.fromisoformat(text)
    if moment is None or kind not in TEXT_TIMES:
        raise UnsupportedExpression(f"'{text[:40]}' as {kind} is read in several ways")
    micros = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    if kind == pa.date32():
        made.literal.date = micros // _DAY_US
    else:
        made.literal.precision_timestamp.precision, made.literal.precision_timestamp.value = 6, micros
    return Term(made, kind)


def again(value: Term) -> Term:
    """The value cast to the type that it is said to have, for readers to whom it has another."""
    bare = Term(value.message, pa.null())
    return cast_to(bare, known(value))


def float_of(text: str, kind: pa.DataType) -> Term:
    """A float literal; by its text, since some have no other name."""
    made = expression()
    setattr(made.literal, "fp64" if kind == pa.float64() else "fp32", float(text))
    return Term(made, kind)


def choice(condition: Term, value: Term, otherwise: Term) -> Term:
    """One value if a condition holds, else another of its type."""
    made = expression()
    clause = made.if_then.ifs.add()
    getattr(clause, "if").CopyFrom(condition.message)
    clause.then.CopyFrom(value.message)
    getattr(made.if_then, "else").CopyFrom(otherwise.message)
    return Term(made, value.kind)


def null(kind: pa.DataType) -> Term:
    """NULL of a type."""
    made = expression()
    made.literal.null.CopyFrom(message_of(kind))
    made.literal.nullable = True
    return Term(made, kind)


def whole_as(value: int, kind: pa.DataType) -> Term:
    """A whole number as a literal of this type. Raises `UnsupportedExpression` if it does not fit."""
    made = expression()
    if pa.types.is_decimal(kind):
        return decimal_of(value * 10**kind.scale, kind)
    if not fits_whole(value, kind):
        raise UnsupportedExpression(f"{value} is no {kind}")
    if pa.types.is_unsigned_integer(kind):
        return cast_to(whole_as(value, pa.int64()), kind) if value < 1 << 63 else _refused_whole(value)
    setattr(made.literal, _SHORT[str(kind)], value)
    return Term(made, kind, whole=value)


def _refused_whole(value: int) -> Term:
    raise UnsupportedExpression(f"the number {value} cannot be said in Substrait")


def fits_whole(value: int, kind: pa.DataType) -> bool:
    """Whether a whole number type holds the value.

    >>> fits_whole(128, pa.int8()), fits_whole(255, pa.uint8())
    (False, True)
    """
    bits = kind.bit_width
    if pa.types.is_unsigned_integer(kind):
        return bool(0 <= value < 1 << bits)
    return bool(-(1 << (bits - 1)) <= value < 1 << (bits - 1))


def decimal_of(unscaled: int, kind: pa.DataType) -> Term:
    """A decimal literal, by its digits without the point."""
    if abs(unscaled) >= 10**kind.precision:
        raise UnsupportedExpression(f"a number has more digits than a decimal of {kind.precision}")
    made = expression()
    said = made.literal.decimal
    said.value = unscaled.to_bytes(16, "little", signed=True)
    said.precision, said.scale = kind.precision, kind.scale
    return Term(made, kind)


def number_of(text: str) -> Term:
    """A number as the engine reads it: whole, a decimal, or a double if it has an exponent."""
    made = expression()
    if "e" in text.lower():
        made.literal.fp64 = float(text)
        return Term(made, pa.float64())
    whole, point, behind = text.partition(".")
    if point:
        return decimal_of(int(whole + behind), decimal(len(whole) + len(behind), len(behind)))
    value = int(text)
    for kind in (pa.int32(), pa.int64()):
        if fits_whole(value, kind):
            return whole_as(value, kind)
    return decimal_of(value, decimal(38, 0))


def text_of(value: str) -> Term:
    """A text."""
    made = expression()
    made.literal.string = value
    return Term(made, pa.string())


def truth(value: bool) -> Term:
    """True or false."""
    made = expression()
    made.literal.boolean = value
    return Term(made, pa.bool_())
