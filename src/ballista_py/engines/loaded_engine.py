"""What the engines share: tables that are loaded, statements bound by one DuckDB without rows, queries that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol
from weakref import WeakKeyDictionary, WeakMethod, WeakSet

import pyarrow as pa

from ballista_py.engines.apart.change import ChangeOutcome, change_rows
from ballista_py.engines.apart.frames import TOO_LARGE
from ballista_py.engines.apart.workers import Workers
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.engines.engine import RunningQuery
from ballista_py.errors import BallistaError, ConfigError, MergeTooLarge, named
from ballista_py.runtime import Runtime
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.files import Loadable
from ballista_py.work import current_work

GROWN_BYTES = 256 << 20


class LoadedTables(Protocol):
    """The tables of one engine, by name."""

    def create(self, table: str, schema: pa.Schema) -> None: ...
    def alter(self, table: str, schema: pa.Schema) -> bool: ...
    def drop(self, table: str) -> None: ...
    def load(self, table: str, files: Sequence[Loadable]) -> int: ...
    def unload(self, table: str, file_ids: Iterable[int]) -> None: ...


class LoadedEngine:
    """An `Engine` but for `query` and `tidy`. Safe to share between threads."""

    dialect = "duckdb"
    begun = 0  # how often it had to begin anew, without anything that was loaded

    def __init__(self, tables: LoadedTables, runtime: Runtime, workers: Workers | None = None) -> None:
        self._loaded = tables
        self._workers = workers
        self._node_bytes = None if workers is None else workers.max_bytes
        self._binder = Binder(runtime, workers)
        self._running: WeakKeyDictionary[RunningQuery, int | None] = WeakKeyDictionary()  # the memory at its start
        self._taking: WeakSet[RunningQuery] = WeakSet()
        self._lock = runtime.lock()
        self._closed = False

    def create_table(self, table: str, schema: pa.Schema) -> None:
        """Make an empty table; a table of that name and schema may exist already.

        Raises `SchemaMismatch` when the table exists with another schema, or for a column that cannot be held.
        """
        self._require_open()
        with self._named_errors():
            self._loaded.create(table, schema)

    def alter_table(self, table: str, schema: pa.Schema) -> bool:
        """Give a table, with what is loaded of it, other columns; False, and nothing done, where that cannot be.

        Columns are told by their stored names. Queries that already run see none of it.
        """
        self._require_open()
        with self._named_errors():
            return self._loaded.alter(table, schema)

    def drop_table(self, table: str) -> None:
        """Forget a table and all its files; queries that run over them finish undisturbed."""
        self._require_open()
        with self._named_errors():
            self._loaded.drop(table)

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        """Make the rows of `files` readable, all or none; a file already loaded is skipped. Returns rows loaded.

        Raises `ConfigError` for an unknown table or format, `DocumentUnreadable` for a damaged file,
        `SchemaMismatch` for rows that do not fit the table, `MergeTooLarge` when memory and spill space are full.
        """
        self._require_open()
        with self._named_errors():
            return self._loaded.load(table, files)

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        """Forget files; queries that already run over them finish undisturbed."""
        self._require_open()
        with self._named_errors():
            self._loaded.unload(table, file_ids)

    def derive(self, _table: str, _file_id: int, _of: int, _gone: Places) -> bool:
        """Make the rows of a loaded file but for those at the places `gone` readable as another file, by its new id.

        False, and nothing done, where that cannot be: then the file is to be loaded.
        """
        return False

    def places(
        self, _table: str, _file_id: int, _sql: str, _streams: Mapping[str, pa.Table] | None = None
    ) -> Places | None:
        """See `Engine.places`."""
        return None

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

    def parameter_columns(self, sql: str) -> tuple[str | None, ...]:
        """What the columns that `sql` computes from its parameters are called. Raises `SqlError`."""
        self._require_open()
        return self._binder.parameter_columns(sql)

    def require_change(self, sql: str) -> None:
        """Raise `SqlError`, with its position, unless `sql` is one statement that changes something."""
        self._require_open()
        self._binder.require_change(sql)

    def bind_change(self, sql: str, schemas: Mapping[str, pa.Schema], same: str | None = None) -> bool:
        """Whether a statement that changes a table of these schemas has the same plan as `same`.

        Nothing is run. Raises `SqlError`, with its position in `sql`, for one that does not bind.
        """
        self._require_open()
        return self._binder.bind_change(sql, schemas, same)

    def types(self, sql: str, schemas: Mapping[str, pa.Schema]) -> tuple[tuple[str, str], ...]:
        """Name and type, as DuckDB writes it, of each column that `sql` gives. Raises `SqlError`."""
        self._require_open()
        return self._binder.types(sql, schemas)

    def described(
        self, sql: str, schemas: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str | None, ...], ...]:
        """What DESCRIBE says of each column that `sql` gives over tables with these primary keys."""
        self._require_open()
        return self._binder.described(sql, schemas, keys)

    def declared(self, sql: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each column that a CREATE TABLE declares. Raises `SqlError`."""
        self._require_open()
        return self._binder.declared(sql)

    def sql_types(self, schema: pa.Schema) -> tuple[str, ...]:
        """The types of the columns as DuckDB's SQL writes them. Raises `SchemaMismatch` for one it cannot hold."""
        self._require_open()
        return self._binder.sql_types(schema)

    def change(
        self,
        sql: str,
        table: str,
        rows: pa.RecordBatchReader,
        others: Mapping[str, pa.RecordBatchReader],
        memory_limit: str,
        key: Sequence[str] = (),
        returning: bool = False,
    ) -> AbstractContextManager[ChangeOutcome]:
        """What `sql`, which changes `table` (these `rows`) and may read `others`, does; until the block ends.

        Raises `SqlError` for a statement that fails, `MergeTooLarge`, and what the readers raise.
        """
        self._require_open()
        return change_rows(self._workers, sql, table, rows, others, memory_limit, key, returning)

    def close(self) -> None:
        """Release everything; running queries are cancelled. Closing twice is fine."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for query in running:
            query.cancel()
        self._binder.close()
        if self._workers is not None:
            self._workers.close()

    def watch(self) -> None:
        """Look what the process and those of its engine take; whoever runs a node calls it ten times a second."""
        if self._workers is not None:
            self._workers.tick(self._note_memory)
        self._binder.watch()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Around what is done to loaded tables: what the library raises leaves as an error of the tree."""
        try:
            yield
        except (BallistaError, KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            raise self._named(error) from None
        except BaseException as error:  # a panic of a library; callers look for errors only
            raise BallistaError(f"the engine failed on it ({type(error).__name__})") from error

    def _named(self, error: Exception) -> BaseException:
        """The error of the tree for one of the library of this engine; what is none of those, as it is."""
        return named(error)

    def _note_memory(self, own_bytes: int, too_large: bool) -> None:
        """Note the memory of the process now; if it is `too_large`, cancel the last query since which it grew much.

        It is one of those that may take much: others only run beside what does, such as lookups.
        """
        with self._lock:
            for query, before in list(self._running.items()):
                if before is None:
                    self._running[query] = own_bytes
            grew = [
                query
                for query, before in self._running.items()
                if query in self._taking and own_bytes - (before or 0) > GROWN_BYTES
            ]
        if too_large and grew:
            grew[-1].cancel(MergeTooLarge(TOO_LARGE))

    def _runs(self, query: RunningQuery, *, takes_much: bool) -> None:
        """Remember the query, to cancel it when the engine is closed; one that may take much, also when it is too much.

        Much is what a statement gathers, and values that are large. What others read goes on as it comes.
        """
        with self._lock:
            if takes_much:
                self._taking.add(query)
            self._running[query] = None
        work = current_work()
        if work is not None:
            cancel = WeakMethod(query.cancel)
            work.add_stop(lambda: (cancel() or _nothing)())

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigError("the engine is closed")


def _nothing() -> None:
    """The query is gone already."""
