"""Arrow columns as values that JSON has, exactly: what it cannot say becomes a text, never another number."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute
from pyarrow import types as t

from ballista_py.errors import SqlError

_ENDS = ("infinity", "-infinity")
_OUT_OF_RANGE = "<value out of range"
_NO_FRACTION = re.compile(r"\.0+(?=Z?\Z)")
_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def json_column(column: pa.Array) -> list[Any]:
    """The values of a column, each as JSON has it; None is null.

    Numbers of up to 64 bits are numbers; decimals, dates, times and NaN texts; bytes base64; lists arrays, structs
    objects, maps arrays of `{"key", "value"}`. Raises `SqlError` for a date or time that has no text.
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        storage = column.storage
        if kind.extension_name == "arrow.uuid":
            return [None if one is None else _uuid(one) for one in storage.to_pylist()]
        return json_column(storage)
    if t.is_dictionary(kind):
        return json_column(column.dictionary_decode())
    if t.is_run_end_encoded(kind):
        return json_column(pa.compute.run_end_decode(column))
    found = next((make for known, make in _WAYS if known(kind)), None)
    values: list[Any] = column.to_pylist() if found is None else found(column)
    return values


def json_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as objects. Raises `SqlError` where two columns have one name, and what `json_column` raises.

    >>> json_rows(pa.table({"a": [1, None], "b": [[0.5], [float("nan")]]}))
    [{'a': 1, 'b': [0.5]}, {'a': None, 'b': ['NaN']}]
    """
    names = rows.schema.names
    refuse_same_names(names)
    if not names:
        return [{}] * rows.num_rows
    columns = [_whole(column) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def shown_rows(rows: pa.Table) -> list[tuple[str, ...]]:
    """The rows as people read them, every value a text: those of JSON, times without its T, bytes as hexadecimals.

    >>> shown_rows(pa.table({"a": [None, True], "at": [pa.scalar(0, pa.timestamp("s")), None], "b": [b"ab", b""]}))
    [('NULL', '1970-01-01 00:00:00', '\\\\x6162'), ('true', 'NULL', '\\\\x')]
    """
    return list(zip(*(list(_shown(column)) for column in rows.columns), strict=True))


def _whole(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [value for chunk in chunks for value in json_column(chunk)]


def _shown(column: pa.ChunkedArray) -> Iterator[str]:
    is_moment = t.is_timestamp(column.type) or t.is_time(column.type)
    is_binary = t.is_binary(column.type) or t.is_large_binary(column.type)
    for value in column.to_pylist() if is_binary else _whole(column):
        if value is None:
            yield "NULL"
        elif is_binary:
            yield "\\x" + value.hex()
        elif isinstance(value, str):
            yield _NO_FRACTION.sub("", value.replace("T", " ", 1)) if is_moment else value
        else:
            yield orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _uuid(value: bytes) -> str:
    """As RFC 9562 writes it.

    >>> _uuid(bytes(range(16)))
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _floats(column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    return [one if one is None or isfinite(one) else _not_finite(one) for one in values]


def _short_floats(column: pa.Array) -> list[Any]:
    """Of 32 and 16 bits, with as few digits as tell them apart."""
    values = column.to_pylist()
    return [one if one is None else np.float32(one) if isfinite(one) else _not_finite(one) for one in values]


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _decimals(column: pa.Array) -> list[Any]:
    return [None if one is None else format(one, "f") for one in column.to_pylist()]


def _texts(column: pa.Array) -> list[Any]:
    values: list[Any] = column.cast(pa.string()).to_pylist()
    if any(one is not None and one.startswith(_OUT_OF_RANGE) for one in values):
        raise SqlError(
            "the answer has a date or time that has no text: CAST it to VARCHAR, or take the answer as Arrow"
        )
    return values


def _dates(column: pa.Array) -> list[Any]:
    return _finite(column, column.cast(pa.int32()) if t.is_date32(column.type) else column.cast(pa.int64()))


def _moments(column: pa.Array) -> list[Any]:
    kind, numbers = column.type, column.cast(pa.int64())
    zone = "" if kind.tz is None else "Z"  # written without: Arrow checks the range of those alone
    texts = _finite(numbers.cast(pa.timestamp(kind.unit)), numbers)
    return [one if one is None or one in _ENDS else f"{one.replace(' ', 'T', 1)}{zone}" for one in texts]


def _finite(column: pa.Array, numbers: pa.Array) -> list[Any]:
    """The texts of dates or times, whose `numbers` are the engine's own: its largest and smallest are no moment."""
    last = 2 ** (numbers.type.bit_width - 1) - 1
    ends = {last: "infinity", -last: "-infinity"}
    found = [None if one is None else ends.get(one) for one in numbers.to_pylist()]
    if not any(found):
        return _texts(column)
    is_end = pa.array([one is not None for one in found])
    texts = _texts(pa.compute.if_else(is_end, pa.scalar(None, column.type), column))
    return [end or text for end, text in zip(found, texts, strict=True)]


def _durations(column: pa.Array) -> list[Any]:
    per = _NS[column.type.unit]
    return [None if one is None else _iso(0, 0, one * per) for one in column.cast(pa.int64()).to_pylist()]


def _intervals(column: pa.Array) -> list[Any]:
    return [None if one is None else _iso(one.months, one.days, one.nanoseconds) for one in column.to_pylist()]


def _iso(months: int, days: int, nanoseconds: int) -> str:
    """A span as ISO 8601 writes it.

    >>> _iso(1, 2, -1_500_000_000)
    'P1M2DT-1.500000000S'
    """
    sign, (seconds, rest) = "-" if nanoseconds < 0 else "", divmod(abs(nanoseconds), 1_000_000_000)
    time = f"T{sign}{seconds}{f'.{rest:09d}' if rest else ''}S"
    return f"P{months}M{days}D{time}"


def _bytes(column: pa.Array) -> list[Any]:
    return [None if one is None else b64encode(one).decode() for one in column.to_pylist()]


def _lists(column: pa.Array) -> list[Any]:
    items = iter(json_column(column.flatten()))
    return [None if size is None else [next(items) for _ in range(size)] for size in _sizes(column)]


def _sizes(column: pa.Array) -> list[int | None]:
    sizes: list[int | None] = pa.compute.list_value_length(column).to_pylist()
    return sizes


def _structs(column: pa.Array) -> list[Any]:
    kind, valid = column.type, column.is_valid().to_pylist()
    names = [kind.field(place).name for place in range(kind.num_fields)]
    refuse_same_names(names)
    parts = [json_column(part) for part in column.flatten()]
    rows = zip(*parts, strict=True) if parts else iter([()] * len(column))
    return [
        dict(zip(names, row, strict=True)) if is_there else None for is_there, row in zip(valid, rows, strict=True)
    ]


def _maps(column: pa.Array) -> list[Any]:
    kind = column.type
    entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    return _lists(column.cast(pa.list_(entry)))


def refuse_same_names(names: list[str]) -> None:
    """Raises `SqlError` where an object would lose a value, because two have one name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SqlError(
            f"two columns are called '{twice[:100]}' and an object of JSON can have one: name them "
            "with AS, or ask for CSV or Arrow"
        )


_WAYS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    (t.is_float64, _floats),
    (t.is_floating, _short_floats),
    (t.is_decimal, _decimals),
    (t.is_timestamp, _moments),
    (t.is_date, _dates),
    (t.is_time, _texts),
    (t.is_duration, _durations),
    (t.is_interval, _intervals),
    (
        lambda kind: t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind)
        or t.is_binary_view(kind),
        _bytes,
    ),
    (t.is_map, _maps),
    (
        lambda kind: t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind),
        _lists,
    ),
    (t.is_struct, _structs),
)  # fmt: skip
