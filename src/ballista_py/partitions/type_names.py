"""What a column's type is called in SQL, for messages to people who wrote SQL."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

_NAMES = {
    pa.null(): "NULL",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}
_UNITS = {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}


def type_name(kind: pa.DataType) -> str:
    """The SQL name of an Arrow type; Arrow's own for one that no column has.

    >>> type_name(pa.decimal128(10, 2)), type_name(pa.list_(pa.int32())), type_name(pa.struct([("a b", pa.string())]))
    ('DECIMAL(10, 2)', 'INTEGER[]', 'STRUCT("a b" VARCHAR)')
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "VARCHAR"
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    ):
        return "BLOB"
    if types.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz is not None else _UNITS[kind.unit]
    if types.is_time(kind):
        return "TIME"
    if types.is_dictionary(kind):
        return type_name(kind.value_type)
    if types.is_map(kind):
        return f"MAP({type_name(kind.key_type)}, {type_name(kind.item_type)})"
    if types.is_fixed_size_list(kind):
        return f"{type_name(kind.value_type)}[{kind.list_size}]"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind):
        return f"{type_name(kind.value_type)}[]"
    if types.is_struct(kind):
        fields = (kind.field(n) for n in range(kind.num_fields))
        return f"STRUCT({', '.join(f'{_quoted(field.name)} {type_name(field.type)}' for field in fields)})"
    return str(kind)


def _quoted(name: str) -> str:
    plain = name.isascii() and name.isidentifier()
    return name if plain else '"' + name.replace('"', '""') + '"'
