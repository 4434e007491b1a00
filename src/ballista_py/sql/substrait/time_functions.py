"""Functions of dates and times; parts are asked for by words that the plan writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from sqlglot import exp

from ballista_py.sql.substrait.calls import I32, I64, TEXT, Call, Value, between_signs, cast, function
from ballista_py.sql.substrait.kinds import MONTHS, UTC
from ballista_py.sql.substrait.text_functions import literal_text

Builder = Callable[[Call], Value]
_DATE, _ZONED = pa.date32(), pa.timestamp("us", UTC)
_PLAIN_TIMES = frozenset(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))
_OF_DATES = {
    "YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day", "DAY_OF_YEAR": "dayofyear",
    "ISO_WEEK": "week", "ISO_YEAR": "isoyear", "ISO_DAY_OF_WEEK": "isodow",
}  # fmt: skip
_OF_TIMES = {"HOUR": "hour", "MINUTE": "minute"}
_INDEXED = frozenset(["QUARTER", "MONTH", "DAY", "DAY_OF_YEAR", "ISO_WEEK"])
# What DataFusion calls the same.
_PARTS = {
    "year": "year", "quarter": "quarter", "month": "month", "day": "day", "doy": "dayofyear", "week": "week",
    "dow": "dayofweek", "hour": "hour", "minute": "minute",
}  # fmt: skip
_UNITS = frozenset(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
_SMALL_UNITS = frozenset(["hour", "minute", "second"])


def _extract(call: Call) -> Value:
    """`extract`: a word, for some another that says where counting starts, a time, and its zone if it has one."""
    words = [word.upper() for word in call.words]
    possible = "YEAR, QUARTER, MONTH, DAY, DAY_OF_YEAR, ISO_WEEK, ISO_YEAR, HOUR or MINUTE, counted from ONE"
    call.require(bool(words) and bool(call.values), possible)
    part = words[0]
    call.require(words[1:] in ([], ["ONE"]) and (not words[1:] or part in _INDEXED), possible)
    kind = call.kinds[0]
    name = _OF_DATES.get(part) or (_OF_TIMES.get(part) if kind != _DATE else None)
    call.require(name is not None and _is_time(kind), possible)
    if kind != _ZONED:
        call.require(len(call.values) == 1, possible)
        return Value(function(str(name), call.trees[0]), I64)
    call.require(len(call.values) == 2 and call.kinds[1] == TEXT, "a time with a zone needs the name of one")
    return Value(function(str(name), _in_zone(call)), I64)


def _in_zone(call: Call) -> exp.Expr:
    zone = literal_text(call.trees[1])
    call.require(zone is not None and zone.upper() in ("UTC", "Z", "ETC/UTC"), "the zone must be UTC")
    return function("timezone", exp.Literal.string(UTC), call.trees[0])


def _is_time(kind: pa.DataType) -> bool:
    return kind in (_DATE, _ZONED) or kind in _PLAIN_TIMES


def _utc(value: Value) -> exp.Expr:
    """The time on the clock of UTC, by which DataFusion counts what it has no zone of."""
    return function("timezone", exp.Literal.string(UTC), value.tree) if value.kind == _ZONED else value.tree


def _date_part(call: Call) -> Value:
    possible = "year, quarter, month, day, doy, week, dow, hour or minute of a date or timestamp"
    call.require(len(call.values) == 2 and _is_time(call.kinds[1]), possible)
    part = _PARTS.get((literal_text(call.trees[0]) or "").lower())
    call.require(part is not None and not (part in _SMALL_UNITS and call.kinds[1] == _DATE), possible)
    return Value(cast(function(str(part), _utc(call.values[1])), I32), I32)


def _date_trunc(call: Call) -> Value:
    possible = "year, quarter, month, week, day, hour, minute or second of a date or timestamp"
    call.require(len(call.values) == 2 and _is_time(call.kinds[1]), possible)
    unit, kind = (literal_text(call.trees[0]) or "").lower(), call.kinds[1]
    call.require(unit in _UNITS and not (unit in _SMALL_UNITS and kind == _DATE), possible)
    cut = exp.TimestampTrunc(this=_utc(call.values[1]), unit=exp.Var(this=unit.upper()))
    if kind == _ZONED:
        return Value(function("timezone", exp.Literal.string(UTC), cut), kind)
    return Value(cut if kind == pa.timestamp("us") else cast(cut, kind), kind)


def moved(call: Call, kind: type[exp.Binary]) -> Value:
    """A date or time and an interval, added or subtracted: a date stays one if the plan says so."""
    time, step = call.kinds
    possible = "it moves a date or a timestamp"
    if time == _ZONED and not call.standard:
        zone = exp.Literal.string(UTC)
        there = between_signs(kind, function("timezone", zone, call.trees[0]), call.trees[1])
        call.require(step == MONTHS, possible)
        return Value(function("timezone", zone.copy(), there), _ZONED)
    call.require(step == MONTHS and (time == _DATE or time == pa.timestamp("us")), possible)
    made = between_signs(kind, *call.trees)
    if time == _DATE and call.said == _DATE:
        return Value(cast(made, _DATE), _DATE)
    return Value(made, pa.timestamp("us"))


TIME_FUNCTIONS: Mapping[str, tuple[Builder, bool]] = {
    "extract": (_extract, False),
    "date_part": (_date_part, True),
    "date_trunc": (_date_trunc, True),
}
