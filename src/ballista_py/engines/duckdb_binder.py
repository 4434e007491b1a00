"""Statements bound, not run: what they read, the columns of their answer, their plan, as one DuckDB sees them.

Every engine binds here, so names, types, implicit casts and the words of an error are the same whichever runs the
statement. Nothing is held but empty tables.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from ballista_py.engines.duckdb_errors import EXPLAIN, translate
from ballista_py.engines.duckdb_guard import Guard, Statement
from ballista_py.engines.duckdb_library import duckdb
from ballista_py.engines.duckdb_tables import HeldTable
from ballista_py.engines.duckdb_types import ArrowTypes, quoted
from ballista_py.errors import SqlError
from ballista_py.runtime import Runtime

_REMEMBERED_CATALOGS = 8
LOCKDOWN = """
    set global enable_external_access = false;
    set global autoinstall_known_extensions = false;
    set global autoload_known_extensions = false;
    set global python_enable_replacements = false;
    set global TimeZone = 'UTC';
"""
# The rewrites that ask nothing of the data: everything else would believe that the tables are empty.
_REWRITES = ("expression_rewriter", "filter_pushdown")
_SERIALIZE = (
    "select json_serialize_plan(?, skip_null := true, skip_empty := true, skip_default := true, optimize := true)"
)


class Binder:
    """Binds statements against empty tables. Safe to share between threads.

    >>> from ballista_py.runtime import SystemRuntime
    >>> binder = Binder(SystemRuntime())
    >>> binder.describe("select n + 1 as m from t", {"t": pa.schema([("n", pa.int64())])})
    m: int64
    >>> binder.close()
    """

    def __init__(self, runtime: Runtime) -> None:
        self._aside = _empty_catalog({})  # one thread: parsing must not wait for the threads that run queries
        self._guard = Guard(self._aside)
        self._types = ArrowTypes(self._aside)
        self._lock = runtime.lock()
        self._catalogs: OrderedDict[frozenset[tuple[str, pa.Schema]], duckdb.DuckDBPyConnection] = OrderedDict()

    def check(self, sql: str, relations: Collection[str]) -> Statement:
        """What `sql` reads, if it is one SELECT over `relations` alone. Raises `SqlError`."""
        return self._guard.check(sql, relations)

    def schema(self, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
        """The columns of a bound relation as Arrow has them."""
        return self._types.schema(relation)

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The result schema of `sql` over empty tables of these schemas. Raises `SqlError`."""
        self._guard.check(sql, schemas)
        cursor = self._catalog(schemas).cursor()
        try:
            return self._types.schema(cursor.sql(sql))
        except Exception as error:
            raise translate(error, sql, partial(explain_error, cursor, sql)) from None
        finally:
            cursor.close()

    def plan(self, sql: str, schemas: Mapping[str, pa.Schema]) -> dict[str, Any]:
        """The bound plan of `sql`, as DuckDB writes it: names resolved, casts in place, subqueries as joins.

        Constants are folded and filters lie where they belong; nothing in it depends on rows. Raises `SqlError`
        for what DuckDB cannot write down.
        """
        self._guard.check(sql, schemas)
        with self._catalog(schemas).cursor() as cursor:
            row = cursor.execute(_SERIALIZE, [sql]).fetchone()
        try:
            found: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
        except ValueError:  # a constant that JSON has no word for
            found = {"error": True}
        if found["error"] or len(found["plans"]) != 1:
            raise SqlError("the plan of this statement cannot be taken from DuckDB: its engine alone can run it")
        plan: dict[str, Any] = found["plans"][0]
        return plan

    def parameters(self, sql: str) -> frozenset[str]:
        """The names of the parameters in `sql`, any statement; `?` are numbered from 1. Raises `SqlError`."""
        try:
            statements = self._aside.extract_statements(sql)
        except Exception as error:
            raise translate(error, sql) from None
        return frozenset(name for statement in statements for name in statement.named_parameters)

    def sql_types(self, schema: pa.Schema) -> tuple[str, ...]:
        """The types of the columns as DuckDB's SQL writes them. Raises `SchemaMismatch` for one it cannot hold."""
        cursor = self._catalog({"t": schema}).cursor()
        try:
            return tuple(map(str, cursor.sql("from t").types))
        finally:
            cursor.close()

    def close(self) -> None:
        """Release every catalog."""
        with self._lock:
            catalogs = list(self._catalogs.values())
            self._catalogs.clear()
        for connection in (*catalogs, self._aside):
            connection.close()

    def _catalog(self, schemas: Mapping[str, pa.Schema]) -> duckdb.DuckDBPyConnection:
        """A database of empty tables of these schemas, made once."""
        key = frozenset(schemas.items())
        with self._lock:
            found = self._catalogs.get(key)
            if found is not None:
                self._catalogs.move_to_end(key)
                return found
        made = _empty_catalog(schemas)
        with self._lock:
            if len(self._catalogs) >= _REMEMBERED_CATALOGS:
                self._catalogs.popitem(last=False)
            return self._catalogs.setdefault(key, made)


def explain_error(cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
    """DuckDB's longer words for why `sql` does not bind, or nothing."""
    try:
        cursor.execute(EXPLAIN + sql)
    except Exception as error:
        return str(error)
    return ""


def _empty_catalog(schemas: Mapping[str, pa.Schema]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute(LOCKDOWN)
    names = [row[0] for row in connection.execute("select name from duckdb_optimizers()").fetchall()]
    others = ",".join(name for name in names if name not in _REWRITES)
    connection.execute(f"set global disabled_optimizers = '{others}'")
    for name, schema in schemas.items():
        HeldTable.create(connection, quoted(name), schema, name)
    connection.execute("set global lock_configuration = true")
    return connection
