"""What engines share because one DuckDB, without any rows, binds the statements of all of them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ballista_py.engines.duckdb_binder import Binder


class BoundByDuckDB:
    """The part of an `Engine` that needs no rows. An engine brings `_binder` and `_require_open`."""

    _binder: Binder

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

    def _require_open(self) -> None:
        raise AssertionError
