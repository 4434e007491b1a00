"""Made-up rows of tables, over which statements are tried."""

from __future__ import annotations

import datetime
import decimal
from contextlib import suppress

import pyarrow as pa


def sample_rows(schema: pa.Schema, count: int) -> pa.Table:
    """Rows of these columns: one of ordinary values, and one of nulls.

    >>> sample_rows(pa.schema([("n", pa.int32()), ("t", pa.list_(pa.string()))]), 2).to_pydict()
    {'n': [1, None], 't': [['1'], None]}
    """
    columns = [_sample(field.type, count) for field in schema]
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))


def _sample(kind: pa.DataType, count: int) -> pa.Array:
    with suppress(pa.ArrowException, TypeError, ValueError, NotImplementedError):
        return pa.array([_value(kind), None][:count], kind)
    return pa.nulls(count, kind)


def _value(kind: pa.DataType) -> object:
    """An ordinary value of the type, as Python has it."""
    if pa.types.is_dictionary(kind):
        return _value(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return [_value(kind.value_type)]
    if pa.types.is_fixed_size_list(kind):
        return [_value(kind.value_type)] * kind.list_size
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_value(kind.key_type), _value(kind.item_type))]
    if pa.types.is_date(kind):
        return datetime.date(2020, 1, 1)
    if pa.types.is_timestamp(kind):
        return datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC if kind.tz else None)
    if pa.types.is_time(kind):
        return datetime.time(1)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(0)
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_floating(kind):
        return 1.0
    if pa.types.is_duration(kind):
        return datetime.timedelta(days=1)
    if pa.types.is_interval(kind):
        return pa.MonthDayNano([0, 1, 0])
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return b"1"
    if pa.types.is_fixed_size_binary(kind):
        return b"1" * kind.byte_width
    return 1 if pa.types.is_integer(kind) else "1"


__all__ = ["sample_rows"]
