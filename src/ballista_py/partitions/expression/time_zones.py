"""Instants to local times of a named zone, and the range of times that every engine agrees about.

Arrow knows the transitions that the zone database lists and stops there (in 2037 for most zones); later ones
follow from the zone's rules, which repeat with the calendar every 400 years.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.one_line import one_line

MICROSECONDS_A_DAY = 86_400_000_000
FIRST_DAY = -719_162  # 0001-01-01
LAST_DAY = 2_932_896  # 9999-12-31

_OFFSET = re.compile(r"[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]")
_CYCLE_S = 146_097 * 86_400
_RULES_FROM = dt.datetime(2037, 1, 1, tzinfo=dt.UTC)
_CYCLE_FROM = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
_STEP_S = 3 * 86_400

Microseconds = npt.NDArray[np.int64]


@cache
def is_zone(name: str) -> bool:
    """Whether a type may name this time zone: one of the database, or an offset.

    >>> [is_zone(name) for name in ("Europe/Berlin", "+05:30", "-00:00", "Nowhere/Land", "+25:00", "utc")]
    [True, True, True, False, False, False]
    """
    if _OFFSET.fullmatch(name):
        return True
    try:
        check_zone(name)
    except UnsupportedExpression:
        return False
    return True


def zone_that_is_none(kind: pa.DataType) -> str | None:
    """The time zone in a type, or in one inside it, that there is not.

    >>> zone_that_is_none(pa.list_(pa.timestamp("us", "Nowhere/Land")))
    'Nowhere/Land'
    """
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_timestamp(kind):
        return None if kind.tz is None or is_zone(kind.tz) else str(kind.tz)
    inside = [kind.value_type] if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else []
    inside += [kind.field(number).type for number in range(kind.num_fields)]
    return next((zone for one in inside if (zone := zone_that_is_none(one)) is not None), None)


def no_zone(name: str) -> str:
    """What is to be said of a time zone that there is not."""
    return f"'{one_line(name, 64)}' is not a time zone: name one such as 'UTC' or 'Europe/Berlin'"


def check_zone(name: str) -> str:
    """`name` if it is a time zone of the database; raises `UnsupportedExpression` otherwise."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise UnsupportedExpression(no_zone(name)) from None
    return name


def local_times(values: pa.Array, time_zone: str) -> pa.Array:
    """A timestamp column as wall-clock microseconds: instants in `time_zone`, zoneless ones as they stand.

    Raises `SchemaMismatch` for times before the year 1 or after 9999, about which engines disagree.
    """
    zone = values.type.tz
    values = _in_microseconds(values)
    if zone is not None and time_zone != "UTC":
        values = _local(values, time_zone)
    return check_range(values.view(pa.timestamp("us")))


def check_range(values: pa.Array) -> pa.Array:
    """A date or timestamp column, if all of it lies in the years 1 to 9999; raises `SchemaMismatch` otherwise."""
    if len(values) == values.null_count:
        return values
    per_day = 1 if pa.types.is_date32(values.type) else MICROSECONDS_A_DAY
    raw = values.view(pa.int32() if per_day == 1 else pa.int64())
    bounds = pc.min_max(raw).as_py()
    if bounds["min"] < FIRST_DAY * per_day or bounds["max"] >= (LAST_DAY + 1) * per_day:
        raise beyond_range()
    return values


def beyond_range() -> SchemaMismatch:
    """The refusal of a time that `check_range` lets not pass."""
    return SchemaMismatch("a partition key reads a time before the year 1 or after the year 9999")


def _in_microseconds(values: pa.Array) -> pa.Array:
    """The column as a plain one of microseconds, floored."""
    kind = values.type
    if kind.unit == "ns":
        raw = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)]
        floored = np.floor_divide(raw, 1_000)
        return pa.array(floored, mask=_nulls(values))
    try:
        return values.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    except pa.ArrowInvalid as error:
        raise SchemaMismatch("a timestamp lies outside of what microseconds can hold") from error


def _local(instants: pa.Array, time_zone: str) -> pa.Array:
    utc = instants.view(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", time_zone))
    local = pc.local_timestamp(utc).view(pa.int64())
    late = pc.greater_equal(instants, pa.scalar(int(_RULES_FROM.timestamp()) * 1_000_000))
    if not pc.any(late).as_py():
        return local
    by_rule = pc.fill_null(instants, 0).to_numpy()
    by_rule = by_rule + _offsets_by_rule(by_rule, time_zone) * 1_000_000
    return pc.if_else(late, pa.array(by_rule), local)


def _offsets_by_rule(instants: Microseconds, time_zone: str) -> npt.NDArray[np.int64]:
    """Seconds east of Greenwich from 2037 on."""
    seconds = np.floor_divide(instants, 1_000_000)
    start = int(_CYCLE_FROM.timestamp())
    seconds = np.where(seconds >= start, (seconds - start) % _CYCLE_S + start, seconds)
    times, offsets = _rules(time_zone)
    return offsets[np.maximum(np.searchsorted(times, seconds, side="right") - 1, 0)]


@cache
def _rules(time_zone: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Transitions from 2037 to the end of one cycle after 2100: when, and the offset from then on."""
    zone = ZoneInfo(time_zone)

    def offset(second: int) -> int:
        there = dt.datetime.fromtimestamp(second, zone).utcoffset()
        return 0 if there is None else int(there.total_seconds())

    before = int(_RULES_FROM.timestamp())
    times, offsets = [before], [offset(before)]
    end = int(_CYCLE_FROM.timestamp()) + _CYCLE_S
    for after in range(before + _STEP_S, end, _STEP_S):
        found = offset(after)
        if found != offsets[-1]:
            low, high = after - _STEP_S, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if offset(middle) == found else (middle, high)
            times.append(high)
            offsets.append(found)
    return np.array(times), np.array(offsets)


def _nulls(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else None
