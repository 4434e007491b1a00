"""Databases of empty tables that statements are bound against: a table is made when a statement first names it.

What one client declares costs others nothing: a table of 10,000 columns takes seconds to make, and only those wait for
it who name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from attrs import define, field

from ballista_py.engines.duckdb.broken_database import is_broken
from ballista_py.engines.duckdb.held_table import HeldTable
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.partitions.columns import default_of
from ballista_py.runtime import Runtime
from ballista_py.work import require_wanted

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
