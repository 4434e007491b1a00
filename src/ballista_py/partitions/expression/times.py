"""The functions of partition keys that read dates and times: parts, truncation, the date of a timestamp.

Instants (timestamps with a zone) are seen as wall-clock times of the spec's zone, so the session's zone of an
engine has no say; results carry no zone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.expression.nodes import CallNode, Dialect, LiteralNode, Node
from ballista_py.partitions.expression.time_zones import MICROSECONDS_A_DAY, check_range, local_times
from ballista_py.partitions.type_names import type_name

DATE_UNITS = ("year", "quarter", "month", "week", "day")
UNITS = (*DATE_UNITS, "hour", "minute", "second")


@frozen
class TimePart:
    """`year(c)`, `quarter(c)`, `month(c)`, `day(c)` of dates and timestamps; `hour(c)` of timestamps."""

    name: str

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        if len(arguments) != 1:
            raise UnsupportedExpression(f"{self.name} takes one argument, not {len(arguments)}")
        _check_time(self.name, arguments[0], dates=self.name != "hour")
        return pa.int32()

    def text(self, *arguments: str) -> str:
        return f"{self.name}({arguments[0]})"

    def evaluate(self, _node: CallNode, arguments: Sequence[pa.Array], time_zone: str, /) -> pa.Array:
        part = getattr(pc, self.name)(wall_clock(arguments[0], time_zone))
        return part.cast(pa.int32())

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, time_zone: str, /) -> str:
        clock = wall_clock_sql(node.arguments[0].type, arguments[0], dialect, time_zone)
        part = f"{self.name}({clock})"
        return part if dialect == "spark" else f"cast({part} as integer)"


@frozen
class TruncateTime:
    """`date_trunc('unit', c)`: a date for a date, a timestamp without zone for a timestamp."""

    name: str = "date_trunc"

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        if len(arguments) != 2 or not isinstance(arguments[0], LiteralNode):
            raise UnsupportedExpression("date_trunc takes ('unit', column)")
        is_date = pa.types.is_date(arguments[1].type)
        units = DATE_UNITS if is_date else UNITS
        if arguments[0].value not in units:
            raise UnsupportedExpression(f"date_trunc takes {', '.join(units)} here, not {arguments[0].text()}")
        _check_time(self.name, arguments[1], dates=True)
        return pa.date32() if is_date else pa.timestamp("us")

    def text(self, *arguments: str) -> str:
        return f"date_trunc({arguments[0]}, {arguments[1]})"

    def evaluate(self, node: CallNode, arguments: Sequence[pa.Array], time_zone: str, /) -> pa.Array:
        return pc.floor_temporal(wall_clock(arguments[1], time_zone), unit=_unit(node), week_starts_monday=True)

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, time_zone: str, /) -> str:
        unit, is_date = _unit(node), pa.types.is_date(node.type)
        clock = wall_clock_sql(node.arguments[1].type, arguments[1], dialect, time_zone)
        if dialect == "duckdb":
            return f"cast(date_trunc('{unit}', {clock}) as {'date' if is_date else 'timestamp'})"
        if unit in DATE_UNITS:
            # Spark's own date_trunc makes an instant of the session's zone.
            day = clock if is_date else f"cast({clock} as date)"
            start = day if unit == "day" else f"trunc({day}, '{unit}')"
            return start if is_date else f"cast({start} as timestamp_ntz)"
        parts = [f"{part}({clock})" for part in ("year", "month", "day", "hour")]
        parts.append(f"minute({clock})" if unit in ("minute", "second") else "0")
        parts.append(f"cast(second({clock}) as decimal(8, 6))" if unit == "second" else "cast(0 as decimal(8, 6))")
        return f"make_timestamp_ntz({', '.join(parts)})"


@frozen
class CastToDate:
    """`cast(c as date)`: the day of a timestamp."""

    name: str = "cast"

    def check(self, arguments: tuple[Node, ...]) -> pa.DataType:
        _check_time("cast(… as date)", arguments[0], dates=True)
        return pa.date32()

    def text(self, *arguments: str) -> str:
        return f"cast({arguments[0]} as date)"

    def evaluate(self, _node: CallNode, arguments: Sequence[pa.Array], time_zone: str, /) -> pa.Array:
        clock = wall_clock(arguments[0], time_zone)
        if pa.types.is_date32(clock.type):
            return clock
        raw = pc.fill_null(clock.view(pa.int64()), 0).to_numpy()
        days = np.floor_divide(raw, MICROSECONDS_A_DAY).astype(np.int32)
        return pc.if_else(clock.is_valid(), pa.array(days), pa.scalar(None, pa.int32())).view(pa.date32())

    def render(self, node: CallNode, arguments: Sequence[str], dialect: Dialect, time_zone: str, /) -> str:
        return f"cast({wall_clock_sql(node.arguments[0].type, arguments[0], dialect, time_zone)} as date)"


def wall_clock(values: pa.Array, time_zone: str) -> pa.Array:
    """A date or timestamp column as date32, or as timestamp[us] without zone in `time_zone`."""
    if pa.types.is_timestamp(values.type):
        return local_times(values, time_zone)
    return check_range(values.cast(pa.date32(), safe=False))


def wall_clock_sql(arrow_type: pa.DataType, column: str, dialect: Dialect, time_zone: str) -> str:
    """`wall_clock` as SQL, independent of the session's zone."""
    if pa.types.is_date(arrow_type):
        return column
    if dialect == "spark":
        if arrow_type.tz is None:
            return column
        clock = f"timestampadd(MICROSECOND, unix_micros({column}), timestamp_ntz'1970-01-01 00:00:00')"
        return clock if time_zone == "UTC" else f"convert_timezone('UTC', '{time_zone}', {clock})"
    if arrow_type.tz is None:
        return column
    clock = f"make_timestamp(epoch_us({column}))"
    return clock if time_zone == "UTC" else f"timezone('{time_zone}', {column})"


def _unit(node: CallNode) -> str:
    unit = node.arguments[0]
    assert isinstance(unit, LiteralNode)
    return str(unit.value)


def _check_time(name: str, argument: Node, dates: bool) -> None:
    of, kind = pa.types, argument.type
    if not (of.is_timestamp(kind) or (dates and of.is_date(kind))):
        raise UnsupportedExpression(f"{name} does not take {argument.text()} of type {type_name(kind)}")
