"""Answers about statements and tables: EXPLAIN, DESCRIBE and SHOW, as rows, for every way into a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.cluster_view import words_of
from ballista_py.coordinator.queries.information_schema import information_schema
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.partitions.columns import default_of
from ballista_py.partitions.scanned_table import SnapshotSpec, external_table
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.own_words import meant
from ballista_py.sql.parse.descriptions import (
    CatalogQuery,
    DescribeQuery,
    DescribeTable,
    Explain,
    ShowAllTables,
    ShowCreate,
    ShowNames,
    read_description,
)
from ballista_py.sql.parse.parameters import with_nulls
from ballista_py.sql.parse.table_names import CATALOG, DESCRIBED, SCHEMA, SEEN, described_in

EXPLAINED = pa.schema([pa.field("plan", pa.string(), nullable=False)])
TABLE_NAMES = pa.schema([pa.field("name", pa.string(), nullable=False)])
ALL_TABLES = pa.schema(
    [
        ("database", pa.string()),
        ("schema", pa.string()),
        ("name", pa.string()),
        ("column_names", pa.list_(pa.field("l", pa.string()))),
        ("column_types", pa.list_(pa.field("l", pa.string()))),
        ("temporary", pa.bool_()),
    ]
)
STATEMENT = pa.schema([pa.field("statement", pa.string(), nullable=False)])
COLUMNS = pa.schema(
    [(name, pa.string()) for name in ("column_name", "column_type", "null", "key", "default", "extra")]
)

Explainer = Callable[[str, bool], Mapping[str, Any]]


@frozen
class Descriptions:
    """Answers `explain` and `describe` statements. Thread-safe."""

    queries: QueryService
    engine: Engine

    def schema(self, sql: str) -> pa.Schema:
        """The columns of the answer, without looking for it. Raises `SqlError`."""
        asked = read_description(sql)
        if isinstance(asked, Explain):
            return EXPLAINED
        if isinstance(asked, DescribeTable | DescribeQuery):
            return COLUMNS
        if isinstance(asked, CatalogQuery):
            return self._of_catalog(asked, with_nulls(asked.query), rows=False).schema
        if isinstance(asked, ShowNames):
            return pa.schema(
                [(name, pa.bool_() if isinstance(value, bool) else pa.string()) for name, value in asked.values]
            )
        if isinstance(asked, ShowAllTables):
            return ALL_TABLES
        return STATEMENT if isinstance(asked, ShowCreate) else TABLE_NAMES

    def answer(self, sql: str, explain: Explainer | None = None) -> pa.Table:
        """The answer. Raises `SqlError`, and what running raises for EXPLAIN ANALYZE.

        `explain` is another way to explain a query than that of the query service.
        """
        asked = read_description(sql)
        if isinstance(asked, Explain):
            said = (explain or self.queries.explain)(asked.query, asked.analyze)
            return pa.table([str(said["text"]).splitlines()], schema=EXPLAINED)
        if isinstance(asked, CatalogQuery):
            return self._of_catalog(asked, asked.query)
        if isinstance(asked, ShowNames):
            return pa.table([[value] for _, value in asked.values], schema=self.schema(sql))
        if isinstance(asked, DescribeQuery):
            return self._columns_of_query(asked.query)
        if isinstance(asked, DescribeTable):
            return self._columns(self._table(asked.table))
        if isinstance(asked, ShowCreate):
            return pa.table([[self._create_text(self._table(asked.table))]], schema=STATEMENT)
        view = self.queries.views.refresh(())
        found: dict[str, TableSpec | SqlView] = {**view.listed(self.queries.lakes), **view.sql_views}
        if isinstance(asked, ShowAllTables):
            rows = [self._with_columns(found[name]) for name in sorted(found)]
            return pa.Table.from_pylist(rows, schema=ALL_TABLES)
        return pa.table([sorted(found)], schema=TABLE_NAMES)

    def _with_columns(self, table: TableSpec | SqlView) -> dict[str, Any]:
        types = list(table.types if isinstance(table, SqlView) else self.engine.sql_types(table.schema))
        return dict(
            zip(ALL_TABLES.names, (CATALOG, SCHEMA, table.name, table.schema.names, types, False), strict=True)
        )

    def _of_catalog(self, asked: CatalogQuery, query: str, rows: bool = True) -> pa.Table:
        """The answer over tables of `information_schema` and `runtime`; without `rows` its columns alone."""
        seen = [name for name in asked.tables if name.startswith(f"{SEEN}.")]
        relations: dict[str, pa.Table] = {}
        if len(seen) < len(asked.tables):
            view = self.queries.views.refresh(())
            relations = information_schema(view.listed(self.queries.lakes), view.sql_views, self.engine)
        for name in seen:
            told = self.queries.runtime_tables
            relations[name.partition(".")[2]] = told.table(name) if rows else told.schema(name).empty_table()
        for name in described_in(query):
            relations[name + DESCRIBED] = self._columns(self._table(name))
        if not rows:
            return self.engine.describe(
                query, {name: table.schema for name, table in relations.items()}
            ).empty_table()
        running = self.engine.query(query, streams=relations)
        return pa.Table.from_batches(running.batches(), schema=running.schema)

    def _columns_of_query(self, query: str) -> pa.Table:
        """As one engine says it of tables that are declared as ours are."""
        query = self.queries.spelled(query)
        self.queries.describe(query)
        return self._described(query, self.queries.views.current(words_of(query)).catalog.tables)

    def _columns(self, table: TableSpec | SqlView) -> pa.Table:
        if isinstance(table, SqlView):
            rows = [
                (name, kind, "YES", None, None, None)
                for name, kind in zip(table.schema.names, table.types, strict=True)
            ]
            return pa.table([list(column) for column in zip(*rows, strict=True)], schema=COLUMNS)
        return self._described(f"from {_quoted(table.name)}", {table.name: table})

    def _described(self, query: str, tables: Mapping[str, TableSpec]) -> pa.Table:
        keys = {name: table.primary_key for name, table in tables.items() if table.primary_key}
        with self.queries.plans.turns.turn(query):  # a database is made for each
            rows = self.engine.described(query, {name: table.schema for name, table in tables.items()}, keys)
        return pa.table([list(column) for column in zip(*rows, strict=True)], schema=COLUMNS)

    def _create_text(self, table: TableSpec | SqlView) -> str:
        """The statement that would make the table, without its rows, or the view."""
        if isinstance(table, SqlView):
            names = ", ".join(map(_quoted, table.schema.names))
            return f"CREATE VIEW {_quoted(table.name)} ({names}) AS {table.sql}"
        if isinstance(table, SnapshotSpec):
            return external_table(table.name, table.source or {})
        keys = (
            f" PARTITIONED BY ({', '.join(key.expression for key in table.spec.keys)})" if table.spec.keys else ""
        )
        if table.query is not None:
            every = None if table.refresh is None else table.refresh.every
            said = "refresh_mode = 'full'" if every is None else f"refresh_check_interval = '{every}'"
            return f"CREATE MATERIALIZED VIEW {_quoted(table.name)}{keys} WITH ({said}) AS {table.query}"
        types = self.engine.sql_types(table.schema)
        lines = [
            f"{_quoted(field.name)} {kind}{'' if field.nullable else ' NOT NULL'}{_default_text(field)}"
            for field, kind in zip(table.schema, types, strict=True)
        ]
        if table.primary_key:
            lines.append(f"PRIMARY KEY ({', '.join(map(_quoted, table.primary_key))})")
        lines += [f"CHECK ({check})" for check in table.checks]
        text = f"CREATE TABLE {_quoted(table.name)} ({', '.join(lines)}){keys}"
        return text if table.file_format == "parquet" else f"{text} WITH (file_format = '{table.file_format}')"

    def _table(self, name: str) -> TableSpec | SqlView:
        for fresh in (False, True):
            view = self.queries.views.refresh(()) if fresh else self.queries.views.current({name})
            found = view.sql_views.get(name) or view.catalog.tables.get(name)
            if found is not None:
                return found
            if name in view.scanned and self.queries.lakes is not None:
                return self.queries.lakes.described(view.scanned[name])
        known = (*view.sql_views, *view.catalog.tables, *view.scanned)
        raise SqlError(f"Table '{name}' does not exist{meant(name, known)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _default_text(column: pa.Field) -> str:
    default = default_of(column)
    return "" if default is None else f" DEFAULT {default}"
