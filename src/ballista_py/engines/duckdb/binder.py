"""Statements bound, not run: what they read, the columns of their answer, their plan, as one DuckDB sees them.

Every engine binds here, so names, types, implicit casts and the words of an error are the same whichever runs the
statement. Nothing is held but empty tables.

Databases of empty tables that statements are bound against: a table is made when a statement first names it.

What one client declares costs others nothing: a table of 10,000 columns takes seconds to make, and only those wait for
it who name it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, field

from ballista_py.engines.duckdb.broken_database import is_broken
from ballista_py.engines.duckdb.change import check_change
from ballista_py.engines.duckdb.errors import EXPLAIN, translate
from ballista_py.engines.duckdb.guard import Guard, GuardedSelect, require_readable
from ballista_py.engines.duckdb.held_table import HeldTable
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.parameter_columns import parameter_columns
from ballista_py.engines.duckdb.types import ArrowTypes, quoted
from ballista_py.errors import SqlError
from ballista_py.partitions.columns import default_of
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.quotes import first_place
from ballista_py.work import require_wanted, stopped_by

MAX_DATABASES = 8
MAX_COLUMNS = 50_000  # of one database, until another one is begun: tables that were dropped or altered stay
LOOK_MS = 100.0
# The rewrites that ask nothing of the data: everything else would believe that the tables are empty.
_REWRITES = ("expression_rewriter", "filter_pushdown")


def empty_database() -> duckdb.DuckDBPyConnection:
    """A database without tables. One thread: binding must not wait for the threads that run queries."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute(LOCKDOWN)
    names = [row[0] for row in connection.execute("select name from duckdb_optimizers()").fetchall()]
    others = ",".join(name for name in names if name not in _REWRITES)
    connection.execute(f"set global disabled_optimizers = '{others}'")
    connection.execute("set global lock_configuration = true")
    return connection


