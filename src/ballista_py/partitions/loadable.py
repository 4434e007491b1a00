"""Which values every engine can load: what Arrow calls valid is more than a file and a native table can hold.

A row that is committed and then loaded by nobody takes its partition, so it is refused before. Types are looked at
by an allow-list; columns of plain numbers, text and bytes hold nothing that is refused and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.lib as lib

MAX_ARRAY = 100_000  # what DuckDB takes as the length of an ARRAY
_MAX, _FIRST_US = 2**63 - 1, -9_223_372_022_400_000_000  # the first moment that DuckDB shows, in microseconds
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
_FEW_ENTRIES = 16  # of a map: then each is compared with each
_MAX_DATE64 = (2**31 - 1) * 86_400_000
_PLAIN = frozenset((
    lib.Type_NA, lib.Type_BOOL, lib.Type_INT8, lib.Type_INT16, lib.Type_INT32, lib.Type_INT64, lib.Type_UINT8,
    lib.Type_UINT16, lib.Type_UINT32, lib.Type_UINT64, lib.Type_HALF_FLOAT, lib.Type_FLOAT, lib.Type_DOUBLE,
    lib.Type_DATE32, lib.Type_TIME32, lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW,
    lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW, lib.Type_FIXED_SIZE_BINARY,
    lib.Type_INTERVAL_MONTH_DAY_NANO, lib.Type_DECIMAL32, lib.Type_DECIMAL64, lib.Type_DECIMAL256,
    lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION,
))  # fmt: skip
_LISTS = frozenset((
    lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW, lib.Type_FIXED_SIZE_LIST,
))  # fmt: skip


def why_not_declared(kind: pa.DataType) -> str | None:
    """Why no table may have a column of this type, in words, or None.

    >>> why_not_declared(pa.list_(pa.int32(), 0))
    'its arrays have 0 elements, which must be 1 to 100,000'
    """
    kind = _storage(kind)
    if kind.id == lib.Type_FIXED_SIZE_LIST and not 1 <= kind.list_size <= MAX_ARRAY:
        return f"its arrays have {kind.list_size:,} elements, which must be 1 to {MAX_ARRAY:,}"
    if kind.id == lib.Type_STRUCT:
        names = [kind.field(number).name.lower() for number in range(kind.num_fields)]
        if not names:
            return "its structs have no fields"
        if len(set(names)) < len(names):
            return "its structs have two fields whose names differ in case only, or not at all"
    if kind.id == lib.Type_DICTIONARY and not _is_text(kind.value_type):
        return "its dictionary has other values than text"
    inner = (why_not_declared(kind.field(number).type) for number in range(kind.num_fields))
    return next((reason for reason in inner if reason is not None), None)


def why_not_loaded(column: pa.Array) -> str | None:
    """What is wrong with a value of the valid array, in words, or None if an engine can load all of them.

    >>> why_not_loaded(pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())))
    'a map with one key twice'
    """
    if not _is_looked_at(column.type):
        return None
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if kind.id in _LISTS:
        return why_not_loaded(column.flatten())
    if kind.id == lib.Type_STRUCT:
        return next((reason for part in column.flatten() if (reason := why_not_loaded(part)) is not None), None)
    if kind.id == lib.Type_DICTIONARY:
        return why_not_loaded(column.dictionary)
    if kind.id == lib.Type_RUN_END_ENCODED:
        return why_not_loaded(column.values)
    look = _LOOKS.get(kind.id)
    return f"a value of type {kind}, which is not kept" if look is None else look(column)


def first_not_loaded(column: pa.Array) -> int:
    """The place of the first value that cannot be loaded, found by halving; there must be one."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if why_not_loaded(column.slice(low, middle - low)) is None:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=1_024)
def _is_looked_at(kind: pa.DataType) -> bool:
    """Whether values of the type, or inside it, may be such as cannot be loaded."""
    kind = _storage(kind)
    if kind.id in _PLAIN:
        return False
    if kind.id in (lib.Type_DICTIONARY, lib.Type_RUN_END_ENCODED):
        return _is_looked_at(kind.value_type)
    if kind.id in _LISTS or kind.id == lib.Type_STRUCT:
        return any(_is_looked_at(kind.field(number).type) for number in range(kind.num_fields))
    return True


