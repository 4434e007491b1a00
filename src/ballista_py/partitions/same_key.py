"""When two rows have the same key: the one answer, that of the engines, for whoever groups or joins rows by keys here.

Arrow and Python answer otherwise: to them -0.0 is not 0.0 and NaN is not NaN, an hour of a date is a part of it, and
durations that engines keep in microseconds differ by nanoseconds. Texts are the same character by character, decimals
and times by their value; NULL is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Key: TypeAlias = tuple[Any, ...]
_NAN = float("nan")  # one object, which sets and tables of Python find again
_DAY_MS, _DAY_US, _DAYS_OF_MONTH = 86_400_000, 86_400_000_000, 30


def keys_of_rows(rows: pa.Table, key: Sequence[str]) -> list[Key]:
    """The key of each row, equal for rows of the same key, of values of which the types of the columns can be made.

    >>> one, two = keys_of_rows(pa.table({"k": [0.0, -0.0]}), ["k"])
    >>> one == two, len(set(keys_of_rows(pa.table({"k": [float("nan"), -float("nan")]}), ["k"])))
    (True, 1)
    """
    if not len(rows):
        return []
    return list(zip(*(_values(rows.column(name)) for name in key), strict=True))


def key_numbers(rows: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each row, the same for rows of the same key and for no others.

    >>> key_numbers(pa.table({"k": [0.0, 1.0, -0.0], "g": ["a", "a", "a"]}), ["k", "g"]).tolist()
    [0, 1, 0]
    """
    numbers = np.zeros(len(rows), np.int64)
    for name in key:
        codes = _codes(rows.column(name))
        pairs = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbers


def first_doubled(rows: pa.Table, key: Sequence[str]) -> dict[str, Any] | None:
    """The key of a row that another row has, too; None if each is there once."""
    numbers = key_numbers(rows, key)
    twice = np.flatnonzero(np.bincount(numbers, minlength=1) > 1)
    if not len(twice):
        return None
    row = int(np.flatnonzero(numbers == twice[0])[0])
    found: dict[str, Any] = rows.select(list(key)).slice(row, 1).to_pylist()[0]
    return found


def with_keys(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key is one of `keys`, which may have other columns, too.

    >>> with_keys(pa.table({"k": [-0.0, 1.0], "v": [7, 8]}), pa.table({"k": [0.0]}), ["k"]).to_pylist()
    [{'k': -0.0, 'v': 7}]
    """
    both = [rows.select(list(key)), keys.select(list(key)).cast(rows.select(list(key)).schema)]
    numbers = key_numbers(pa.concat_tables(both), key)
    return rows.filter(pa.array(np.isin(numbers[: len(rows)], numbers[len(rows) :])))


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        known: dict[Any, int] = {}
        return np.array([known.setdefault(value, len(known)) for value in _values(column)], np.int64)
    indices = _comparable(column).combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices).astype(np.int64)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with one form of each value; times as numbers."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_floating(kind):
        wide = column if kind.bit_width > 16 else column.cast(pa.float32())
        zero = pa.scalar(0.0, wide.type)
        return pc.if_else(pc.is_nan(wide), pa.scalar(_NAN, wide.type), pc.add(wide, zero))  # of two zeros one
    if types.is_date64(kind):
        return _cut(column, _DAY_MS)
    if getattr(kind, "unit", "") == "ns":
        return _cut(column, 1_000 if types.is_duration(kind) else 1)
    return column


def _cut(column: pa.ChunkedArray, step: int) -> pa.ChunkedArray:
    """The numbers of times, cut towards zero to whole steps."""
    if step == 1:
        return column.cast(pa.int64())
    numbers = (np.asarray(pc.fill_null(one.cast(pa.int64()), 0)) for one in column.chunks)
    plain = pa.chunked_array([pa.array(one - np.fmod(one, step)) for one in numbers], pa.int64())
    return pc.if_else(pc.is_valid(column), plain, pa.scalar(None, pa.int64()))


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    found: list[Any] = _comparable(column).to_pylist()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_interval(kind):
        return map(_one_form, found)
    return found


def _one_form(value: Any) -> Any:
    """A value as one that sets and tables of Python take, and find again."""
    if isinstance(value, float):
        return _NAN if value != value else value + 0.0
    if isinstance(value, pa.MonthDayNano):
        return (value.months * _DAYS_OF_MONTH + value.days) * _DAY_US + value.nanoseconds // 1_000
    if isinstance(value, list | tuple):
        return tuple(map(_one_form, value))
    if isinstance(value, dict):
        return tuple((name, _one_form(one)) for name, one in value.items())
    return value


__all__ = ["Key", "first_doubled", "key_numbers", "keys_of_rows", "with_keys"]
