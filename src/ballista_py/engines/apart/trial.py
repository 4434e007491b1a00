"""A statement tried: read, bound and run over a few made-up rows, in a process that may end over it.

What a node's parser and engine do with a text that nobody has sent before is known only once they have done it: some
texts end the process, some break the database, some are read for hours. All of that happens here first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from ballista_py.engines.apart.frames import FAILED
from ballista_py.engines.apart.sample_rows import sample_rows
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.engines.duckdb.broken_database import BROKE, is_broken
from ballista_py.engines.duckdb.change import check_change
from ballista_py.engines.duckdb.guard import Guard
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.errors import BallistaError, SqlError
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.alterations import AlterTable
from ballista_py.sql.parse.changes import General, Local, read_change, text_for_engine
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.sql.parse.descriptions import CatalogQuery, DescribeQuery, Explain, read_description
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.parse.kind import StatementKind, engine_sql, statement_kind
from ballista_py.sql.parse.parameter_types import parameter_schema
from ballista_py.sql.parse.parameters import bound, with_nulls
from ballista_py.sql.parse.parsing import SqlglotError
from ballista_py.sql.parse.pivots import MAX_PIVOTS, open_pivot
from ballista_py.sql.parse.table_names import TOLD
from ballista_py.sql.parse.view_statements import CreateView
from ballista_py.threads import spawn

MAX_RUN_MS = 1_000.0
MAX_ROWS = 4_096
FEW_TABLES = 4  # of which each has two rows; of more each has one
_NO_MEMORY = ("Memory allocation failure", "std::bad_alloc")
_ROWS = '"rows of a trial"'
_TOLD = tuple(f"{schema}." for schema in TOLD)


class Trial:
    """Tries statements, one after the other, in a database that holds nothing between them.

    >>> from ballista_py.runtime import SystemRuntime
    >>> trial = Trial(Binder(SystemRuntime()), SystemRuntime())
    >>> trial.run("select n + 1 from t", None, {"t": pa.schema([("n", pa.int64())])})
    True
    """

    def __init__(self, binder: Binder, runtime: Runtime) -> None:
        self._binder = binder
        self._runtime = runtime
        self._scratch = duckdb.connect(":memory:", config={"threads": 1})
        self._scratch.execute(LOCKDOWN)
        self._scratch.execute("set global lock_configuration = true")
        self._guard = Guard(self._scratch)

    def run(
        self,
        sql: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        parameters: pa.Schema | None = None,
    ) -> bool:
        """Do with a client's text what a node does, over tables of these schemas. Whether all of it was done.

        Those of the tables of `information_schema` and `runtime` are called so, with a dot. `parameters` are the types
        of the values that it will be run with, where they are known.
        What is wrong with the text is for the node to say. Raises `SystemError` when the engine fails inside.
        """
        try:
            return self._tried(sql, dialect, schemas, parameters)
        finally:
            if self._binder.is_broken() or is_broken(self._scratch):
                raise SystemError(FAILED)

    def _tried(
        self,
        sql: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        parameters: pa.Schema | None,
    ) -> bool:
        tables = {name: schema for name, schema in schemas.items() if not name.startswith(_TOLD)}
        try:
            text = engine_sql(sql, dialect, tables)
            kind = statement_kind(text)
            if kind in ("explain", "describe"):
                asked = read_description(text)
                if not isinstance(asked, Explain | DescribeQuery | CatalogQuery):
                    return True
                if isinstance(asked, CatalogQuery):
                    tables = {name.partition(".")[2]: schemas[name] for name in asked.tables if name in schemas}
                text, kind = asked.query, "query"
            if kind == "refused":
                return True
            texts = [*_with_values(text, tables, parameters)]
        except (BallistaError, SqlglotError):
            return False
        done = [self._is_done(text, kind, tables) for text in texts]
        return done[0] if parameters is not None else any(done)

    def _is_done(self, text: str, kind: StatementKind, schemas: Mapping[str, pa.Schema]) -> bool:
        try:
            text = self._with_pivots(text, schemas)
            (self._run_query if kind == "query" else self._run_change)(text, schemas)
        except (BallistaError, SqlglotError):
            return False
        return True

    def _with_pivots(self, text: str, schemas: Mapping[str, pa.Schema]) -> str:
        """The text with the values of each PIVOT written out, which are asked for as a node does."""
        for _ in range(MAX_PIVOTS):
            found = open_pivot(text)
            if found is None:
                break
            asked = [self._run_query(query, schemas) for query in found.asked]
            text = found.closed([[str(value) for (value,) in rows] for rows in asked])
        return text

    def _run_query(self, query: str, schemas: Mapping[str, pa.Schema]) -> list[tuple[Any, ...]]:
        """A few of the rows that it gives over few rows; none of one that the node runs apart, too."""
        if self._binder.check(query, schemas).is_apart(schemas.values()):
            return []
        return self._over_few_rows(query, schemas)

    def _run_change(self, change: str, schemas: Mapping[str, pa.Schema]) -> None:
        """Run what of a change an engine computes."""
        read = read_change(change)
        if isinstance(read, CreateTable):
            if read.query is not None:
                self._run_query(read.query, schemas)
            else:
                self._declare(read)
        elif isinstance(read, CreateView):
            self._run_query(read.query, schemas)
        elif isinstance(read, AlterTable):
            with suppress(SqlError):  # a node computes nothing of it but the default, and has clauses of its own
                self._over_few_rows(text_for_engine(change) or change, schemas)
        elif isinstance(read, Insert | Local | General):
            text = text_for_engine(change) or change
            check_change(self._guard, text, schemas)
            self._over_few_rows(text, schemas)

    def _declare(self, create: CreateTable) -> None:
        """Make the table, compute its conditions over rows, and its defaults for one."""
        name = quoted(create.table)
        with self._unchanged() as connection, self._for_a_while():
            connection.execute(create.declaration)
            schema = connection.table(name).to_arrow_table().schema
            conditions = [f"select ({check}\n) from {name}" for check in create.checks]
            if any(self._binder.check(sql, [create.table]).is_apart([schema]) for sql in conditions):
                return
            connection.register(_ROWS.strip('"'), sample_rows(schema, 2))
            for check in create.checks:
                connection.execute(f"select ({check}\n) from {_ROWS} as {name}").fetchall()
            connection.execute(f"insert into {name} default values")

    def _over_few_rows(self, text: str, schemas: Mapping[str, pa.Schema]) -> list[tuple[Any, ...]]:
        """The first rows. Raises `SqlError` where it did not come to its end: nobody knows what it would have done."""
        found: list[tuple[Any, ...]] | None = None
        with self._unchanged() as connection:
            for name, schema in schemas.items():
                rows = sample_rows(schema, 2 if len(schemas) <= FEW_TABLES else 1)
                connection.register(_ROWS.strip('"'), rows)
                connection.execute(f"create table {quoted(name)} as from {_ROWS}")
                connection.unregister(_ROWS.strip('"'))
            with self._for_a_while():
                found = connection.execute(text).fetchmany(MAX_ROWS)
        if found is None:
            raise SqlError("it did not come to its end over made-up rows")
        return found

    @contextmanager
    def _unchanged(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A transaction that leaves nothing behind. Raises `SystemError` if the database breaks over it."""
        connection = self._scratch
        connection.begin()
        try:
            yield connection
        except duckdb.Error as error:
            if str(error).startswith(BROKE) and not any(words in str(error) for words in _NO_MEMORY):
                raise SystemError(FAILED) from None
        finally:
            with suppress(duckdb.Error):
                connection.rollback()

    @contextmanager
    def _for_a_while(self) -> Iterator[None]:
        """Stop what the block does when it takes longer than a moment."""
        is_over, changed = False, self._runtime.condition()

        def watch() -> None:
            until_ms = self._runtime.monotonic_ms() + MAX_RUN_MS
            with changed:
                while not is_over and (left_ms := until_ms - self._runtime.monotonic_ms()) > 0:
                    changed.wait(left_ms)
            if not is_over:
                self._scratch.interrupt()

        spawn(watch)
        try:
            yield
        finally:
            with changed:
                is_over = True
                changed.notify_all()