def make_declared(connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
    """Make an empty table with all that its columns are declared to be. Raises `SchemaMismatch`."""
    HeldTable.create(connection, quoted(name), schema, name, tagged=False)
    for column in schema:
        altered = f"alter table {quoted(name)} alter {quoted(column.name)} set"
        if not column.nullable:
            connection.execute(f"{altered} not null")
        if (default := default_of(column)) is not None:
            connection.execute(f"{altered} default ({default}\n)")
    if key:
        connection.execute(f"alter table {quoted(name)} add primary key ({', '.join(map(quoted, key))})")


@define(eq=False)
class _Database:
    connection: duckdb.DuckDBPyConnection
    tables: dict[str, pa.Schema] = field(factory=dict)  # those that are there
    making: dict[str, pa.Schema] = field(factory=dict)  # those that somebody makes now

    @property
    def columns(self) -> int:
        return sum(len(schema) for schema in (*self.tables.values(), *self.making.values()))

    def fits(self, schemas: Mapping[str, pa.Schema]) -> bool:
        """Whether no table of such a name has other columns here. A name means the same in any case of letters."""
        for name, schema in schemas.items():
            held = self.tables.get(name.lower()) or self.making.get(name.lower())
            if held is None or held is schema:
                continue
            if not held.equals(schema, check_metadata=True):
                return False
            if name.lower() in self.tables:  # the next look at it need not compare
                self.tables[name.lower()] = schema
        return True

    def lacks(self, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
        return {name: schema for name, schema in schemas.items() if name.lower() not in self.tables}

    def make(self, name: str, schema: pa.Schema) -> None:
        with self.connection.cursor() as cursor:
            HeldTable.create(cursor, quoted(name), schema, name, tagged=False)


class EmptyTables:
    """The databases, the one used last comes last. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._changed = runtime.condition()
        self._databases: list[_Database] = []

    def holding(self, schemas: Mapping[str, pa.Schema]) -> duckdb.DuckDBPyConnection:
        """A database that has empty tables of these schemas, and maybe others.

        Raises `SchemaMismatch` for a table that DuckDB cannot hold.
        """
        with self._changed:
            while True:
                database = self._fitting(schemas)
                lacking = database.lacks(schemas)
                if not lacking:
                    return database.connection
                mine = {name: schema for name, schema in lacking.items() if name.lower() not in database.making}
                if mine:
                    database.making.update({name.lower(): schema for name, schema in mine.items()})
                    break
                self._changed.wait(LOOK_MS)
                require_wanted()
        made: dict[str, pa.Schema] = {}
        try:
            for name, schema in mine.items():
                database.make(name, schema)
                made[name.lower()] = schema
        finally:
            with self._changed:
                for name in mine:
                    del database.making[name.lower()]
                database.tables.update(made)
                self._changed.notify_all()
        return database.connection if len(mine) == len(lacking) else self.holding(schemas)

    def close(self) -> None:
        """Release every database."""
        with self._changed:
            databases, self._databases = self._databases, []
        for database in databases:
            database.connection.close()

    def _fitting(self, schemas: Mapping[str, pa.Schema]) -> _Database:
        """One that has all of the tables, else one that may have them: without others of these names, and not full."""
        fitting = [database for database in reversed(self._databases) if database.fits(schemas)]
        whole = [database for database in fitting if not database.lacks(schemas)]
        for database in whole or fitting:
            if not whole and database.columns > MAX_COLUMNS:
                continue
            self._databases.remove(database)
            if is_broken(database.connection):  # by a statement whose constants could not be computed
                break
            self._databases.append(database)
            return database
        return self._begun()

    def _begun(self) -> _Database:
        if len(self._databases) >= MAX_DATABASES:
            del self._databases[0]
        self._databases.append(_Database(empty_database()))
        return self._databases[-1]


_MAX_REMEMBERED, _MAX_REMEMBERED_BYTES, _LEAST_BYTES = 512, 1 << 20, 512
_DESCRIBE = "describe\n"
_PLAN = "explain (format json)\n"
_CHANGES = tuple(
    getattr(duckdb.StatementType, name)
    for name in ("INSERT", "UPDATE", "DELETE", "MERGE_INTO", "CREATE", "DROP", "ALTER")
)
_ALTER = re.compile(r"alter\b", re.IGNORECASE)
# What may stand in a CREATE TABLE and is computed while the table is made.
_COMPUTED = re.compile(r"\b(as|check|default|generated|using)\b", re.IGNORECASE)
_SERIALIZE = (
    "select json_serialize_plan(?, skip_null := true, skip_empty := true, skip_default := true, optimize := true)"
)


class Apart(Protocol):
    """Where statements are bound that may take memory or time without an end: `Workers`."""

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema: ...
    def plan(self, sql: str, schemas: Mapping[str, pa.Schema]) -> dict[str, Any]: ...
    def types(self, sql: str, schemas: Mapping[str, pa.Schema]) -> tuple[tuple[str, str], ...]: ...
    def described(
        self, sql: str, schemas: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str | None, ...], ...]: ...
    def declared(self, sql: str) -> tuple[tuple[str, str], ...]: ...
    def bind_change(self, sql: str, schemas: Mapping[str, pa.Schema], same: str | None) -> bool: ...


class Binder:
    """Binds statements against empty tables. Safe to share between threads.

    >>> from ballista_py.runtime import SystemRuntime
    >>> binder = Binder(SystemRuntime())
    >>> binder.describe("select n + 1 as m from t", {"t": pa.schema([("n", pa.int64())])})
    m: int64
    >>> binder.close()
    """

    def __init__(self, runtime: Runtime, apart: Apart | None = None) -> None:
        """With `apart`, statements that are not steady are bound there."""
        self._apart = apart
        self._tables = EmptyTables(runtime)
        self._columns: Remembered[tuple[str | None, ...]] = Remembered(
            _MAX_REMEMBERED, _MAX_REMEMBERED_BYTES, runtime
        )
        self._open()

    def _open(self) -> None:
        self._aside = empty_database()
        self._guard = Guard(self._aside)
        self._types = ArrowTypes(self._aside)

    def watch(self) -> None:
        """Make the database anew that parses, if a statement has broken it."""
        if self.is_broken():
            self._open()

    def is_broken(self) -> bool:
        """Whether a statement has broken the database that parses."""
        return is_broken(self._aside)

    def check(self, sql: str, relations: Collection[str]) -> GuardedSelect:
        """What `sql` reads, if it is one SELECT over `relations` alone. Raises `SqlError`."""
        return self._guard.check(sql, relations)

    def passing(self, sql: str, wanted: str) -> str | None:
        """See `Guard.passing`."""
        return self._guard.passing(sql, wanted)

    def schema(self, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
        """The columns of a bound relation as Arrow has them."""
        return self._types.schema(relation)

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The result schema of `sql` over empty tables of these schemas. Raises `SqlError`."""
        statement = self._guard.check(sql, schemas)
        read = {name: schemas[name] for name in statement.relations}
        if self._apart is not None and statement.is_apart(read.values()):
            return self._apart.describe(sql, read)
        cursor = self._named(statement, schemas).cursor()
        try:
            with stopped_by(cursor.interrupt):
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
        statement = self._guard.check(sql, schemas)
        read = {name: schemas[name] for name in statement.relations}
        if self._apart is not None and statement.is_apart(read.values()):
            return self._apart.plan(sql, read)
        with self._named(statement, schemas).cursor() as cursor, stopped_by(cursor.interrupt):
            row = cursor.execute(_SERIALIZE, [sql]).fetchone()
        try:
            found: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
        except (ValueError, RecursionError):  # a constant that JSON has no word for
            found = {"error": True}
        if found["error"] or len(found["plans"]) != 1:
            raise SqlError("the plan of this statement cannot be taken from DuckDB: its engine alone can run it")
        plan: dict[str, Any] = found["plans"][0]
        return plan

    def parameters(self, sql: str) -> frozenset[str]:
        """The names of the parameters in `sql`, any statement; `?` are numbered from 1. Raises `SqlError`."""
        require_readable(sql)
        try:
            statements = self._aside.extract_statements(sql)
        except Exception as error:
            raise translate(error, sql) from None
        return frozenset(name for statement in statements for name in statement.named_parameters)

    def parameter_columns(self, sql: str) -> tuple[str | None, ...]:
        """See `Engine.parameter_columns`. Raises `SqlError` for what is nested too deeply."""
        require_readable(sql)
        known = self._columns.get(sql)
        if known is None:
            known = parameter_columns(self._aside, sql)
            self._columns.put(sql, known, len(sql) + sum(len(name or "") for name in known) + _LEAST_BYTES)
        return known

    def require_change(self, sql: str) -> None:
        """Raise `SqlError`, with its position, unless `sql` is one statement that changes something, to DuckDB, too."""
        require_readable(sql)
        try:
            statements = self._aside.extract_statements(sql)
        except Exception as error:
            raise translate(error, sql) from None
        kinds = [_kind_of(statement) for statement in statements]
        # Adding a column with a default is several steps to DuckDB.
        of_steps = kinds[:1] == [duckdb.StatementType.MULTI] and _ALTER.match(sql, first_place(sql))
        if len(kinds) != 1 or (kinds[0] not in _CHANGES and not of_steps):
            several = f"the text holds {len(statements)} statements: send them one by one"
            raise SqlError(several if len(statements) != 1 else "the statement changes no table")

    def bind_change(self, sql: str, schemas: Mapping[str, pa.Schema], same: str | None = None) -> bool:
        """Whether a statement that changes a table, and `same`, have one plan over empty tables of these schemas.

        Nothing is run. Raises `SqlError`, with its position in `sql`, for one that does not bind.
        """
        self.require_change(sql)
        statement = check_change(self._guard, sql, schemas)
        # Without `same` the statement is to be run as a whole, which is done apart whatever it computes.
        read = {name: schemas[name] for name in statement.relations}
        if self._apart is not None and (same is None or statement.is_apart(read.values())):
            return self._apart.bind_change(sql, read, same)
        with self._named(statement, schemas).cursor() as cursor, stopped_by(cursor.interrupt):
            cursor.begin()  # in which now() has one value
            try:
                plan = cursor.execute(_PLAN + sql).fetchall()
            except Exception as error:
                raise translate(error, sql, prefix=_PLAN) from None
            try:
                return same is None or bool(plan == cursor.execute(_PLAN + same).fetchall())
            except duckdb.Error:
                return False

    def types(self, sql: str, schemas: Mapping[str, pa.Schema]) -> tuple[tuple[str, str], ...]:
        """Name and type, as DuckDB writes it, of each column that `sql` gives over tables of these schemas."""
        statement = self._guard.check(sql, schemas)
        read = {name: schemas[name] for name in statement.relations}
        if self._apart is not None and statement.is_apart(read.values()):
            return self._apart.types(sql, read)
        self.describe(sql, schemas)
        with self._named(statement, schemas).cursor() as cursor, stopped_by(cursor.interrupt):
            found = cursor.sql(sql)
            return tuple(zip(found.columns, map(str, found.types), strict=True))

    def described(
        self, sql: str, schemas: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str | None, ...], ...]:
        """What DESCRIBE says of the columns that `sql` gives over tables of these schemas and primary keys.

        DuckDB looks through a query for the columns of tables: it tells which of those are NOT NULL, a key, and their
        default. So the tables are made here with all that, each time.
        """
        statement = self._guard.check(sql, schemas)
        read = {name: schemas[name] for name in statement.relations}
        if self._apart is not None and statement.is_apart(read.values()):
            return self._apart.described(sql, read, {name: keys[name] for name in read if keys.get(name)})
        with closing(empty_database()) as connection, stopped_by(connection.interrupt):
            for name, schema in read.items():
                make_declared(connection, name, schema, keys.get(name, ()))
            try:
                rows = connection.execute(_DESCRIBE + sql).fetchall()
            except Exception as error:
                raise translate(error, sql, prefix=_DESCRIBE) from None
        return tuple(tuple(None if value is None else str(value) for value in row) for row in rows)

    def declared(self, sql: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each column that a CREATE TABLE declares, as DuckDB reads it. Raises `SqlError`."""
        self.require_change(sql)
        if self._apart is not None and _COMPUTED.search(sql):
            return self._apart.declared(sql)
        connection = empty_database()
        try:
            connection.execute(sql)
            rows = connection.execute(
                "select column_name, data_type from duckdb_columns() where not internal order by column_index"
            )
            return tuple((str(name), str(kind)) for name, kind in rows.fetchall())
        except Exception as error:
            raise translate(error, sql) from None
        finally:
            connection.close()

    def sql_types(self, schema: pa.Schema) -> tuple[str, ...]:
        """The types of the columns as DuckDB's SQL writes them. Raises `SchemaMismatch` for one it cannot hold."""
        if not len(schema):
            return ()
        name = f"columns {hash(schema)}"  # no table has such a name, and others have other columns
        with self._tables.holding({name: schema}).cursor() as cursor:
            return tuple(map(str, cursor.sql(f"from {quoted(name)}").types))

    def close(self) -> None:
        """Release every database."""
        self._tables.close()
        self._aside.close()

    def _named(self, statement: GuardedSelect, schemas: Mapping[str, pa.Schema]) -> duckdb.DuckDBPyConnection:
        """A database that has the tables that the statement names, empty."""
        return self._tables.holding({name: schemas[name] for name in statement.relations})


def explain_error(cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
    """DuckDB's longer words for why `sql` does not bind, or nothing."""
    try:
        cursor.execute(EXPLAIN + sql)
    except Exception as error:
        return str(error)
    return ""


def _kind_of(statement: duckdb.Statement) -> duckdb.StatementType | None:
    """Which kind of statement it is; None for one of which DuckDB's Python library does not know the kind."""
    try:
        return statement.type
    except ValueError:
        return None
