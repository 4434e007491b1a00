"""What the engines share: tables that are loaded, statements bound by one DuckDB without rows, queries that run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from weakref import WeakSet

import pyarrow as pa

from ballista_py.engines.duckdb_binder import Binder
from ballista_py.engines.engine import RunningQuery
from ballista_py.errors import ConfigError
from ballista_py.runtime import Runtime
from ballista_py.storage.local_file import Loadable


class LoadedTables(Protocol):
    """The tables of one engine, by name."""

    def create(self, table: str, schema: pa.Schema) -> None: ...
    def drop(self, table: str) -> None: ...
    def load(self, table: str, files: Sequence[Loadable]) -> int: ...
    def unload(self, table: str, file_ids: Iterable[int]) -> None: ...


class LoadedEngine:
    """An `Engine` but for `query` and `tidy`. Safe to share between threads."""

    dialect = "duckdb"

    def __init__(self, tables: LoadedTables, runtime: Runtime) -> None:
        self._loaded = tables
        self._binder = Binder(runtime)
        self._running: WeakSet[RunningQuery] = WeakSet()
        self._lock = runtime.lock()
        self._closed = False

    def create_table(self, table: str, schema: pa.Schema) -> None:
        """Make an empty table; a table of that name and schema may exist already.

        Raises `SchemaMismatch` when the table exists with another schema, or for a column that cannot be held.
        """
        self._require_open()
        self._loaded.create(table, schema)

    def drop_table(self, table: str) -> None:
        """Forget a table and all its files; queries that run over them finish undisturbed."""
        self._require_open()
        self._loaded.drop(table)

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        """Make the rows of `files` readable, all or none; a file already loaded is skipped. Returns rows loaded.

        Raises `ConfigError` for an unknown table or format, `DocumentUnreadable` for a damaged file,
        `SchemaMismatch` for rows that do not fit the table, `MergeTooLarge` when memory and spill space are full.
        """
        self._require_open()
        return self._loaded.load(table, files)

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        """Forget files; queries that already run over them finish undisturbed."""
        self._require_open()
        self._loaded.unload(table, file_ids)

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The result schema of `sql` over empty tables of these schemas: names and types as one node gives them.

        Raises `SqlError`.
        """
        self._require_open()
        return self._binder.describe(sql, schemas)

    def parameters(self, sql: str) -> frozenset[str]:
        """The names of the parameters in `sql`, any statement; `?` are numbered from 1. Raises `SqlError`."""
        self._require_open()
        return self._binder.parameters(sql)

    def sql_types(self, schema: pa.Schema) -> tuple[str, ...]:
        """The types of the columns as DuckDB's SQL writes them. Raises `SchemaMismatch` for one it cannot hold."""
        self._require_open()
        return self._binder.sql_types(schema)

    def close(self) -> None:
        """Release everything; running queries are cancelled. Closing twice is fine."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for query in running:
            query.cancel()
        self._binder.close()

    def _runs(self, query: RunningQuery) -> None:
        """Remember the query, to cancel it when the engine is closed."""
        with self._lock:
            self._running.add(query)

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigError("the engine is closed")
