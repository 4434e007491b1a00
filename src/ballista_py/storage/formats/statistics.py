"""What a data file says about its columns: bounds and null counts, in a text form that JSON keeps exactly."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.sql.prune.file_bounds import ColumnBounds

MAX_BOUND_CHARACTERS = 64
_NO_PYTHON_VALUE = (ValueError, OverflowError)  # dates before year 1 and after 9999, infinity, nanoseconds


@frozen(kw_only=True)
class ColumnStatistics:
    """Bounds of one column of one file: no value is below `min` or above `max`; None means unknown.

    Bounds are text (`str` of the value, ISO 8601 for dates and times); `parse_bound` reads them. NaN lies outside
    the bounds of a float column.
    """

    min: str | None = None
    max: str | None = None
    null_count: int | None = None


def column_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, ColumnStatistics]:
    """The statistics of every plain (not nested) column that has any in all row groups."""
    found: dict[str, ColumnStatistics] = {}
    plain = {field.name for field in schema if not pa.types.is_nested(field.type)}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name not in plain:
            continue
        groups = [metadata.row_group(g).column(index).statistics for g in range(metadata.num_row_groups)]
        if not groups or any(group is None for group in groups):
            continue
        counted = all(group.has_null_count for group in groups)
        low, high = _bounds(groups, metadata)
        found[name] = ColumnStatistics(
            min=bound_text(low),
            max=bound_text(high),
            null_count=sum(int(group.null_count) for group in groups) if counted else None,
        )
    return found


def table_statistics(table: pa.Table) -> dict[str, ColumnStatistics]:
    """The statistics of every plain column of rows at hand; a type without an order has counts only."""
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue
        try:
            bounds = pc.min_max(column).as_py()
        except (pa.ArrowException, *_NO_PYTHON_VALUE):
            bounds = {"min": None, "max": None}
        found[name] = ColumnStatistics(
            min=bound_text(bounds["min"]), max=bound_text(bounds["max"]), null_count=column.null_count
        )
    return found


def group_bounds(metadata: pq.FileMetaData, number: int, schema: pa.Schema) -> dict[str, ColumnBounds]:
    """The bounds of these columns, of their own types, in a row group; what is not known, or not exact, is missing."""
    group, found = metadata.row_group(number), {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        place = schema.get_field_index(name)
        if place < 0 or pa.types.is_nested(schema.field(place).type):
            continue
        statistics = group.column(index).statistics
        if statistics is None:
            continue
        low, high = _bound_of(statistics, "min"), _bound_of(statistics, "max")
        kind = schema.field(place).type
        found[name] = ColumnBounds(
            low=_parsed(low, kind),
            high=_parsed(high, kind),
            nulls=int(statistics.null_count) if statistics.has_null_count else None,
        )
    return found


def _bound_of(statistics: Any, name: str) -> str | None:
    if not statistics.has_min_max:
        return None
    try:
        return bound_text(getattr(statistics, name))
    except _NO_PYTHON_VALUE:
        return None


def _parsed(text: str | None, kind: pa.DataType) -> Any:
    if text is None or (pa.types.is_timestamp(kind) and kind.unit == "ns"):
        return None
    try:
        return parse_bound(text, kind)
    except (*_NO_PYTHON_VALUE, ArithmeticError):
        return None


def _bounds(groups: list[Any], metadata: pq.FileMetaData) -> tuple[Any, Any]:
    """The bounds over all row groups; a group of nulls only has none and is left out."""
    lows, highs = [], []
    for number, group in enumerate(groups):
        if group.has_min_max:
            try:
                lows.append(group.min)
                highs.append(group.max)
            except _NO_PYTHON_VALUE:
                return None, None
        elif not group.has_null_count or group.null_count < metadata.row_group(number).num_rows:
            return None, None
    try:
        return (min(lows), max(highs)) if lows else (None, None)
    except TypeError:  # a type whose values have no order in Python
        return None, None


def bound_text(value: Any) -> str | None:
    """The text form of a bound, or None when there is no exact short one.

    >>> bound_text(Decimal("1.50")), bound_text(date(2026, 1, 2)), bound_text(float("nan"))
    ('1.50', '2026-01-02', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, date):  # datetime is one
        return None if getattr(value, "nanosecond", 0) else value.isoformat()
    if isinstance(value, int | float | str | Decimal):
        text = repr(value) if isinstance(value, float) else str(value)
        return text if len(text) <= MAX_BOUND_CHARACTERS else None
    return None


def parse_bound(text: str, kind: pa.DataType) -> Any:
    """The value that `bound_text` wrote for a column of this type.

    >>> parse_bound("1.50", pa.decimal128(15, 2)), parse_bound("7", pa.int64())
    (Decimal('1.50'), 7)
    """
    if pa.types.is_boolean(kind):
        return text == "true"
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text)
    return text
