"""The tables that describe a cluster to clients: catalogs, schemas, tables, types, keys. Pure functions.

A cluster has one catalog with one schema and tables in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.partitions.sql_view import TABLE_TYPE, VIEW_TYPE
from ballista_py.transport.flight_sql.columns import CATALOG, SCHEMA, described_column
from ballista_py.transport.flight_sql.sql_info import SQL_INFO, sql_info


@frozen
class TableInfo:
    """What is told of a table or a view."""

    schema: pa.Schema
    primary_key: tuple[str, ...] = ()
    kind: str = TABLE_TYPE


Tables = Mapping[str, TableInfo]


def _form(text: str) -> pa.Schema:
    """`name:type`, with `!` after the name of a column that is never null."""
    types = {"utf8": pa.string(), "binary": pa.binary(), "i32": pa.int32(), "u8": pa.uint8(), "bool": pa.bool_()}
    types["texts"] = pa.list_(pa.field("item", pa.string(), nullable=False))
    fields = (word.partition(":") for word in text.split())
    return pa.schema([pa.field(n.rstrip("!"), types[kind], nullable=not n.endswith("!")) for n, _, kind in fields])


CATALOGS = _form("catalog_name!:utf8")
SCHEMAS = _form("catalog_name:utf8 db_schema_name!:utf8")
TABLES = _form("catalog_name:utf8 db_schema_name:utf8 table_name!:utf8 table_type!:utf8")
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
TABLE_TYPES = _form("table_type!:utf8")
PRIMARY_KEYS = _form(
    "catalog_name:utf8 db_schema_name:utf8 table_name!:utf8 column_name!:utf8 key_name:utf8 key_sequence!:i32"
)
FOREIGN_KEYS = _form(
    "pk_catalog_name:utf8 pk_db_schema_name:utf8 pk_table_name!:utf8 pk_column_name!:utf8 "
    "fk_catalog_name:utf8 fk_db_schema_name:utf8 fk_table_name!:utf8 fk_column_name!:utf8 key_sequence!:i32 "
    "fk_key_name:utf8 pk_key_name:utf8 update_rule!:u8 delete_rule!:u8"
)
XDBC_TYPES = _form(
    "type_name!:utf8 data_type!:i32 column_size:i32 literal_prefix:utf8 literal_suffix:utf8 create_params:texts "
    "nullable!:i32 case_sensitive!:bool searchable!:i32 unsigned_attribute:bool fixed_prec_scale!:bool "
    "auto_increment:bool local_type_name:utf8 minimum_scale:i32 maximum_scale:i32 sql_data_type!:i32 "
    "datetime_subcode:i32 num_prec_radix:i32 interval_precision:i32"
)

# name, code of ODBC, size, what encloses a literal, radix, signed
_TYPES: tuple[tuple[str, int, int | None, str | None, int | None], ...] = (
    ("BOOLEAN", -7, 1, None, None),
    ("TINYINT", -6, 3, None, 10),
    ("BIGINT", -5, 19, None, 10),
    ("BLOB", -4, None, "'", None),
    ("DECIMAL", 3, 38, None, 10),
    ("INTEGER", 4, 10, None, 10),
    ("SMALLINT", 5, 5, None, 10),
    ("FLOAT", 7, 24, None, 2),
    ("DOUBLE", 8, 53, None, 2),
    ("VARCHAR", 12, None, "'", None),
    ("DATE", 91, 10, "'", None),
    ("TIME", 92, 15, "'", None),
    ("TIMESTAMP", 93, 26, "'", None),
)


def metadata_schema(command: Any) -> pa.Schema | None:
    """The columns of the answer to a metadata command; None for a command that is none."""
    name = command.DESCRIPTOR.name
    if name == "CommandGetTables":
        return TABLES_WITH_SCHEMA if command.include_schema else TABLES
    return _FORMS.get(name)


def metadata_table(command: Any, tables: Callable[[], Tables]) -> pa.Table:
    """The answer to a metadata command; `tables` is asked only if it depends on the tables."""
    name = command.DESCRIPTOR.name
    if name == "CommandGetTables":
        return _tables(command, tables())
    if name == "CommandGetPrimaryKeys":
        return _primary_keys(command, tables())
    if name == "CommandGetSqlInfo":
        return sql_info(command.info)
    if name == "CommandGetXdbcTypeInfo":
        return _types(command.data_type if command.HasField("data_type") else None)
    rows: list[tuple[str, ...]] = []
    if name == "CommandGetCatalogs":
        rows = [(CATALOG,)]
    elif name == "CommandGetDbSchemas":
        rows = [(CATALOG, SCHEMA)] if _in_schema(command, "db_schema_filter_pattern") else []
    elif name == "CommandGetTableTypes":
        rows = [(TABLE_TYPE,), (VIEW_TYPE,)]
    return _rows(_FORMS[name], rows)


_FORMS: dict[str, pa.Schema] = {
    "CommandGetCatalogs": CATALOGS,
    "CommandGetDbSchemas": SCHEMAS,
    "CommandGetTableTypes": TABLE_TYPES,
    "CommandGetPrimaryKeys": PRIMARY_KEYS,
    "CommandGetExportedKeys": FOREIGN_KEYS,
    "CommandGetImportedKeys": FOREIGN_KEYS,
    "CommandGetCrossReference": FOREIGN_KEYS,
    "CommandGetXdbcTypeInfo": XDBC_TYPES,
    "CommandGetSqlInfo": SQL_INFO,
}
METADATA = ("CommandGetTables", *_FORMS)


def like(pattern: str, text: str) -> bool:
    """Whether `text` matches a pattern in which `%` is any text and `_` any one character.

    It takes at most as many steps as both lengths multiplied, whatever the pattern.

    >>> like("l%_item", "lineitem"), like("l%", "orders")
    (True, False)
    """
    read = place = 0  # how much of the text and of the pattern match so far
    again: tuple[int, int] | None = None  # where to go on with one character more for the last `%`
    while read < len(text):
        wanted = pattern[place] if place < len(pattern) else ""
        if wanted == "%":
            place += 1
            again = read, place
        elif wanted in ("_", text[read]):
            read, place = read + 1, place + 1
        elif again is not None:
            again = again[0] + 1, again[1]
            read, place = again
        else:
            return False
    return not pattern[place:].strip("%")


def _in_schema(command: Any, pattern_field: str) -> bool:
    """Whether the filters of a command leave the one schema."""
    if command.HasField("catalog") and command.catalog != CATALOG:
        return False
    return not command.HasField(pattern_field) or like(getattr(command, pattern_field), SCHEMA)


def _tables(command: Any, tables: Tables) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    wanted = list(command.table_types) or [TABLE_TYPE, VIEW_TYPE]
    if _in_schema(command, "db_schema_filter_pattern"):
        for name, table in sorted(tables.items()):
            if command.HasField("table_name_filter_pattern") and not like(command.table_name_filter_pattern, name):
                continue
            if table.kind not in wanted:
                continue
            row: tuple[Any, ...] = (CATALOG, SCHEMA, name, table.kind)
            if command.include_schema:
                described = pa.schema([described_column(name, field) for field in table.schema])
                row = (*row, described.serialize().to_pybytes())
            rows.append(row)
    return _rows(TABLES_WITH_SCHEMA if command.include_schema else TABLES, rows)


def _primary_keys(command: Any, tables: Tables) -> pa.Table:
    table = tables.get(command.table.lower())
    if table is None or (command.HasField("catalog") and command.catalog != CATALOG):
        return _rows(PRIMARY_KEYS, [])
    if command.HasField("db_schema") and command.db_schema != SCHEMA:
        return _rows(PRIMARY_KEYS, [])
    place = (CATALOG, SCHEMA, command.table.lower())
    return _rows(PRIMARY_KEYS, [(*place, name, None, number) for number, name in enumerate(table.primary_key, 1)])


def _types(code: int | None) -> pa.Table:
    rows = [_type(*known) for known in _TYPES if code in (None, known[1])]
    return _rows(XDBC_TYPES, rows)


def _type(name: str, code: int, size: int | None, quote: str | None, radix: int | None) -> tuple[Any, ...]:
    is_decimal = name == "DECIMAL"
    values = {
        "type_name": name,
        "data_type": code,
        "column_size": size,
        "literal_prefix": quote,
        "literal_suffix": quote,
        "create_params": ["precision", "scale"] if is_decimal else None,
        "nullable": 1,
        "case_sensitive": name == "VARCHAR",
        "searchable": 3,
        "unsigned_attribute": None if radix is None else False,
        "fixed_prec_scale": is_decimal,
        "auto_increment": False,
        "local_type_name": name,
        "minimum_scale": 0 if is_decimal else None,
        "maximum_scale": 38 if is_decimal else None,
        "sql_data_type": code,
        "num_prec_radix": radix,
    }
    return tuple(values.get(field.name) for field in XDBC_TYPES)


def _rows(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
