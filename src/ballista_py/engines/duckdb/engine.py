"""DuckDB behind the `Engine` protocol: loaded files as native tables, streams as relations, user SQL in a box.

Promises: a query sees exactly the files it names, whatever is loaded or unloaded meanwhile (each query reads one
snapshot); results come lazily in batches of about 64 k rows with the types of a single DuckDB; no statement
reaches files, network or other tables of the process (`duckdb_guard` first, then a database without external
access). Which files a query may see is decided by others. `docs/design/040-duckdb-engine.md` says why it is so.
"""

from __future__ import annotations

import glob
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from weakref import finalize

import pyarrow as pa

from ballista_py.engines.apart.large import (
    BATCH_BYTES,
    VECTOR_ROWS,
    LargeInputs,
    Way,
    answer_rows,
    given_by,
    largest_given,
    streams_little,
    way_of,
    with_largest,
)
from ballista_py.engines.apart.workers import Workers
from ballista_py.engines.duckdb.binder import explain_error
from ballista_py.engines.duckdb.broken_database import Offenders, is_broken, is_damage
from ballista_py.engines.duckdb.errors import BEGINS_ANEW, translate
from ballista_py.engines.duckdb.freed import GivesBackFreed
from ballista_py.engines.duckdb.guard import GuardedSelect
from ballista_py.engines.duckdb.kept_file import KeptFolder, not_used
from ballista_py.engines.duckdb.kept_tables import KeptTables
from ballista_py.engines.duckdb.large_rows import ROW_NUMBER, LargeRows
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.query import DuckDBQuery, StreamSource
from ballista_py.engines.duckdb.tables import HeldTables
from ballista_py.engines.duckdb.types import ColumnLists, quoted, whole_table
from ballista_py.engines.engine import RunningQuery
from ballista_py.engines.loaded_engine import LoadedEngine
from ballista_py.errors import BallistaError, ConfigError, DocumentUnreadable, NotOwner, TryLater, named
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.files import Loadable
from ballista_py.work import current_client, stopped_by

_DATABASE_FILE = "engine{begun}.duckdb"
_SPILL_FOLDER = "spill"
OPEN_AGAIN_MS = 1_000.0
SETTLES_MS = 10_000.0  # after which a file that was kept is not what ends the process
# DuckDB makes 10 MiB of an answer ahead and counts none of it. Saying so takes 0.1 ms.
_LITTLE = "set streaming_buffer_size = '256KiB'"


Options = dict[str, str | bool | int | float | list[str]]
_log = logging.getLogger(__name__)


