"""Columns of a lake's tables as columns here: the same types, in the one form that tables keep; pure."""

from __future__ import annotations

import pyarrow as pa

from ballista_py.errors import SourceUnfit


def kept_schema(there: str, shown: pa.Schema) -> pa.Schema:
    """The columns in the forms that tables keep, without what their source notes of them. Raises `SourceUnfit`.

    >>> kept_schema("t", pa.schema([("s", pa.string_view()), ("l", pa.large_list(pa.large_string()))]))
    s: string
    l: list<item: string>
      child 0, item: string
    """
    return pa.schema([_field(there, column) for column in shown])


def _field(there: str, column: pa.Field) -> pa.Field:
    return pa.field(column.name, _kept(there, column.name, column.type), column.nullable)


def _kept(there: str, column: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind):
        return pa.list_(_item(there, column, kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_item(there, column, kind.field(place)) for place in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_kept(there, column, kind.key_type), _kept(there, column, kind.item_type))
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit, None if kind.tz is None else "UTC")
    flat = (
        types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        or types.is_date(kind) or types.is_time(kind) or types.is_fixed_size_binary(kind)
    )  # fmt: skip
    if not flat:
        raise SourceUnfit(
            f"column '{column}' of {there} has the type {kind}, which cannot be followed: leave the table to a full "
            "refresh"
        )
    return kind


def _item(there: str, column: str, item: pa.Field) -> pa.Field:
    return pa.field(item.name, _kept(there, column, item.type), item.nullable)
