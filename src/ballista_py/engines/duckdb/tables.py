"""The native tables behind the loaded files: one a cluster table, each row tagged with where it came from.

A file's rows appear and vanish in one transaction, and that transaction and the list of loaded files change under
one lock; a query takes its snapshot between two looks at the list, and takes another one, under the lock, if there
was a commit in between. So the list and the snapshot always agree, and a query over all loaded files needs no filter.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from ballista_py.engines.duckdb.broken_database import is_broken
from ballista_py.engines.duckdb.errors import translate
from ballista_py.engines.duckdb.held_table import HeldTable, TaggedRows
from ballista_py.engines.duckdb.kept_list import STATE
from ballista_py.engines.duckdb.large_rows import LargeRows
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.errors import BallistaError, ConfigError, NotOwner, SchemaMismatch, TryLater
from ballista_py.partitions.columns import is_same
from ballista_py.partitions.loadable import why_not_declared
from ballista_py.partitions.value_sizes import LargeValues
from ballista_py.runtime import Runtime
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.files import Loadable, RowsAtHand

_log = logging.getLogger(__name__)
_LOOK = '"can be read"'  # by nobody but `is_broken`: no statement and no table has such a name
HELD = "held"  # the schema, or the attached database, of the native tables
IDLE_MS = 10_000.0
MIN_LOOSE_BYTES = 16 << 20
MAX_LOOSE_BYTES = 32 << 20  # in memory until they are packed
CHECKPOINT_BYTES = 256 << 20  # after which it is packed, whoever waits for it


def require_held(schema: pa.Schema, table: str) -> None:
    """Raises `SchemaMismatch`, with the reason, if no executor could hold a table of these columns."""
    for column in schema:
        reason = why_not_declared(column.type)
        if reason is not None:
            raise SchemaMismatch(f"table '{table}' cannot be held: column '{column.name}': {reason}", table=table)
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        HeldTable.create(connection, quoted(table), schema, table)


class HeldTables:
    """Every table of an engine. Safe to share between threads; one load runs at a time, on all cores."""

    def __init__(self, root: duckdb.DuckDBPyConnection, runtime: Runtime, file: str | None = None) -> None:
        """Hold the tables in the database file at `file`, or in memory (None)."""
        root.execute(f"create schema {HELD}" if file is None else _attach(file))
        root.execute(f"create or replace view {HELD}.{_LOOK} as select 1")
        if file is not None:
            # By itself it packs each 16 MiB of rows, and whoever loads some then waits for a quarter of a second.
            root.execute(f"set checkpoint_threshold = '{CHECKPOINT_BYTES >> 20}MiB'")
        self._root = root
        self._runtime = runtime
        self._in_file = file is not None
        self._tables: dict[str, HeldTable] = {}
        self._made = 0
        self._commits = 0  # that changed a table; counted under the lock under which they are made
        self._lock = runtime.lock()  # the list of tables and files, and the instant of a commit
        self._loading = runtime.lock()  # outer of the two
        self._loader = root.cursor()
        self._loader.execute("set session preserve_insertion_order = false")  # twice as fast
        self._loader.execute("set session write_buffer_row_group_count = 1")  # with five a load takes 80 MB more
        # Rows at hand are loaded while somebody waits: into memory, and packed into the file when there is time.
        self._taker = root.cursor()
        self._taker.execute("set session preserve_insertion_order = false")
        self._taker.execute("set session enable_optimistic_write = false")
        self._loose_bytes = 0
        self._loaded_ms = 0.0
        # What the next process is to find, if there is one that shall: see `KeptTables`.
        self._keeps = self._says_changed = False
        self._changes = self._packed = 0  # how often something came or went, and up to which time that is packed
        self._unpacked_bytes = 0

    def is_broken(self) -> bool:
        """Whether what is held can be read no more."""
        return is_broken(self._root, f"from {HELD}.{_LOOK}")

    def create(self, table: str, schema: pa.Schema) -> None:
        """See `LoadedEngine.create_table`."""
        with self._loading, self._lock:
            found = self._tables.get(table) or self._found(table, schema)
            if found is None:
                self._touch()
                self._made += 1
                name = f"{HELD}.t{self._made}"
                self._tables[table] = HeldTable.create(self._loader, name, schema, table)
            elif not is_same(found.schema, schema):
                raise SchemaMismatch(f"table '{table}' is held with other columns: drop it first", table=table)

    def alter(self, table: str, schema: pa.Schema) -> bool:
        """See `LoadedEngine.alter_table`."""
        with self._loading, self._lock:
            found = self._tables.get(table)
            if found is None:
                return False
            self._touch()
            try:
                made = found.altered(self._loader, schema)
            except (duckdb.Error, pa.ArrowException) as error:
                _log.info("not_altered", exc_info=error)
                return False
            if made is not None:
                self._commits += 1
                self._tables[table] = made
            return made is not None

    def drop(self, table: str) -> None:
        """See `LoadedEngine.drop_table`."""
        with self._loading, self._lock:
            found = self._tables.pop(table, None)
            if found is not None:
                self._commits += 1
                self._touch()
                self._loader.execute(f"drop table {found.name}")

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        """See `LoadedEngine.load`."""
        at_hand = sum(file.rows.nbytes for file in files if isinstance(file, RowsAtHand))
        loader = self._taker if at_hand else self._loader
        with self._loading:
            self._loose_bytes += at_hand
            self._loaded_ms = self._runtime.monotonic_ms()
            with self._lock:
                held = self._find(table)
                wanted = {file.file_id: file for file in files if file.file_id not in held.rows}
            counts, labels = dict.fromkeys(wanted, 0), {file_id: held.new_label() for file_id in wanted}
            stream = TaggedRows(held.schema, list(wanted.values()), labels, counts)
            try:
                if wanted:
                    self._touch()
                loader.execute("begin")
                if wanted:
                    _insert(loader, held, stream)
                with self._lock:
                    self._commits += 1
                    loader.execute("commit")
                    held.loaded(counts, labels, stream.large)
            except BaseException as error:
                with suppress(duckdb.Error):  # of a database that can be used no more
                    loader.execute("rollback")
                if stream.error is not None:
                    raise stream.error from None
                raise _load_error(error, table) from None
            self._came(stream.bytes)
        return sum(counts.values())

    def define(self, table: str, definition: int) -> None:
        """See `DuckDBEngine.define`."""

    def keep_as(self, table: str, marks: Mapping[int, str]) -> None:
        """See `DuckDBEngine.keep_as`."""
        with self._lock:
            held = self._tables.get(table)
            if held is not None and self._keeps:
                held.marks.update({file_id: mark for file_id, mark in marks.items() if file_id in held.rows})
                self._changes += 1

    def kept(self, table: str) -> Collection[str]:
        """See `DuckDBEngine.kept`."""
        return ()

    def take_back(self, table: str, marks: Mapping[int, str]) -> set[int]:
        """See `DuckDBEngine.take_back`."""
        return set()

    def derive(self, table: str, file_id: int, of: int, gone: Places) -> bool:
        """See `LoadedEngine.derive`."""
        with self._loading:
            with self._lock:
                held = self._tables.get(table)
            if held is None or of not in held.labels:
                return False
            self._loose_bytes += gone.nbytes
            self._loaded_ms = self._runtime.monotonic_ms()
            self._touch()
            try:
                self._taker.execute("begin")
                moved = held.derive(self._taker, of, gone)
                if moved is None:
                    self._taker.execute("rollback")
                    return False
                with self._lock:
                    self._commits += 1
                    self._taker.execute("commit")
                    held.derived(file_id, of, moved, len(gone))
            except BaseException:
                with suppress(duckdb.Error):  # of a database that can be used no more
                    self._taker.execute("rollback")
                raise
        return True

    def places(self, cursor: duckdb.DuckDBPyConnection, table: str, file_id: int, found: str) -> Places:
        """The places of rows of a loaded file that `found` gives, ascending. Raises `NotOwner`, and as DuckDB does."""
        cursor.execute("begin")
        with self._lock:
            held = self._held(table, {file_id})
            placed = held.placed(file_id)
            cursor.sql(f"from {held.name} limit 0")  # the first look at a table fixes the snapshot
        text = f"with {quoted(table)} as not materialized ({placed})\n{found}"
        return np.sort(cursor.sql(text).to_arrow_table().column(0).to_numpy())

    def schema(self, table: str) -> pa.Schema:
        """The columns of a table. Raises `NotOwner` when it is not held (any more)."""
        with self._lock:
            return self._held(table, set()).schema

    def large(self, table: str, file_ids: Iterable[int], columns: Iterable[str]) -> LargeValues:
        """The large values in these columns of loaded files."""
        with self._lock:
            held = self._tables.get(table)
            found = {} if held is None else held.large.of(file_ids, columns)
        return LargeValues.all_of(found.values())

    def large_rows(
        self,
        cursor: duckdb.DuckDBPyConnection,
        table: str,
        file_ids: Iterable[int],
        columns: Sequence[str],
        found: str,
    ) -> LargeRows:
        """The rows of loaded files whose numbers `found` gives, a few at a time. Raises `NotOwner`."""
        cursor.execute("begin")
        wanted = set(file_ids)
        with self._lock:
            held = self._held(table, wanted)
            numbered, large = held.numbered(wanted), held.large.of(wanted, columns)
            cursor.sql(f"from {held.name} limit 0")  # the first look at a table fixes the snapshot
        schema = pa.schema([held.schema.field(name) for name in columns])
        named = f"with {quoted(table)} as not materialized ({numbered})\n{found}"
        return LargeRows(cursor, numbered, named, large, schema)

    def count(self, cursor: duckdb.DuckDBPyConnection, table: str, file_ids: Iterable[int], found: str) -> int:
        """How many rows of loaded files `found` gives. Raises `NotOwner`."""
        wanted = set(file_ids)
        with self._lock:
            numbered = self._held(table, wanted).numbered(wanted)
        text = f"with {quoted(table)} as not materialized ({numbered}) select count(*) from ({found})"
        return int((cursor.execute(text).fetchone() or (0,))[0])

    def tidy(self) -> None:
        """See `DuckDBEngine.tidy`."""
        with self._loading:
            idle = self._runtime.monotonic_ms() - self._loaded_ms >= IDLE_MS
            if self._in_file and self._loose_bytes >= (MIN_LOOSE_BYTES if idle else MAX_LOOSE_BYTES):
                self._pack()

    def close(self) -> None:
        """Do what is to be done before the database is closed."""

    def _pack(self) -> bool:
        """Make a checkpoint; False if somebody is in its way, so that another time will do."""
        try:
            self._loader.execute(f"checkpoint {HELD}")
        except duckdb.TransactionException:
            return False
        except duckdb.IOException as error:
            raise translate(error, "") from None
        self._loose_bytes = 0
        return True

    def _touch(self) -> None:
        """Have a file that is kept say that it has changed before it does: with `_loading` held."""
        self._changes += 1
        if self._keeps and not self._says_changed:
            self._loader.execute(f"update {HELD}.{STATE} set changed = true")
            self._says_changed = True

    def _came(self, bytes_: int) -> None:
        """So many bytes of rows were loaded."""
        self._unpacked_bytes += bytes_
        if self._keeps and self._unpacked_bytes >= CHECKPOINT_BYTES:
            with suppress(BallistaError):  # the rows are loaded, and `tidy` says it again
                self._pack()

    def _found(self, _table: str, _schema: pa.Schema) -> HeldTable | None:
        """A table that nobody has made yet, if there is one with these columns."""
        return None

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        """See `LoadedEngine.unload`."""
        with self._loading, self._lock:
            held = self._tables.get(table)
            gone = set(file_ids) & held.rows.keys() if held is not None else set()
            if held is None or not gone:
                return
            self._commits += 1
            self._unload(held, gone)

    def _unload(self, held: HeldTable, gone: set[int]) -> None:
        if not gone:
            return
        self._touch()
        where = held.without(gone)
        if where is not None:
            self._loader.execute(f"delete from {held.name} where {where}")
        held.forget(gone)

    def bind(
        self, cursor: duckdb.DuckDBPyConnection, scans: Mapping[str, Iterable[int]], sql: str
    ) -> tuple[str, duckdb.DuckDBPyRelation]:
        """The statement, bound in a transaction on `cursor` in which each table's name means exactly those files.

        Also what stands before the statement in the text that was bound. Raises `NotOwner` when a file is not loaded
        (any more), and what DuckDB raises.
        """
        if not scans:
            return "", cursor.sql(sql)
        wanted = {table: set(file_ids) for table, file_ids in scans.items()}
        cursor.execute("begin")
        with self._lock:
            prefix, commits = self._named(wanted, sql), self._commits
        if prefix:
            with suppress(duckdb.Error):  # what is wrong is found again below, where it stands in the statement
                relation = cursor.sql(prefix + sql)  # the first look at a table fixes the transaction's snapshot
                with self._lock:
                    if commits == self._commits:
                        return prefix, relation
            cursor.execute("rollback")
            cursor.execute("begin")
        with self._lock:
            for table, file_ids in wanted.items():
                self._held(table, file_ids).show(cursor, table, file_ids)  # so does this one
        return "", cursor.sql(sql)

    def _named(self, wanted: Mapping[str, set[int]], sql: str) -> str:
        """The tables as common table expressions for the statement, which takes half of the time that views take.

        Nothing if they cannot stand before it.
        """
        rows = {table: self._held(table, file_ids).rows_of(file_ids) for table, file_ids in wanted.items()}
        if sql[:7].upper() != "SELECT " or not all(rows.values()):
            return ""
        named = ", ".join(f"{quoted(table)} as not materialized ({text})" for table, text in rows.items())
        return f"with {named}\n"

    def _held(self, table: str, file_ids: set[int]) -> HeldTable:
        """The table, in which all of these files are loaded. Raises `NotOwner`."""
        held = self._tables.get(table)
        missing = file_ids - held.rows.keys() if held is not None else file_ids
        if held is None or missing:
            raise NotOwner(
                f"{len(missing)} file(s) of table '{table}' are not loaded here: plan the query again", table=table
            )
        return held

    def _find(self, table: str) -> HeldTable:
        found = self._tables.get(table)
        if found is None:
            raise ConfigError(f"table '{table}' was not created in this engine")
        return found


def _attach(file: str) -> str:
    # What came after the last checkpoint is loaded anew, so there is no log to write and to wait for.
    path = file.replace("'", "''")
    return f"attach '{path}' as {HELD} (recovery_mode no_wal_writes)"


def _insert(loader: duckdb.DuckDBPyConnection, held: HeldTable, stream: TaggedRows) -> None:
    loader.register("rows to load", stream.reader())
    try:
        done = loader.execute(f'insert into {held.name} select * from "rows to load"').fetchone()
    finally:
        with suppress(duckdb.Error):  # in a transaction that failed, where it would hide the reason
            loader.unregister("rows to load")
    assert done is not None
    assert done[0] == stream.rows, f"{done[0]} rows arrived of {stream.rows}"


def _load_error(error: BaseException, table: str) -> BaseException:
    if isinstance(error, BallistaError) or not isinstance(error, Exception):
        return error
    translated = translate(error, "")
    if isinstance(translated, NotOwner):
        return TryLater(translated.message)
    if type(translated).code == "planning.sql":  # a value that the native table refuses
        return SchemaMismatch(f"rows do not fit table '{table}': {translated.message}", table=table)
    return translated