class DuckDBEngine(LoadedEngine):
    """An `Engine` on one DuckDB database, in memory or in a file of `folder`. Safe to share between threads.

    `folder` holds nothing that outlives the engine, and what an earlier one left there is removed; unless a `keeper` is
    named, whose rows the next engine there gives back by `take_back`. One process at a time has such a folder.
    `memory_limit` is
    DuckDB's text (`"4GB"`); beyond it DuckDB spills to `temp_directory` (default: inside `folder`, or a temporary
    folder), and beyond `max_spill_bytes` there the query fails with `MergeTooLarge`. Without `keeps_order` the
    batches of a query without ORDER BY may come in any order, which is about
    a third faster on large results.

    Raises `ConfigError` for options that DuckDB refuses, and for a folder that another process keeps rows in.

    >>> engine = DuckDBEngine()
    >>> [batch.to_pydict() for batch in engine.query("select 41 + 1 as answer").batches()]
    [{'answer': [42]}]
    >>> engine.close()
    """

    def __init__(
        self,
        folder: str | None = None,
        *,
        threads: int | None = None,
        memory_limit: str | None = None,
        temp_directory: str | None = None,
        max_spill_bytes: int | None = None,
        keeps_order: bool = True,
        workers: Workers | None = None,
        runtime: Runtime | None = None,
        keeper: str = "",
    ) -> None:
        self._runtime = runtime or SystemRuntime()
        self._folder = folder
        self._keeper = keeper
        self._kept = None if folder is None else _prepared_folder(folder, keeps=bool(keeper))
        self._home = folder or tempfile.mkdtemp(prefix="ballista-engine-")
        if folder is None:  # also when nobody closes the engine
            self._remove_home = finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        options: Options = {"preserve_insertion_order": keeps_order}
        if temp_directory is not None:
            options["temp_directory"] = temp_directory
        if threads is not None:
            options["threads"] = threads
        if memory_limit is not None:
            options["memory_limit"] = memory_limit
        self._options, self._max_spill_bytes = options, max_spill_bytes
        self._freed: GivesBackFreed | None = None
        if workers is not None and memory_limit is not None:
            self._freed = GivesBackFreed(workers.own_bytes, workers.max_bytes, memory_limit, self._runtime)
        self._lost = False  # the database was broken, and no other is open yet
        self._damaged = False  # what lies in its file
        self._opens_ms = self._settles_ms = 0.0
        try:
            self._root, self._tables = self._opened(0)
        except duckdb.Error as error:
            self._clean_up()
            raise ConfigError(f"DuckDB cannot start: {translate(error, '').message}") from None
        super().__init__(self._tables, self._runtime, workers)
        self._columns = ColumnLists()
        self._offenders = Offenders(self._runtime)

    def _opened(self, begun: int) -> tuple[duckdb.DuckDBPyConnection, HeldTables]:
        """A database without tables, of files that no earlier one has; or of those that an earlier process has kept."""
        if self._kept is None:
            file = self._folder and os.path.join(self._folder, _DATABASE_FILE.format(begun=begun or ""))
            return self._open(begun, lambda root: HeldTables(root, self._runtime, file))
        found = None if begun else self._kept.found()
        self._settles_ms = self._runtime.monotonic_ms() + SETTLES_MS
        if found is not None:
            try:
                return self._open(begun, partial(self._keep, found))
            except (duckdb.Error, DocumentUnreadable, OSError) as error:
                not_used(error)
        path = self._kept.fresh()
        self._kept.clear()
        return self._open(begun, partial(self._keep, path))

    def _keep(self, path: str, root: duckdb.DuckDBPyConnection) -> HeldTables:
        return KeptTables(root, self._runtime, path, self._keeper)

    def _open(
        self, begun: int, tables_in: Callable[[duckdb.DuckDBPyConnection], HeldTables]
    ) -> tuple[duckdb.DuckDBPyConnection, HeldTables]:
        spill = os.path.join(self._home, f"{_SPILL_FOLDER}{begun or ''}")
        root = duckdb.connect(":memory:", config={"temp_directory": spill, **self._options})
        try:
            tables = tables_in(root)
            root.execute(LOCKDOWN)
            if self._max_spill_bytes is not None:  # DuckDB forgets it when it is given on connecting
                root.execute(
                    f"set global max_temp_directory_size = '{spill_bytes(self._home, self._max_spill_bytes)}B'"
                )
            root.execute("set global allowed_configs = ['streaming_buffer_size', 'memory_limit']")
            root.execute("set global lock_configuration = true")
        except BaseException:
            root.close()
            raise
        return root, tables

    def watch(self) -> None:
        """Look what the process takes, and whether the database was broken: then another one is opened.

        What was loaded is gone then, and `begun` is one higher. Where no other can be opened, on a full disk, nothing
        is held and loaded until a later look finds room. What DuckDB holds free is given back before the look.
        """
        if self._freed is not None and not (self._closed or self._lost):
            self._freed.tick(self._root)
        super().watch()
        self._note_endless()
        is_lost = self._lost or self._damaged
        if self._closed or not (is_lost or is_broken(self._root) or self._tables.is_broken()):
            return
        now_ms = self._runtime.monotonic_ms()
        if not self._lost:
            _log.error("engine_begins_anew")
            self._lost, self._damaged = True, False
            with suppress(duckdb.Error):  # queries under way have cursors of their own
                self._root.close()
        elif now_ms < self._opens_ms:
            return
        self._opens_ms = now_ms + OPEN_AGAIN_MS
        if self._folder is not None and self._kept is None:  # the room of the old one is wanted for the next
            _remove_databases(self._folder)
        try:
            self._root, self._tables = self._opened(self.begun + 1)
        except (duckdb.Error, OSError) as error:
            _log.warning("engine_not_opened", exc_info=error)
            return
        self._loaded = self._tables
        self.begun += 1
        self._lost = False

    def _note_endless(self) -> None:
        """Remember whose statements go on though they were stopped: nothing but the end of a process ends them."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            running = list(self._running)
        for query in running:
            if isinstance(query, DuckDBQuery) and query.is_endless(now_ms):
                self._offenders.note_endless(query.text, query.client)

    def _require_open(self) -> None:
        super()._require_open()
        if self._lost:
            raise NotOwner(BEGINS_ANEW)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            return self._root.cursor()
        except duckdb.ConnectionException:
            raise NotOwner(BEGINS_ANEW) from None

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        """As `LoadedEngine.load`; also raises `TryLater` after the database was broken, until another one is open."""
        if self._lost:
            raise TryLater(BEGINS_ANEW)
        return super().load(table, files)

    def derive(self, table: str, file_id: int, of: int, gone: Places) -> bool:
        """As `Engine.derive`; the rows are in memory once."""
        self._require_open()
        with self._named_errors():
            return self._tables.derive(table, file_id, of, gone)

    def places(
        self, table: str, file_id: int, sql: str, streams: Mapping[str, pa.Table] | None = None
    ) -> Places | None:
        """As `Engine.places`. Raises as `query`, and as its batches do."""
        self._require_open()
        streams = streams or {}
        statement = self._binder.check(sql, [table, *streams])
        given = given_by(statement, {table: [file_id]}, streams, self._tables.schema, self._tables.large)
        client = current_client()
        if given.largest or statement.is_apart(given.schemas) or self._offenders.may_break(sql, client):
            return None
        cursor = self._cursor()
        try:
            for name, stream in streams.items():
                cursor.register(name, whole_table(stream))
            with stopped_by(cursor.interrupt):
                return self._tables.places(cursor, table, file_id, sql)
        except BaseException as error:
            self._note_failed(sql, client, error)
            raise _raised(error, sql, (), partial(explain_error, cursor, sql)) from None
        finally:
            cursor.close()

    def tidy(self) -> None:
        """Pack what was loaded from rows at hand into the file of the engine, if it is much or nobody loads now.

        Loads wait meanwhile (half a second for 64 MB), queries go on.
        """
        self._require_open()
        with self._named_errors():
            self._tables.tidy()
        if self._kept is not None and self._runtime.monotonic_ms() >= self._settles_ms:
            self._kept.settle()

    def define(self, table: str, definition: int) -> None:
        """Note which definition of a table its columns are of, once they are made or altered next.

        Columns of an older one are never made of those of a newer one: what was dropped would come back without values.
        """
        self._tables.define(table, definition)

    def keep_as(self, table: str, marks: Mapping[int, str]) -> None:
        """Note what tells loaded files from every other file there is, for `take_back` in the next process."""
        self._tables.keep_as(table, marks)

    def kept(self, table: str) -> Collection[str]:
        """The marks of the files whose rows an earlier process has kept, and that nobody has asked for yet."""
        return () if self._lost else self._tables.kept(table)

    def take_back(self, table: str, marks: Mapping[int, str]) -> set[int]:
        """Make the rows of files readable by their new ids that an earlier process loaded and kept under these marks.

        Those of which there are rows; the others are to be loaded."""
        self._require_open()
        if self._lost:
            return set()
        with self._named_errors():
            return self._tables.take_back(table, marks)

    def query(
        self,
        sql: str,
        scans: Mapping[str, Iterable[int]] | None = None,
        streams: Mapping[str, pa.RecordBatchReader | pa.Table] | None = None,
    ) -> RunningQuery:
        """Bind `sql` and take its snapshot; it runs when its batches are read.

        Raises `SqlError` for what does not parse or bind, and `NotOwner` when a file of `scans` is not loaded.
        """
        self._require_open()
        scans, streams = scans or {}, streams or {}
        statement = self._binder.check(sql, [*scans, *streams])
        given = given_by(statement, scans, streams, self._tables.schema, self._tables.large)
        way = self._way(sql, statement, given, scans) if given.largest else Way()
        largest = largest_given(given, statement.growth, steady=statement.steady)
        client = current_client()
        if self._workers is not None and (
            statement.is_apart(given.schemas) or self._offenders.may_break(sql, client) or way.apart
        ):
            return self._query_apart(sql, statement, scans, streams, largest, given.largest)
        failed = partial(self._note_failed, sql, client)
        cursor = self._cursor()
        sources = [
            StreamSource(name, stream, scanned_once=name in statement.once)
            for name, stream in streams.items()
            if name in statement.relations
        ]
        try:
            if streams_little(len(self._running), self._node_bytes):
                cursor.execute(_LITTLE)
            for source in sources:
                source.show(cursor, self._columns)
            read = {name: ids for name, ids in scans.items() if name in statement.relations}
            with stopped_by(cursor.interrupt):
                prefix, relation = self._tables.bind(cursor, read, sql)
            schema = with_largest(self._binder.schema(relation), largest)
            rows = min(way.batch_rows, answer_rows(schema, len(self._running), self._node_bytes))
            query = DuckDBQuery(sql, cursor, relation, schema, sources, prefix, failed, rows)
        except BaseException as error:
            failed(error)
            raised = _raised(error, sql, sources, partial(explain_error, cursor, sql))
            cursor.close()
            raise raised from None
        self._runs(query, takes_much=statement.gathers or bool(given.largest))
        return query

    def _note_failed(self, sql: str, client: str, error: BaseException) -> None:
        self._note_damage(error)
        self._offenders.note(sql, client, error)

    def _note_damage(self, error: BaseException) -> None:
        """Have the next look begin anew if what lies in the file is not what was written there."""
        self._damaged = self._damaged or is_damage(error)

    def _named(self, error: Exception) -> BaseException:
        self._note_damage(error)
        return translate(error, "") if isinstance(error, duckdb.Error) else named(error)

    def _way(
        self, sql: str, statement: GuardedSelect, given: LargeInputs, scans: Mapping[str, Iterable[int]]
    ) -> Way:
        """How the statement runs; of one table, by how many of its rows are looked at."""
        threads = int(str(self._options.get("threads") or os.cpu_count() or 1))
        decide = partial(
            way_of,
            given,
            copies=statement.copies,
            growth=statement.growth,
            joined=statement.sources > 1,
            threads=threads,
        )
        way = decide()
        read = statement.relations
        if self._workers is None or not (
            way.apart and statement.steady and len(read) == 1 and read <= scans.keys()
        ):
            return way
        (table,) = read
        found = self._binder.passing(sql, ROW_NUMBER)
        if found is None:
            return way
        with self._cursor() as cursor, suppress(duckdb.Error), stopped_by(cursor.interrupt):
            return decide(rows=self._tables.count(cursor, table, scans[table], found))
        return way

    def _query_apart(
        self,
        sql: str,
        statement: GuardedSelect,
        scans: Mapping[str, Iterable[int]],
        streams: Mapping[str, pa.RecordBatchReader | pa.Table],
        largest: int,
        large: int,
    ) -> RunningQuery:
        """The query in a process of its own, which is given what it reads but for columns that it does not name."""
        assert self._workers is not None
        relations = {name: stream for name, stream in streams.items() if name in statement.relations}
        held: list[DuckDBQuery | LargeRows] = []

        def close() -> None:
            for rows in held:
                rows.release()

        try:
            for table in scans.keys() & statement.relations:
                held.append(self._held_rows(sql, table, scans[table], statement))
                relations[table] = pa.RecordBatchReader.from_batches(held[-1].schema, held[-1].batches())
        except BaseException:
            close()
            raise
        query = self._workers.query(sql, relations, close)
        query.schema = with_largest(query.schema, largest)
        self._runs(query, takes_much=bool(large))
        return query

    def _held_rows(
        self, wanted: str, table: str, file_ids: Iterable[int], statement: GuardedSelect
    ) -> DuckDBQuery | LargeRows:
        names = statement.columns_of(self._tables.schema(table))
        sql = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(table)}"
        large = self._tables.large(table, file_ids, names)
        cursor = self._cursor()
        try:
            if large.together(VECTOR_ROWS) > BATCH_BYTES:
                found = self._binder.passing(wanted, ROW_NUMBER) if len(statement.relations) == 1 else None
                found = found or f"SELECT {quoted(ROW_NUMBER)} FROM {quoted(table)}"
                with stopped_by(cursor.interrupt):
                    rows = self._tables.large_rows(cursor, table, file_ids, names, found)
                rows.failed = self._note_damage
                rows.schema = with_largest(rows.schema, large.largest)
                return rows
            prefix, relation = self._tables.bind(cursor, {table: file_ids}, sql)
            return DuckDBQuery(sql, cursor, relation, self._binder.schema(relation), [], prefix, self._note_damage)
        except BaseException as error:
            cursor.close()
            raise _raised(error, sql, [], lambda: "") from None

    def close(self) -> None:
        """Release everything; running queries are cancelled. Closing twice is fine."""
        was_open = not (self._closed or self._lost or self._damaged)
        super().close()
        if was_open:
            self._tables.close()
        self._root.close()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._kept is not None:
            self._kept.settle()
            self._kept.close()
        if self._folder is None:
            self._remove_home()
        else:
            with suppress(OSError):
                _remove_leftovers(self._folder)


def spill_bytes(folder: str, most: int) -> int:
    """What may be spilled there: `most`, and no more than half of the disk space that is left, for rows are loaded too.

    >>> spill_bytes(".", 4096)
    4096
    """
    return min(most, shutil.disk_usage(folder).free // 2)


def _prepared_folder(folder: str, *, keeps: bool) -> KeptFolder | None:
    """Make the folder, and remove what an earlier engine left there, but for rows that are kept."""
    try:
        os.makedirs(folder, exist_ok=True)
        kept = KeptFolder(folder) if keeps else None
        _remove_leftovers(folder)
    except OSError as error:
        raise ConfigError(f"engine folder '{folder}' cannot be used: {error.strerror}") from error
    return kept


def _remove_leftovers(folder: str) -> None:
    _remove_databases(folder)
    for path in glob.glob(os.path.join(glob.escape(folder), _SPILL_FOLDER + "*")):
        shutil.rmtree(path, ignore_errors=True)


def _remove_databases(folder: str) -> None:
    for path in glob.glob(os.path.join(glob.escape(folder), _DATABASE_FILE.format(begun="*") + "*")):
        with suppress(FileNotFoundError):
            os.unlink(path)


def _raised(
    error: BaseException, sql: str, sources: Sequence[StreamSource], explain: Callable[[], str]
) -> BaseException:
    """What the caller is told: the error of a stream that failed, else DuckDB's, translated."""
    for source in sources:
        if source.error is not None:
            return source.error
    if isinstance(error, BallistaError) or not isinstance(error, Exception):
        return error
    return translate(error, sql, explain)
