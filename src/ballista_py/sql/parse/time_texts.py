"""Days, moments and times of day as the engine's text, from the whole numbers that Arrow holds.

Python's own dates end at the years 1 and 9999; what tables hold does not: there is infinity, the years BC and those
after 9999. No value passes through them here, and what the engine itself cannot hold is refused by name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ballista_py.errors import SqlError

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = 2 - 2**31, 2**31 - 2
_FIRST_US, _LAST_US = -9_223_372_022_400_000_000, 2**63 - 2


def date_text(value: pa.Scalar) -> str:
    """A date as text that the engine casts to just that DATE.

    Raises `SqlError` for a day that the engine has not.

    >>> date_text(pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())), date_text(pa.array([-719_163], pa.date32())[0])
    ('infinity', '0001-12-31 (BC)')
    """
    raw = _raw(value)
    days = raw if value.type == pa.date32() else raw // 86_400_000
    text = _infinity(raw, value.type.bit_width)
    if text is None and not _FIRST_DAY <= days <= _LAST_DAY:
        raise SqlError("a date parameter lies beyond the days that the engine has")
    return text or _day_text(days)


def timestamp_text(value: pa.Scalar) -> str:
    """A timestamp as text that the engine casts to just that TIMESTAMP, or TIMESTAMPTZ if its type has a zone.

    Raises `SqlError` for one finer than a microsecond, or beyond what the engine has.

    >>> timestamp_text(pa.scalar(5, pa.timestamp("ms", "Asia/Tokyo")))
    '1970-01-01 00:00:00.005000+00:00'
    """
    raw, unit = _raw(value), value.type.unit
    text = _infinity(raw, 64)
    if text is not None:
        return text
    if unit == "ns" and raw % 1_000:
        raise SqlError("a timestamp parameter is finer than a microsecond")
    micros = raw // 1_000 if unit == "ns" else raw * _MICROSECONDS[unit]
    if not _FIRST_US <= micros <= _LAST_US:
        raise SqlError("a timestamp parameter lies beyond the moments that the engine has")
    day, _, era = _day_text(micros // _DAY_US).partition(" ")
    clock = _clock_text(micros % _DAY_US)
    zone = "" if value.type.tz is None else "+00:00"
    return f"{day} {era} {clock}{zone}" if era else f"{day} {clock}{zone}"


def time_text(value: pa.Scalar) -> str:
    """A time of day as text that the engine casts to just that TIME.

    Raises `SqlError` for one finer than a microsecond, or beyond 24:00:00.
    """
    raw, unit = _raw(value), value.type.unit
    if unit == "ns" and raw % 1_000:
        raise SqlError("a time parameter is finer than a microsecond")
    micros = raw // 1_000 if unit == "ns" else raw * _MICROSECONDS[unit]
    if not 0 <= micros <= _DAY_US:
        raise SqlError("a time parameter lies beyond the 24 hours of a day")
    return _clock_text(micros)


def _raw(value: pa.Scalar) -> int:
    """The number under a date, timestamp or time."""
    number: int = value.value
    return number


def _infinity(raw: int, bits: int) -> str | None:
    """As the engine keeps it: the greatest number of the type, and that number below zero."""
    greatest = 2 ** (bits - 1) - 1
    return {greatest: "infinity", -greatest: "-infinity"}.get(raw)


def _day_text(days: int) -> str:
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return f"{int(year):04d}-{month}-{day}" if int(year) > 0 else f"{1 - int(year):04d}-{month}-{day} (BC)"


def _clock_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3_600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}" if fraction else text