def _look_at_moments(column: Any) -> str | None:
    kind = column.type
    if kind.unit == "ns":
        return None
    step = 1_000_000 // _PER_SECOND[kind.unit]
    low, high = -(-_FIRST_US // step), _MAX // step
    if _is_between(column, low, high):
        return None
    endless = (-_MAX, _MAX) if kind.unit == "us" or (kind.unit == "ms" and kind.tz is None) else ()
    left = column.filter(pc.invert(pc.is_in(column.view(pa.int64()), pa.array(endless, pa.int64()))))
    return None if _is_between(left, low, high) else "a moment out of range"


def _look_at_durations(column: Any) -> str | None:
    most = _MAX * _PER_SECOND.get(column.type.unit, 1_000_000) // 1_000_000
    return (
        None if _is_between(column, -most, most) or column.type.unit in ("us", "ns") else "a duration out of range"
    )


def _look_at_times(column: Any) -> str | None:
    """24:00:00 is one of DuckDB's."""
    most = 86_400 * _PER_SECOND.get(column.type.unit, 1_000_000_000) - 1
    return None if _is_between(column, 0, most) else "a time after 23:59:59"


def _look_at_dates(column: Any) -> str | None:
    return None if _is_between(column, -_MAX_DATE64, _MAX_DATE64) else "a date out of range"


def _look_at_decimals(column: Any) -> str | None:
    """The least number of 16 bytes has no absolute value, so that no check of digits sees it."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return None
    words = np.frombuffer(buffer, np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    if words[1::2].min() > -_MAX - 1:
        return None
    least = (words[1::2] == -_MAX - 1) & (words[::2] == 0)
    if column.null_count:
        least &= np.asarray(column.is_valid())
    return "a number out of range" if least.any() else None


def _look_at_maps(column: Any) -> str | None:
    if column.null_count:
        column = column.drop_null()
    if not len(column):
        return None
    bounds = np.asarray(column.offsets).astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    keys, items = column.keys[first:last], column.items[first:last]
    if keys.null_count:
        return "a map with a key that is NULL"
    rows = np.repeat(np.arange(len(column)), np.diff(bounds))
    if _is_doubled(rows, keys):
        return "a map with one key twice"
    return why_not_loaded(keys) or why_not_loaded(items)


def _is_doubled(rows: npt.NDArray[np.int64], keys: Any) -> bool:
    """Whether one row has one key twice, as an engine compares them."""
    if not (np.diff(rows) == 0).any():
        return False
    kind = keys.type
    if pa.types.is_dictionary(kind):
        keys = keys.cast(kind.value_type)
    elif pa.types.is_floating(kind):
        keys = pc.add(keys, pa.scalar(0.0, kind))  # of two zeros one
    elif getattr(kind, "unit", "") == "ns":
        keys = pc.divide(keys.view(pa.int64()), 1_000)  # what is kept of them
    longest = int(np.bincount(rows).max())
    if longest <= _FEW_ENTRIES and not pa.types.is_floating(kind):  # NaN is itself here, and not to `equal`
        with suppress(pa.ArrowNotImplementedError):
            return any(_is_near(rows, keys, distance) for distance in range(1, longest))
    try:
        codes = np.asarray(keys.dictionary_encode().indices).astype(np.int64)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested ones
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(repr(key.as_py()), len(known)) for key in keys], np.int64)
    both = np.sort(rows * (int(codes.max()) + 1) + codes)
    return bool((np.diff(both) == 0).any())


def _is_near(rows: npt.NDArray[np.int64], keys: Any, distance: int) -> bool:
    """Whether a row has one key twice, so far from each other."""
    same = np.asarray(pc.equal(keys[distance:], keys[:-distance]))
    return bool((same & (rows[distance:] == rows[:-distance])).any())


_LOOKS: dict[int, Callable[[Any], str | None]] = {
    lib.Type_TIMESTAMP: _look_at_moments,
    lib.Type_DURATION: _look_at_durations,
    lib.Type_DATE64: _look_at_dates,
    lib.Type_TIME64: _look_at_times,
    lib.Type_DECIMAL128: _look_at_decimals,
    lib.Type_MAP: _look_at_maps,
}


def _is_between(column: Any, low: int, high: int) -> bool:
    found = pc.min_max(column.view(pa.int64())).as_py()
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
