"""The typed values that name a partition, and their text form in paths.

A partition value is a tuple with one Python value per key: int, str, bytes, bool, float, date, datetime, time,
Decimal or None. Its path is stable for ever, injective, and safe in object keys and file names.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.bucket_hash import decoded
from ballista_py.partitions.expression.time_zones import beyond_range, check_range

WHOLE_PATH = "whole"
MAX_SEGMENT_BYTES = 160

# `quote` leaves "~" alone; values encode it, so a segment may use it for what is not plain text.
_NULL = "~null"
_SIZED = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
MAX_KEY_BYTES = 1_024  # of a text or of bytes in the value of a new partition


def path_of(names: Sequence[str], value: Sequence[Any]) -> str:
    """The text form of one partition value: `name=value` per key, joined by "/", or `whole` without keys.

    >>> path_of(["region", "expr0"], ["us/east", None])
    'region=us%2Feast/expr0=~null'
    """
    if not names:
        return WHOLE_PATH
    return "/".join(f"{_encode(name)}={_segment(item)}" for name, item in zip(names, value, strict=True))


def require_short_values(table: str, keys: Sequence[str], columns: Sequence[pa.Array]) -> None:
    """Raise `SchemaMismatch` for a value that is too large to name a partition: these are names, not data.

    There is one column a key. Every scheduler keeps all values of a table, and every change of owners writes them.

    >>> require_short_values("t", ["a"], [pa.array([1, 2])])
    """
    for key, column in zip(keys, columns, strict=True):
        if not any(test(column.type) for test in _SIZED):
            continue
        size = pc.max(pc.binary_length(column)).as_py() or 0
        if size > MAX_KEY_BYTES:
            raise SchemaMismatch(
                f"a row of table '{table}' has a partition value of {size:,} bytes in '{key}', more than "
                f"{MAX_KEY_BYTES:,}: partition the table by a bucket of it, or by its first characters"
            )


def require_short_value(table: str, keys: Sequence[str], value: Sequence[Any]) -> None:
    """As `require_short_values`, of one value of all keys."""
    sized = [(key, item) for key, item in zip(keys, value, strict=True) if isinstance(item, str | bytes)]
    require_short_values(table, [key for key, _ in sized], [pa.array([item]) for _, item in sized])


def text_of(value: Any) -> str:
    """One typed value as text: ISO 8601 for times, hexadecimal for bytes, plain for the rest."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        zone = "" if value.tzinfo is None else "Z"
        moment = value if value.tzinfo is None else value.astimezone(dt.UTC)
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return repr(value) if isinstance(value, float) else str(value)


def type_text(arrow_type: pa.DataType) -> str:
    """The name of a scalar Arrow type, as `type_of_text` reads it."""
    if pa.types.is_dictionary(arrow_type):
        return f"dictionary<{type_text(arrow_type.value_type)}>"
    return str(arrow_type)


def type_of_text(text: str) -> pa.DataType:
    """The scalar Arrow type that `type_text` named; raises `UnsupportedExpression` for any other text."""
    name, _, inside = text.partition("(" if "(" in text else "[" if "[" in text else "<")
    parameters = [part.strip() for part in inside.rstrip(")]>").split(",")] if inside else []
    try:
        if name.startswith("decimal"):
            return getattr(pa, name)(int(parameters[0]), int(parameters[1]))
        if name == "timestamp":
            zone = parameters[1].removeprefix("tz=") if len(parameters) > 1 else None
            return pa.timestamp(parameters[0], zone)
        if name in ("time32", "time64"):
            return getattr(pa, name)(parameters[0])
        if name == "fixed_size_binary":
            return pa.binary(int(parameters[0]))
        if name == "dictionary":
            return pa.dictionary(pa.int32(), type_of_text(inside.removesuffix(">")))
        return _plain_type(name)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UnsupportedExpression(f"'{text}' is not the name of a type of a partition key column") from error


def key_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type that a partition value has when the key yields `arrow_type`: one type for all layouts of it."""
    of = pa.types
    if of.is_dictionary(arrow_type) or of.is_run_end_encoded(arrow_type):
        return key_type(arrow_type.value_type)
    if of.is_large_string(arrow_type) or of.is_string_view(arrow_type):
        return pa.string()
    if of.is_large_binary(arrow_type) or of.is_binary_view(arrow_type) or of.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if of.is_timestamp(arrow_type):
        return pa.timestamp("us", arrow_type.tz)
    if of.is_time(arrow_type):
        return pa.time64("ns" if arrow_type.unit == "ns" else "us")
    return pa.date32() if of.is_date64(arrow_type) else arrow_type


def as_key(values: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """The array as one of `key_type`: one layout, sub-microseconds floored, -0.0 as 0.0, every NaN the same.

    Raises `SchemaMismatch` for times before the year 1 or after 9999.
    """
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if pa.types.is_dictionary(values.type):
        values = decoded(values)
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns" and arrow_type.unit == "us":
        # Floor, as `bucket` does; a cast would cut towards zero.
        values = pc.floor_temporal(values, unit="microsecond")
    if pa.types.is_floating(arrow_type):
        values = pc.add(values.cast(arrow_type), pa.scalar(0.0, arrow_type))
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), arrow_type), values)
    is_time = pa.types.is_date(arrow_type) or pa.types.is_timestamp(arrow_type)
    if values.type != arrow_type:
        try:
            values = values.cast(arrow_type)
        except pa.ArrowInvalid:
            if not is_time:
                raise
            raise beyond_range() from None
    return check_range(values) if is_time else values


def to_json_values(values: pa.Array) -> list[Any]:
    """The values as JSON has them: numbers of the unit for times, text for decimals, floats and bytes."""
    of, kind = pa.types, values.type
    if of.is_date32(kind):
        values = values.cast(pa.int32())
    elif of.is_timestamp(kind) or of.is_time(kind):
        values = values.cast(pa.int64())
    elif of.is_decimal(kind):
        values = values.cast(pa.string())
    elif of.is_floating(kind) or of.is_binary(kind):
        return [None if item is None else text_of(item) for item in values.to_pylist()]
    plain: list[Any] = values.to_pylist()
    return plain


def from_json_values(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """The array that `to_json_values` wrote down."""
    of = pa.types
    if of.is_date32(arrow_type):
        return pa.array(values, pa.int32()).cast(arrow_type)
    if of.is_timestamp(arrow_type) or of.is_time(arrow_type):
        return pa.array(values, pa.int64()).cast(arrow_type)
    if of.is_decimal(arrow_type):
        return pa.array([None if item is None else Decimal(item) for item in values], arrow_type)
    if of.is_floating(arrow_type):
        return pa.array([None if item is None else float(item) for item in values], arrow_type)
    if of.is_binary(arrow_type):
        return pa.array([None if item is None else bytes.fromhex(item) for item in values], arrow_type)
    return pa.array(values, arrow_type)


def _plain_type(name: str) -> pa.DataType:
    named = {"float": pa.float32(), "double": pa.float64(), "halffloat": pa.float16(), "bool": pa.bool_()}
    named |= {"date32": pa.date32(), "date64": pa.date64()}
    return named[name] if name in named else pa.type_for_alias(name)


def _segment(value: Any) -> str:
    if value is None:
        return _NULL
    text = _encode(text_of(value))
    if len(text) <= MAX_SEGMENT_BYTES:
        return text
    # Cut between characters: an encoded one is "%XX".
    head = text[:64].rpartition("%")[0] if "%" in text[61:64] else text[:64]
    return f"{head}~{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _encode(text: str) -> str:
    return quote(text, safe="").replace("~", "%7E")
