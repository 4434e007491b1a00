"""One valid array of every Arrow type that this pyarrow has: what mutations of messages start from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

_TEXTS = ["", "a", None, "longer than a view holds", "é\U0001f986", "zz"]
_BYTES = [None if text is None else text.encode() for text in _TEXTS]
_CODES = pa.array([0, 1, 0, 1, 0, 1], pa.int8())


def _of(values: list[object], kind: pa.DataType) -> Callable[[], pa.Array]:
    return lambda: pa.array((values * 6)[:6], kind)


SEEDS: dict[str, Callable[[], pa.Array]] = {
    **{str(kind): _of(list(_TEXTS), kind) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{str(kind): _of(list(_BYTES), kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    **{
        str(kind): _of([1, None, 0], kind)
        for kind in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
            pa.float32(), pa.float64(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns", "UTC"),
            pa.duration("us"),
        )
    },
    **{
        str(kind): _of([Decimal("1.23"), None], kind)
        for kind in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(30, 4), pa.decimal256(60, 4))
    },
    **{str(kind): _of([dt.date(2020, 1, 1), None], kind) for kind in (pa.date32(), pa.date64())},
    **{str(kind): _of([dt.time(1, 2, 3), None], kind) for kind in (pa.time32("s"), pa.time64("us"))},
    "bool": _of([True, None, False], pa.bool_()),
    "binary(4)": _of([b"abcd", None], pa.binary(4)),
    "interval": _of([pa.MonthDayNano([1, 2, 3]), None], pa.month_day_nano_interval()),
    "null": lambda: pa.nulls(6),
    "dictionary": lambda: pa.array(_TEXTS).dictionary_encode(),
    "list": _of([[1, 2], None, []], pa.list_(pa.int32())),
    "large_list": _of([["a", "b"], None, []], pa.large_list(pa.string())),
    "list_view": _of([["a", "b"], None, []], pa.list_view(pa.string())),
    "large_list_view": _of([["a"], None, []], pa.large_list_view(pa.string_view())),
    "fixed_size_list": _of([[1, 2], None], pa.list_(pa.int32(), 2)),
    "list of dictionaries": _of([["a", "b"], None, ["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "struct": _of([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "struct of lists": _of([{"l": [{"m": "x"}]}], pa.struct([("l", pa.list_(pa.struct([("m", pa.string())])))])),
    "map": _of([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    "run ends of text": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 6], pa.int32()), ["a", None, "ccc"]),
    "run ends of numbers": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 6], pa.int16()), [1, None, 3]),
    "dense union": lambda: pa.UnionArray.from_dense(
        _CODES, pa.array([0, 0, 1, 1, 2, 2], pa.int32()), [pa.array(["a", "b", "c"]), pa.array([1, 2, 3])]
    ),
    "sparse union": lambda: pa.UnionArray.from_sparse(_CODES, [pa.array(_TEXTS), pa.array([1, 2, 3] * 2)]),
    "uuid": _of([b"0123456789abcdef", None], pa.uuid()),
    "json": _of(['{"a":1}', None], pa.json_()),
    "bool8": _of([1, None, 0], pa.bool8()),
}  # fmt: skip


def rows_of(name: str) -> pa.RecordBatch:
    """A batch of one column `c` of a seed."""
    return pa.record_batch({"c": SEEDS[name]()})
