"""Columns and values of Debezium's events, as its schemas encode them; pure.

A schema says of each column what it is (`io.debezium.time.MicroTimestamp`, `org.apache.kafka.connect.data.Decimal` …).
Events without a schema do not: their columns are declared, and so is what a number in a time column counts. A value is
taken as it is or not at all.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, SourceUnfit

MAX_DIGITS: Final = 38
_FIRST_DAY, _LAST_DAY, _DAY_S = -719_162, 2_932_896, 86_400
_STEPS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_UNITS: Final = {"ms": 1_000, "us": 1, "ns": 1}
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."
_NAMED: Final[Mapping[str, tuple[pa.DataType, int]]] = {  # and how many steps of the type one of theirs is
    f"{_CONNECT}Date": (pa.date32(), 1),
    f"{_CONNECT}Time": (pa.time64("us"), 1_000),
    f"{_CONNECT}Timestamp": (pa.timestamp("ms"), 1),
    f"{_DEBEZIUM}time.Date": (pa.date32(), 1),
    f"{_DEBEZIUM}time.Time": (pa.time64("us"), 1_000),
    f"{_DEBEZIUM}time.MicroTime": (pa.time64("us"), 1),
    f"{_DEBEZIUM}time.NanoTime": (pa.time64("ns"), 1),
    f"{_DEBEZIUM}time.Timestamp": (pa.timestamp("ms"), 1),
    f"{_DEBEZIUM}time.MicroTimestamp": (pa.timestamp("us"), 1),
    f"{_DEBEZIUM}time.NanoTimestamp": (pa.timestamp("ns"), 1),
    f"{_DEBEZIUM}time.ZonedTimestamp": (pa.timestamp("us", "UTC"), 0),
    f"{_DEBEZIUM}time.ZonedTime": (pa.string(), 1),
    f"{_DEBEZIUM}time.Interval": (pa.string(), 1),
    f"{_DEBEZIUM}time.MicroDuration": (pa.int64(), 1),
    f"{_DEBEZIUM}time.Year": (pa.int32(), 1),
    f"{_DEBEZIUM}data.Json": (pa.string(), 1),
    f"{_DEBEZIUM}data.Xml": (pa.string(), 1),
    f"{_DEBEZIUM}data.Uuid": (pa.string(), 1),
    f"{_DEBEZIUM}data.Enum": (pa.string(), 1),
    f"{_DEBEZIUM}data.EnumSet": (pa.string(), 1),
    f"{_DEBEZIUM}data.Ltree": (pa.string(), 1),
    f"{_DEBEZIUM}data.Bits": (pa.binary(), 1),
}
_DECLARED: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "int": pa.int32(),
    "bigint": pa.int64(), "real": pa.float32(), "double": pa.float64(), "varchar": pa.string(), "text": pa.string(),
    "blob": pa.binary(), "date": pa.date32(), "time": pa.time64("us"), "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}  # fmt: skip
_NUMBER = re.compile("[0-9]{1,3}")
_DECLARATION = re.compile(
    r"\s*(\"(?:[^\"]|\"\")+\"|[A-Za-z_]\w*)\s+([a-z]+)(?:\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\))?(\s+not\s+null)?\s*(,|$)",
    re.IGNORECASE,
)


@frozen
class EventColumn:
    """A column as events have it. Numbers in it count `scale` of the type's steps; 0: texts are read, numbers are none.

    `base64` says that decimals are the bytes of their digits, and not texts.
    """

    name: str
    kind: pa.DataType
    nullable: bool
    scale: int = 1
    base64: bool = True


def columns_of_schema(there: str, fields: Sequence[Mapping[str, Any]]) -> tuple[EventColumn, ...]:
    """The columns that the schema of an event's row has. Raises `SourceUnfit` naming one that cannot be followed."""
    return tuple(_of_schema(there, field) for field in fields)


def _of_schema(there: str, field: Mapping[str, Any]) -> EventColumn:
    name, named, kind_there = str(field.get("field", "")), field.get("name"), field.get("type")
    nullable = field.get("optional") is not False
    if named is None and isinstance(kind_there, str) and kind_there in _PLAIN:
        return EventColumn(name, _PLAIN[kind_there], nullable)
    if isinstance(named, str) and named in _NAMED:
        kind, scale = _NAMED[named]
        return EventColumn(name, kind, nullable, scale)
    if named == f"{_CONNECT}Decimal":
        given = field.get("parameters")
        known = given if isinstance(given, dict) else {}
        digits, places = str(known.get("connect.decimal.precision", MAX_DIGITS)), str(known.get("scale", ""))
        if (
            _NUMBER.fullmatch(digits)
            and _NUMBER.fullmatch(places)
            and int(places) <= int(digits) <= MAX_DIGITS
            and int(digits)
        ):
            return EventColumn(name, pa.decimal128(int(digits), int(places)), nullable)
    raise SourceUnfit(
        f"column '{name[:60]}' of {there} is {str(named or kind_there)[:80]}, which no column here can be: "
        "leave it out by the connector's column.exclude.list, or have numbers as texts by decimal.handling.mode=string"
    )


