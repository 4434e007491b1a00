"""Columns of a lake's tables as columns here: the same types, in the one form that tables keep; pure."""

from __future__ import annotations

import pyarrow as pa

from ballista_py.errors import SourceUnfit

LEAVE = "leave the table to a full refresh"
_UUID = "arrow.uuid"


def kept_schema(there: str, shown: pa.Schema, way_out: str = LEAVE, *, noted: bool = False) -> pa.Schema:
    """The columns in the forms that tables keep, without what their source notes of them, or with it (`noted`).

    Raises `SourceUnfit` for one that cannot be kept; `way_out` is what its message tells to do.

    >>> kept_schema("t", pa.schema([("s", pa.string_view()), ("l", pa.large_list(pa.large_string()))]))
    s: string
    l: list<item: string>
      child 0, item: string
    """
    return pa.schema([_field(there, column.name, column, way_out, noted) for column in shown])


def _field(there: str, column: str, field: pa.Field, way_out: str, noted: bool) -> pa.Field:
    kind = field.type
    metadata = field.metadata if noted else None
    return pa.field(field.name, _kept(there, column, kind, way_out, noted), field.nullable, metadata)


def _kept(there: str, column: str, kind: pa.DataType, way_out: str, noted: bool) -> pa.DataType:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind):
        return pa.list_(_field(there, column, kind.value_field, way_out, noted))
    if types.is_struct(kind):
        fields = (kind.field(place) for place in range(kind.num_fields))
        return pa.struct([_field(there, column, one, way_out, noted) for one in fields])
    if types.is_map(kind) and not noted:
        key, item = kind.key_type, kind.item_type
        return pa.map_(_kept(there, column, key, way_out, noted), _kept(there, column, item, way_out, noted))
    if types.is_map(kind):
        key = _field(there, column, kind.key_field, way_out, noted)
        return pa.map_(key, _field(there, column, kind.item_field, way_out, noted))
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit, None if kind.tz is None else "UTC")
    if noted and isinstance(kind, pa.BaseExtensionType) and kind.extension_name == _UUID:
        return pa.binary(16)
    flat = (
        types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        or types.is_date(kind) or types.is_time(kind) or types.is_fixed_size_binary(kind)
    )  # fmt: skip
    if not flat:
        raise SourceUnfit(
            f"column '{column}' of {there} has the type {kind}, which cannot be {'read' if noted else 'followed'}: "
            f"{way_out}"
        )
    return kind
