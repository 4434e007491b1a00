"""PostgreSQL's types as columns here, and the texts of their values as values; pure.

A value is taken as it is or not at all: what a column here cannot hold stops the table, by an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.errors import SourceUnfit

_NUMERIC: Final = 1700
_HEADER: Final = 4  # what a modifier has more than it says
MAX_DIGITS: Final = 38
SESSION: Final = {  # how values are written out
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
}
_TYPES: Final[Mapping[int, pa.DataType]] = {
    16: pa.bool_(),
    17: pa.binary(),
    19: pa.string(),  # name
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    25: pa.string(),
    26: pa.int64(),  # oid
    114: pa.string(),  # json
    700: pa.float32(),
    701: pa.float64(),
    1042: pa.string(),  # char(n)
    1043: pa.string(),
    1082: pa.date32(),
    1083: pa.time64("us"),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
    2950: pa.string(),  # uuid
    3802: pa.string(),  # jsonb
}


def column_type(table: str, column: str, type_id: int, modifier: int, shown: str = "") -> pa.DataType:
    """The type here of a column there. Raises `SourceUnfit` for one that has none.

    >>> column_type("public.t", "price", 1700, (9 << 16 | 2) + 4)
    Decimal128Type(decimal128(9, 2))
    """
    if type_id in _TYPES:
        return _TYPES[type_id]
    if type_id == _NUMERIC:
        digits, scale = (modifier - _HEADER) >> 16, (modifier - _HEADER) & 0x7FF
        if modifier >= _HEADER and digits <= MAX_DIGITS and scale <= digits:
            return pa.decimal128(digits, scale)
        what = "without a precision" if modifier < _HEADER else f"of {digits} digits"
        if modifier >= _HEADER and scale > digits:
            what = "whose last digits are beyond its precision, or before the point"  # (3, 5) and (3, -2)
        raise SourceUnfit(
            f"column '{column}' of {table} is a numeric {what}, and a numeric({MAX_DIGITS}, …) is the most that a "
            f"column here can hold: run ALTER TABLE {table} ALTER COLUMN {column} TYPE numeric(38, 9) there, or leave "
            "the table to a full refresh"
        )
    raise SourceUnfit(
        f"column '{column}' of {table} has the type {shown or type_id}, which cannot be followed: give it another type "
        "there, or leave the table to a full refresh"
    )


def values(table: str, column: str, texts: Sequence[str | None] | pa.StringArray, kind: pa.DataType) -> pa.Array:
    """The values of a column whose texts these are. Raises `SourceUnfit` naming the first that is none."""
    given = texts if isinstance(texts, pa.StringArray) else pa.array(texts, pa.string())
    try:
        return _parser(kind)(given, kind)
    except (pa.ArrowException, ValueError):
        wrong = next((text for text in given.to_pylist() if text is not None and not _fits(text, kind)), "")
        raise SourceUnfit(
            f"column '{column}' of {table} has the value {wrong[:60]!r}, which no {kind} here can be: change it "
            "there, and copy the table anew, because the log tells of it still"
        ) from None


def _fits(text: str, kind: pa.DataType) -> bool:
    try:
        _parser(kind)(pa.array([text], pa.string()), kind)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(kind)


def _bool(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The log writes `t`, and a query that casts to text `true`."""
    found = pc.index_in(texts, pa.array(["f", "false", "t", "true"]))
    if found.null_count > texts.null_count:
        raise ValueError("it is neither true nor false")
    return pc.greater_equal(found, 2).cast(kind)


def _bytes(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array(
        [None if text is None else bytes.fromhex(text.removeprefix("\\x")) for text in texts.to_pylist()], kind
    )


def _time(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us")).cast(kind)


def _parser(kind: pa.DataType) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    if pa.types.is_boolean(kind):
        return _bool
    if pa.types.is_time(kind):
        return _time
    return _bytes if pa.types.is_binary(kind) else _cast
