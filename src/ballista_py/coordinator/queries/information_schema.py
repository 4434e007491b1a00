"""The tables of `information_schema`, with DuckDB's columns, of the tables that the cluster has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ballista_py.engines.engine import Engine
from ballista_py.partitions.columns import comment_of, default_of, is_required
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.table_names import CATALOG, INFORMATION, SCHEMA, TOLD

_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()


def _columns(text: str, kind: pa.DataType = _TEXT) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in text.split()]


_TABLE = "table_catalog table_schema table_name"
_CONSTRAINT = "constraint_catalog constraint_schema constraint_name"
SCHEMATA = pa.schema(
    _columns(
        "catalog_name schema_name schema_owner default_character_set_catalog default_character_set_schema "
        "default_character_set_name sql_path"
    )
)
TABLES = pa.schema(
    _columns(
        f"{_TABLE} table_type self_referencing_column_name reference_generation user_defined_type_catalog "
        "user_defined_type_schema user_defined_type_name is_insertable_into is_typed commit_action TABLE_COMMENT"
    )
)
COLUMNS = pa.schema(
    [
        *_columns(f"{_TABLE} column_name"),
        ("ordinal_position", _INT),
        *_columns("column_default is_nullable data_type"),
        *_columns(
            "character_maximum_length character_octet_length numeric_precision numeric_precision_radix numeric_scale "
            "datetime_precision",
            _INT,
        ),
        ("interval_type", _TEXT),
        ("interval_precision", _INT),
        *_columns(
            "character_set_catalog character_set_schema character_set_name collation_catalog collation_schema "
            "collation_name domain_catalog domain_schema domain_name udt_catalog udt_schema udt_name scope_catalog "
            "scope_schema scope_name"
        ),
        ("maximum_cardinality", _LONG),
        ("dtd_identifier", _TEXT),
        *_columns("is_self_referencing is_identity", _FLAG),
        *_columns("identity_generation identity_start identity_increment identity_maximum identity_minimum"),
        ("identity_cycle", _FLAG),
        *_columns("is_generated generation_expression"),
        ("is_updatable", _FLAG),
        ("COLUMN_COMMENT", _TEXT),
    ]
)
CONSTRAINTS = pa.schema(
    _columns(f"{_CONSTRAINT} {_TABLE} constraint_type is_deferrable initially_deferred enforced nulls_distinct")
)
VIEWS = pa.schema(
    _columns(
        f"{_TABLE} view_definition check_option is_updatable is_insertable_into is_trigger_updatable "
        "is_trigger_deletable is_trigger_insertable_into"
    )
)
KEY_COLUMNS = pa.schema(
    [
        *_columns(f"{_CONSTRAINT} {_TABLE} column_name"),
        *_columns("ordinal_position position_in_unique_constraint", _LONG),
    ]
)
CATALOG_SCHEMAS = {
    f"{INFORMATION}.{name}": schema
    for name, schema in (
        ("schemata", SCHEMATA),
        ("tables", TABLES),
        ("columns", COLUMNS),
        ("views", VIEWS),
        ("table_constraints", CONSTRAINTS),
        ("key_column_usage", KEY_COLUMNS),
    )
}
_DIGITS = {
    "TINYINT": 8,
    "SMALLINT": 16,
    "INTEGER": 32,
    "BIGINT": 64,
    "FLOAT": 24,
    "DOUBLE": 53,
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def information_schema(
    tables: Mapping[str, TableSpec], views: Mapping[str, SqlView], engine: Engine
) -> dict[str, pa.Table]:
    """The tables by their names; those that nobody can have a row of are there, too."""
    found = [tables[name] for name in sorted(tables)]
    both: dict[str, TableSpec | SqlView] = {**tables, **views}
    named = [both[name] for name in sorted(both)]
    schemata = [
        {"catalog_name": CATALOG, "schema_name": name, "schema_owner": "duckdb"} for name in (SCHEMA, *TOLD)
    ]
    return {
        "schemata": _table(SCHEMATA, schemata),
        "tables": _table(TABLES, [_table_row(table) for table in named]),
        "columns": _table(COLUMNS, [row for table in named for row in _column_rows(table, engine)]),
        "views": _table(VIEWS, [_view_row(views[name]) for name in sorted(views)]),
        "table_constraints": _table(CONSTRAINTS, [row for table in found for row in _constraint_rows(table)]),
        "key_column_usage": _table(KEY_COLUMNS, [row for table in found for row in _key_rows(table)]),
    }


def _table(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema})


def _place(table: TableSpec | SqlView) -> dict[str, Any]:
    return {"table_catalog": CATALOG, "table_schema": SCHEMA, "table_name": table.name}


def _table_row(table: TableSpec | SqlView) -> dict[str, Any]:
    is_view = isinstance(table, SqlView)
    return {
        **_place(table),
        "table_type": "VIEW" if is_view else "BASE TABLE",
        "is_insertable_into": "NO" if isinstance(table, SqlView) or table.source is not None else "YES",
        "is_typed": "NO",
        "TABLE_COMMENT": table.comment,
    }


def _view_row(view: SqlView) -> dict[str, Any]:
    said = dict.fromkeys(("is_updatable", "is_insertable_into"), "NO")
    triggers = ("is_trigger_updatable", "is_trigger_deletable", "is_trigger_insertable_into")
    said |= dict.fromkeys(triggers, "NO")
    return {**_place(view), "view_definition": view.sql, "check_option": "NONE", **said}


def _column_rows(table: TableSpec | SqlView, engine: Engine) -> Iterator[dict[str, Any]]:
    types = table.types if isinstance(table, SqlView) else engine.sql_types(table.schema)
    key = () if isinstance(table, SqlView) else table.primary_key
    for number, (field, kind) in enumerate(zip(table.schema, types, strict=True), 1):
        decimal = _DECIMAL.fullmatch(kind)
        digits = int(decimal[1]) if decimal else _DIGITS.get(kind)
        required = is_required(field) or field.name in key
        yield {
            **_place(table),
            "column_name": field.name,
            "ordinal_position": number,
            "column_default": default_of(field),
            "is_nullable": "NO" if required else "YES",
            "data_type": kind,
            "numeric_precision": digits,
            "numeric_precision_radix": None if digits is None else 10 if decimal else 2,
            "numeric_scale": int(decimal[2]) if decimal else None if digits is None else 0,
            "is_generated": "NEVER",
            "COLUMN_COMMENT": comment_of(field),
        }


def _constraint_rows(table: TableSpec) -> Iterator[dict[str, Any]]:
    said = {"is_deferrable": "NO", "initially_deferred": "NO", "enforced": "YES", "nulls_distinct": "YES"}
    keys = table.primary_key
    found = [(_key_name(table), "PRIMARY KEY")] if keys else []
    found += [(f"{table.name}_check{number or ''}", "CHECK") for number in range(len(table.checks))]
    for field in table.schema:
        if is_required(field) or field.name in keys:
            found.append((f"{table.name}_{field.name}_not_null", "CHECK"))
    for name, kind in found:
        yield {**_constraint(name), **_place(table), "constraint_type": kind, **said}


def _key_rows(table: TableSpec) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(table.primary_key, 1):
        yield {**_constraint(_key_name(table)), **_place(table), "column_name": name, "ordinal_position": number}


def _key_name(table: TableSpec) -> str:
    return f"{table.name}_{'_'.join(table.primary_key)}_pkey"


def _constraint(name: str) -> dict[str, Any]:
    return {"constraint_catalog": CATALOG, "constraint_schema": SCHEMA, "constraint_name": name}
