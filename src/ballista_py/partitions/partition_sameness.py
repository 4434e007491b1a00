"""When two lists of partition keys put equal rows into equal partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.expression.nodes import shape_of
from ballista_py.partitions.key import PartitionKey
from ballista_py.partitions.values import key_type, type_text


def check_same_partitions(
    keys: Sequence[PartitionKey], time_zone: str, new_keys: Sequence[PartitionKey], new_zone: str
) -> None:
    """Raises `UnsupportedExpression`, with the reason, if the new keys would put rows into other partitions."""
    if len(keys) != len(new_keys):
        raise _moves(f"it has {len(new_keys)} key(s) instead of {len(keys)}")
    for old, new in zip(keys, new_keys, strict=True):
        if old.name != new.name:
            raise _moves(f"key '{old.name}' would be named '{new.name}'")
        if old.expression != new.expression:
            raise _moves(f"key '{old.name}' would be {new.expression} instead of {old.expression}")
        for before, after in zip(old.columns, new.columns, strict=True):
            if _hash_class(before.type) != _hash_class(after.type):
                raise _moves(f"column '{before.name}' would be {after.type} instead of {before.type}")
        if _zone_of(old, time_zone) != _zone_of(new, new_zone):
            raise _moves(f"key '{old.name}' would use time zone {new_zone} instead of {time_zone}")


def _moves(reason: str) -> UnsupportedExpression:
    return UnsupportedExpression(f"the new partition keys would move rows: {reason}. Create another table instead")


def forms_of(keys: Sequence[PartitionKey], time_zone: str) -> list[tuple[Any, ...]]:
    """What decides the partition of a row: tables with equal forms can share owners."""
    return [_form(key, time_zone) for key in keys]


def _form(key: PartitionKey, time_zone: str) -> tuple[Any, ...]:
    """What decides the partition value of a row, apart from the names of the columns."""
    return (
        shape_of(key.node),
        _zone_of(key, time_zone),
        tuple(_hash_class(column.type) for column in key.columns),
    )


def _zone_of(key: PartitionKey, time_zone: str) -> str | None:
    """The zone, if the key's value depends on it."""
    instants = any(pa.types.is_timestamp(column.type) and column.type.tz is not None for column in key.columns)
    return time_zone if instants and key.kind == "function" else None


def _hash_class(arrow_type: pa.DataType) -> str:
    """Types of one class have equal partition values for equal values."""
    kind = key_type(arrow_type)
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "instant"
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_decimal(kind):
        # Up to 18 digits the hash is of 8 bytes, above of as few as the number needs.
        return f"decimal({'18' if kind.precision <= 18 else '38'}, {kind.scale})"
    return type_text(kind)