def _with_values(text: str, schemas: Mapping[str, pa.Schema], given: pa.Schema | None) -> Iterator[str]:
    """The statement as it is; one with parameters with ordinary values for them, and with NULL for each.

    Raises `SqlError` for values of another number, and of a type of which no value can be made up.
    """
    kinds = parameter_schema(text, schemas)
    if not kinds.names:
        yield text
        return
    if given is not None:
        yield bound(text, _values_of(kinds.names, given))
        yield with_nulls(text)
        return
    for unknown in (pa.int64(), pa.string()) if pa.null() in kinds.types else (pa.null(),):
        known = pa.schema([(field.name, unknown if field.type == pa.null() else field.type) for field in kinds])
        row = sample_rows(known, 1)
        yield bound(text, {name: row[name][0] for name in known.names})
    yield with_nulls(text)


def _values_of(names: Sequence[str], given: pa.Schema) -> dict[str, pa.Scalar]:
    """Made-up values of the types that are given, by name if they have the parameters' names, else in order."""
    if len(names) != len(given):
        raise SqlError("there are not as many values as parameters")
    row = sample_rows(given, 1)
    values = [row.column(place)[0] for place in range(len(given))]
    if any(not value.is_valid and value.type != pa.null() for value in values):
        raise SqlError("no value can be made up for a parameter")
    by_name = set(names) == set(given.names)
    return {name: values[given.names.index(name) if by_name else place] for place, name in enumerate(names)}


__all__ = ["Trial"]