def declared_columns(text: str, time_unit: str | None, decimals: str | None) -> tuple[EventColumn, ...]:
    """The columns of events without a schema, as `id bigint not null, price decimal(9, 2), at timestamp` declares them.

    Raises `ConfigError`.

    >>> [column.name for column in declared_columns("id bigint not null, v text", None, None)]
    ['id', 'v']
    """
    found: list[EventColumn] = []
    place = 0
    while place < len(text):
        match = _DECLARATION.match(text, place)
        if match is None:
            raise ConfigError(
                f"columns: cannot be read from {text[place : place + 40]!r} on; write a name, a type and perhaps NOT "
                f"NULL, with commas between columns; types are {', '.join(_DECLARED)} and decimal(p, s)"
            )
        found.append(_declared(match, time_unit, decimals))
        place = match.end()
    names = [column.name for column in found]
    if not found or len(set(names)) != len(names):
        raise ConfigError("columns: name each column of the events once")
    return tuple(found)


def _declared(match: re.Match[str], time_unit: str | None, decimals: str | None) -> EventColumn:
    name, word, digits, scale, required = match[1], match[2].lower(), match[3], match[4], match[5]
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name
    if word in ("decimal", "numeric") and digits is not None:
        if decimals not in ("base64", "text"):
            raise ConfigError("decimals: missing; 'base64' as decimal.handling.mode=precise has them, or 'text'")
        if not int(scale) <= int(digits) <= MAX_DIGITS or not int(digits):
            raise ConfigError(f"columns: '{name}' has more than {MAX_DIGITS} digits, or a scale beyond them")
        return EventColumn(name, pa.decimal128(int(digits), int(scale)), not required, 1, decimals == "base64")
    if word not in _DECLARED or digits is not None:
        raise ConfigError(f"columns: '{name}' has the type {word}; take {', '.join(_DECLARED)} or decimal(p, s)")
    kind = _DECLARED[word]
    if not (pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)):
        return EventColumn(name, kind, not required, 0 if pa.types.is_timestamp(kind) else 1)
    if time_unit not in _UNITS:
        raise ConfigError(f"time_unit: missing; say what numbers of '{name}' count: ms, us or ns")
    if time_unit == "ns":
        kind = pa.time64("ns") if pa.types.is_time(kind) else pa.timestamp("ns")
    return EventColumn(name, kind, not required, _UNITS[time_unit])


def values(there: str, column: EventColumn, given: Sequence[Any]) -> pa.Array:
    """The values of a column whose JSON these are. Raises `SourceUnfit` naming the first that is none."""
    read = _reader(column)
    try:
        return pa.array([None if value is None else read(value) for value in given], column.kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, InvalidOperation):
        wrong = next((value for value in given if value is not None and not _fits(read, value, column.kind)), None)
        raise SourceUnfit(
            f"column '{column.name}' of {there} has the value {str(wrong)[:60]!r}, which no {column.kind} here can be: "
            "change it there, and copy the table anew"
        ) from None


def _fits(read: Callable[[Any], Any], value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([read(value)], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, InvalidOperation):
        return False
    return True


def _reader(column: EventColumn) -> Callable[[Any], Any]:
    kind, types = column.kind, pa.types
    if types.is_boolean(kind):
        return _exact(bool)
    if types.is_integer(kind):
        return _exact(int)
    if types.is_floating(kind):
        return _float
    if types.is_string(kind):
        return _exact(str)
    if types.is_binary(kind):
        return lambda value: base64.b64decode(_exact(str)(value), validate=True)
    if types.is_decimal(kind):
        return _digits(kind) if column.base64 else lambda value: Decimal(_exact(str, int)(value))
    if types.is_timestamp(kind) and column.scale == 0:
        return _zoned
    low, high = _bounds(kind)
    return lambda value: _within(_exact(int)(value) * column.scale, low, high)


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    """The first steps of the type that are no values any more: beyond the years 1 to 9999, beyond a day."""
    if pa.types.is_time(kind):
        return -1, _DAY_S * _STEPS[kind.unit]
    steps = 1 if pa.types.is_date(kind) else _DAY_S * _STEPS[kind.unit]
    return _FIRST_DAY * steps - 1, (_LAST_DAY + 1) * steps


def _within(number: int, below: int, above: int) -> int:
    if not below < number < above:
        raise ValueError(number)
    return number


def _exact(*kinds: type) -> Callable[[Any], Any]:
    def same(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(type(value).__name__)
        return value

    return same


def _float(value: Any) -> float:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(_exact(int, float)(value))


def _digits(kind: pa.DataType) -> Callable[[Any], Decimal]:
    def read(value: Any) -> Decimal:
        unscaled = int.from_bytes(base64.b64decode(_exact(str)(value), validate=True), "big", signed=True)
        # Written out: arithmetic on decimals rounds to the digits of a context.
        return Decimal(f"{unscaled}E-{kind.scale}")

    return read


def _zoned(value: Any) -> Any:
    found = pa.scalar(_exact(str)(value)).cast(pa.timestamp("ns", "UTC"))
    return found.cast(pa.timestamp("us", "UTC"), safe=True).value
