"""A statement tried: read, bound and run over a few made-up rows, in a process that may end over it.

What a node's parser and engine do with a text that nobody has sent before is known only once they have done it: some
texts end the process, some break the database, some are read for hours. All of that happens here first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa

from ballista_py.engines.apart.frames import FAILED
from ballista_py.engines.apart.sample_rows import sample_rows
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.engines.duckdb.broken_database import BROKE, is_broken
from ballista_py.engines.duckdb.change import check_change
from ballista_py.engines.duckdb.guard import Guard
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.errors import BallistaError
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.alterations import AlterTable
from ballista_py.sql.parse.changes import General, Local, read_change, text_for_engine
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.sql.parse.descriptions import CatalogQuery, DescribeQuery, Explain, read_description
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.parse.kind import engine_sql, statement_kind
from ballista_py.sql.parse.parameter_types import parameter_schema
from ballista_py.sql.parse.parameters import bound, with_nulls
from ballista_py.sql.parse.parsing import SqlglotError
from ballista_py.sql.parse.table_names import TOLD
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

    def run(self, sql: str, dialect: str | None, schemas: Mapping[str, pa.Schema]) -> bool:
        """Do with a client's text what a node does, over tables of these schemas. Whether it was understood.

        Those of the tables of `information_schema` and `runtime` are called so, with a dot.
        What is wrong with the text is for the node to say. Raises `SystemError` when the engine fails inside.
        """
        try:
            return self._tried(sql, dialect, schemas)
        finally:
            if self._binder.is_broken() or is_broken(self._scratch):
                raise SystemError(FAILED)

    def _tried(self, sql: str, dialect: str | None, schemas: Mapping[str, pa.Schema]) -> bool:
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
            texts = [*_with_values(text, tables)]
        except (BallistaError, SqlglotError):
            return False
        understood = False
        for text in texts:
            with suppress(BallistaError, SqlglotError):
                (self._run_query if kind == "query" else self._run_change)(text, tables)
                understood = True
        return understood

    def _run_query(self, query: str, schemas: Mapping[str, pa.Schema]) -> None:
        if not self._binder.check(query, schemas).is_apart(schemas.values()):  # else the node runs it apart, too
            self._over_few_rows(query, schemas)

    def _run_change(self, change: str, schemas: Mapping[str, pa.Schema]) -> None:
        """Run what of a change an engine computes."""
        read = read_change(change)
        if isinstance(read, CreateTable):
            if read.query is not None:
                self._run_query(read.query, schemas)
            else:
                self._declare(read)
        elif isinstance(read, AlterTable | Insert | Local | General):
            text = text_for_engine(change) or change
            if not isinstance(read, AlterTable):
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

    def _over_few_rows(self, text: str, schemas: Mapping[str, pa.Schema]) -> None:
        with self._unchanged() as connection:
            for name, schema in schemas.items():
                rows = sample_rows(schema, 2 if len(schemas) <= FEW_TABLES else 1)
                connection.register(_ROWS.strip('"'), rows)
                connection.execute(f"create table {quoted(name)} as from {_ROWS}")
                connection.unregister(_ROWS.strip('"'))
            with self._for_a_while():
                connection.execute(text).fetchmany(MAX_ROWS)

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


def _with_values(text: str, schemas: Mapping[str, pa.Schema]) -> Iterator[str]:
    """The statement as it is; one with parameters with ordinary values for them, and with NULL for each."""
    kinds = parameter_schema(text, schemas)
    if not kinds.names:
        yield text
        return
    for unknown in (pa.int64(), pa.string()) if pa.null() in kinds.types else (pa.null(),):
        known = pa.schema([(field.name, unknown if field.type == pa.null() else field.type) for field in kinds])
        row = sample_rows(known, 1)
        yield bound(text, {name: row[name][0] for name in known.names})
    yield with_nulls(text)


__all__ = ["Trial"]
