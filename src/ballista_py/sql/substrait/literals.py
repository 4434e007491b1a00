"""Literals: every type with exactly its values, as text that the engine reads back as the same value."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.calls import Value, cast
from ballista_py.sql.substrait.kinds import MONTHS, UTC, decimal, kind_of

_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal()
_DAY_US = 86_400 * 10**6
_RANGES = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}
_UNSIGNED_BITS = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
_WHOLE = {"i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64()}


def literal(message: Any) -> Value:
    """The value of a literal.

    Raises `InvalidData` for one outside its type, and `UnsupportedExpression` for a type that is not taken.
    """
    name = message.WhichOneof("literal_type")
    if name is None:
        raise InvalidData("the plan is malformed: a literal says nothing")
    if message.type_variation_reference and name not in ("null", "string", "binary"):
        if name in _WHOLE and message.type_variation_reference == 1:
            return _unsigned(name, getattr(message, name))
        raise UnsupportedExpression(f"a literal {name} of another variation is not taken: send the plain type")
    made = _MAKERS.get(name)
    if made is None:
        raise UnsupportedExpression(f"a literal {name} is not taken: read such values from the table")
    return made(getattr(message, name))


def text(value: str) -> exp.Expr:
    """A text in the statement. Raises `UnsupportedExpression` for one with a NUL."""
    if "\0" in value:
        raise UnsupportedExpression("a text with the character NUL is not taken")
    return exp.Literal.string(value)


def number(value: int) -> exp.Expr:
    """A whole number, as wide as it needs to be.

    >>> number(-3).sql()
    '-3'
    """
    plain = exp.Literal.number(str(abs(value)))
    return exp.Neg(this=plain) if value < 0 else plain


def null(kind: pa.DataType) -> Value:
    """NULL of a type."""
    return Value(cast(exp.Null(), kind), kind)


def _of_text(value: str, kind: pa.DataType) -> Value:
    return Value(cast(exp.Literal.string(value), kind), kind)


def _whole(name: str) -> Callable[[Any], Value]:
    def made(value: int) -> Value:
        if not -(1 << _RANGES[name]) <= value < 1 << _RANGES[name]:
            raise InvalidData(f"the plan is malformed: {value} is no {name}")
        return _integer(value, _WHOLE[name])

    return made


def _integer(value: int, kind: pa.DataType) -> Value:
    """Negative numbers go by their text, since the engine reads the number behind the sign first."""
    if value < 0:
        return _of_text(str(value), kind)
    return Value(cast(exp.Literal.number(str(value)), kind), kind)


def _unsigned(name: str, value: int) -> Value:
    kind = {"i8": pa.uint8(), "i16": pa.uint16(), "i32": pa.uint32(), "i64": pa.uint64()}[name]
    bits = _UNSIGNED_BITS[kind]
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise InvalidData(f"the plan is malformed: {value} is no unsigned {name}")
    return _integer(value % (1 << bits), kind)


def _float(kind: pa.DataType) -> Callable[[Any], Value]:
    def made(value: float) -> Value:
        said = "nan" if math.isnan(value) else repr(value)  # of the nearest double, which an fp32 is as well
        return _of_text(said, kind)

    return made


def _decimal(message: Any) -> Value:
    kind = decimal(message.precision, message.scale)
    if len(message.value) != 16:
        raise InvalidData("the plan is malformed: a decimal has 16 bytes")
    value = int.from_bytes(message.value, "little", signed=True)
    if abs(value) >= 10**kind.precision:
        raise InvalidData(f"the plan is malformed: a decimal has more than its {kind.precision} digits")
    digits = str(abs(value)).rjust(kind.scale + 1, "0")
    whole, behind = digits[: len(digits) - kind.scale], digits[len(digits) - kind.scale :]
    return _of_text(("-" if value < 0 else "") + whole + ("." + behind if behind else ""), kind)


def _date(days: int) -> Value:
    return _of_text(_day(days), pa.date32())


def _day(days: int) -> str:
    place = days + _DAY_ZERO
    if not 1 <= place <= _LAST_DAY:
        raise UnsupportedExpression("a date before the year 1 or after 9999 is not taken")
    return dt.date.fromordinal(place).isoformat()


def _clock(micros: int) -> str:
    seconds, part = divmod(micros, 10**6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{part:06}"


def _time(micros: int) -> Value:
    if not 0 <= micros < _DAY_US:
        raise InvalidData("the plan is malformed: a time lies outside the day")
    return _of_text(_clock(micros), pa.time64("us"))


def _timestamp(kind: pa.DataType) -> Callable[[int], Value]:
    def made(micros: int) -> Value:
        days, rest = divmod(micros, _DAY_US)
        zone = "+00" if kind.tz else ""
        return _of_text(f"{_day(days)} {_clock(rest)}{zone}", kind)

    return made


def _precise(zone: str | None) -> Callable[[Any], Value]:
    def made(message: Any) -> Value:
        if message.precision not in (0, 3, 6, 9):
            raise UnsupportedExpression(
                f"a timestamp with {message.precision} digits is not taken: send one with 6"
            )
        if message.precision == 9:
            return _nanoseconds(message.value, zone)
        micros = message.value * 10 ** (6 - message.precision)
        value = _timestamp(pa.timestamp("us", zone))(micros)
        kind = pa.timestamp({0: "s", 3: "ms", 6: "us"}[message.precision])
        return value if zone or message.precision == 6 else Value(cast(value.tree, kind), kind)

    return made


def _nanoseconds(nanos: int, zone: str | None) -> Value:
    if zone:
        raise UnsupportedExpression("a timestamp with a zone and nanoseconds is not taken: send one with 6 digits")
    days, rest = divmod(nanos, _DAY_US * 1000)
    return _of_text(f"{_day(days)} {_clock(rest // 1000)}{rest % 1000:03}", pa.timestamp("ns"))


def _precise_time(message: Any) -> Value:
    if message.precision not in (0, 3, 6):
        raise UnsupportedExpression(f"a time with {message.precision} digits is not taken: send one with 6")
    return _time(message.value * 10 ** (6 - message.precision))


def _binary(value: bytes) -> Value:
    return _of_text("".join(f"\\x{byte:02X}" for byte in value), pa.binary())


def _months(message: Any) -> Value:
    return _of_text(f"{message.years * 12 + message.months} months", MONTHS)


def _days(message: Any) -> Value:
    return _of_text(_span(message), MONTHS)


def _compound(message: Any) -> Value:
    months = message.interval_year_to_month
    return _of_text(f"{months.years * 12 + months.months} months {_span(message.interval_day_to_second)}", MONTHS)


def _span(message: Any) -> str:
    precision = message.precision if message.WhichOneof("precision_mode") == "precision" else 6
    part = message.microseconds if message.WhichOneof("precision_mode") == "microseconds" else message.subseconds
    if not 0 <= precision <= 9:
        raise InvalidData("the plan is malformed: an interval has 0 to 9 digits of a second")
    nanos = part * 10 ** (9 - precision)
    if nanos % 1000:
        raise UnsupportedExpression("an interval with nanoseconds is not taken: send one with 6 digits")
    return f"{message.days} days {message.seconds * 10**6 + nanos // 1000} microseconds"


def _list(message: Any) -> Value:
    values = [literal(one) for one in message.values]
    if not values:
        raise InvalidData("the plan is malformed: a list without values has a type of its own")
    kind = pa.list_(values[0].kind)
    if any(one.kind != values[0].kind for one in values):
        raise InvalidData("the plan is malformed: a list holds values of several types")
    return Value(cast(exp.Array(expressions=[one.tree for one in values]), kind), kind)


def _empty_list(message: Any) -> Value:
    kind = pa.list_(kind_of(message.type))
    return Value(cast(exp.Array(expressions=[]), kind), kind)


_MAKERS: Mapping[str, Callable[[Any], Value]] = {
    "boolean": lambda value: Value(exp.Boolean(this=value), pa.bool_()),
    **{name: _whole(name) for name in _WHOLE},
    "fp32": _float(pa.float32()),
    "fp64": _float(pa.float64()),
    "string": lambda value: Value(text(value), pa.string()),
    "fixed_char": lambda value: Value(text(value), pa.string()),
    "var_char": lambda value: Value(text(value.value), pa.string()),
    "binary": _binary,
    "fixed_binary": _binary,
    "decimal": _decimal,
    "date": _date,
    "time": _time,
    "precision_time": _precise_time,
    "timestamp": _timestamp(pa.timestamp("us")),
    "timestamp_tz": _timestamp(pa.timestamp("us", UTC)),
    "precision_timestamp": _precise(None),
    "precision_timestamp_tz": _precise(UTC),
    "interval_year_to_month": _months,
    "interval_day_to_second": _days,
    "interval_compound": _compound,
    "null": lambda kind: null(kind_of(kind)),
    "list": _list,
    "empty_list": _empty_list,
}
