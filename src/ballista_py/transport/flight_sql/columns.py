"""Columns as clients of Flight SQL are told of them: the Arrow field with the SQL name of its type beside it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

CATALOG = "ballista"
SCHEMA = "main"
_PREFIX = "ARROW:FLIGHT:SQL:"
_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_uint8, "UTINYINT"),
    (pa.types.is_uint16, "USMALLINT"),
    (pa.types.is_uint32, "UINTEGER"),
    (pa.types.is_uint64, "UBIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_decimal, "DECIMAL"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_map, "MAP"),
    (pa.types.is_struct, "STRUCT"),
    (pa.types.is_list, "LIST"),
    (pa.types.is_large_list, "LIST"),
    (pa.types.is_string, "VARCHAR"),
    (pa.types.is_large_string, "VARCHAR"),
    (pa.types.is_string_view, "VARCHAR"),
    (pa.types.is_binary, "BLOB"),
    (pa.types.is_large_binary, "BLOB"),
    (pa.types.is_fixed_size_binary, "BLOB"),
)


def described_column(table: str, field: pa.Field) -> pa.Field:
    """The field with the metadata that the specification names: where it belongs, and what type it has in SQL.

    >>> described_column("t", pa.field("price", pa.decimal128(15, 2))).metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"]
    b'DECIMAL'
    """
    told = {
        "CATALOG_NAME": CATALOG,
        "DB_SCHEMA_NAME": SCHEMA,
        "TABLE_NAME": table,
        "TYPE_NAME": type_name(field.type),
        "IS_AUTO_INCREMENT": "0",
        "IS_CASE_SENSITIVE": "1" if type_name(field.type) == "VARCHAR" else "0",
        "IS_SEARCHABLE": "1",
    }
    if pa.types.is_decimal(field.type):
        told |= {"PRECISION": str(field.type.precision), "SCALE": str(field.type.scale)}
    return field.with_metadata(
        {**(field.metadata or {}), **{_PREFIX + name: value for name, value in told.items()}}
    )


def type_name(kind: pa.DataType) -> str:
    """The SQL name of the type, without its arguments.

    >>> type_name(pa.timestamp("us", "UTC")), type_name(pa.dictionary(pa.int32(), pa.string()))
    ('TIMESTAMP WITH TIME ZONE', 'VARCHAR')
    """
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    return next((name for holds, name in _NAMES if holds(kind)), str(kind).upper())
