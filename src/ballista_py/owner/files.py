"""The data files of an owner's writes: made from rows, loaded for those who will read them, looked into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.engines.engine import Engine
from ballista_py.errors import DocumentUnreadable, InvariantViolated, SchemaMismatch, TryLater
from ballista_py.figures import UNSEEN, Figures
from ballista_py.owner.changes import PartitionChange, PartitionEdit, is_few, part_of
from ballista_py.partitions.columns import in_fills, is_same, restored, stored_names
from ballista_py.partitions.conform import conform, require_small_values
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.rewrite import NEW_ROWS, Rewrite
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.column_bounds import may_hold
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.held.files import Mapper, altered_under, definition_of, rows_unless_altered
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.manifest import DataFile, data_prefix
from ballista_py.storage.row_spool import SPOOL_BYTES, RowSpool
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.transport.flight.commands import PARTITION_COLUMN, WriteTarget

ATTEMPTS = 3
TOGETHER_BYTES = 16 << 20  # of rows that are loaded at once
SMALL_ROWS = 10_000  # of a file that is asked together with others, and put anew whatever changes
Streams: TypeAlias = Mapping[str, pa.Table] | None


class OwnerFiles:
    """Safe to share between threads. `mapper` runs requests to the store at the same time."""

    def __init__(
        self,
        holder: PartitionHolder,
        store: ConditionalStore,
        engine: Engine,
        runtime: Runtime,
        mapper: Mapper,
        spool_bytes: int = SPOOL_BYTES,
        figures: Figures = UNSEEN,
    ) -> None:
        self._spool_bytes = spool_bytes
        self.figures = figures
        self._holder = holder
        self._store = store
        self._engine = engine
        self._runtime = runtime
        self._map = mapper
        self._lock = runtime.lock()
        # By table and attempt: files that are loaded and wait for the decision.
        self._waiting: dict[tuple[str, str], list[str]] = {}

    def written(self, table: TableSpec, rows: Iterable[pa.RecordBatch]) -> dict[int, list[DataFile]]:
        """The rows (last column: the partition) as files by partition. Nothing is left of them when it raises.

        Raises what the rows and the store raise, and `TryLater` when it took so long that they may be garbage.
        """
        spool = self._spool(table, self._map)
        started_ms = self._runtime.monotonic_ms()
        try:
            for batch in rows:
                for part in _restored(table, batch):
                    spool.add(part)
            files = spool.finish()
            self.require_young(started_ms)
        except BaseException:
            self._holder.files.unstage(table.name, spool.discard())
            raise
        return files

    def stage(self, table: TableSpec, files: Sequence[DataFile]) -> None:
        """Read files that others have written, and load them for a commit of theirs. Nothing is loaded when it raises.

        Raises what `read_data_file` raises, and `DocumentUnreadable` for one that has other rows than it is said to.
        """

        def one(file: DataFile) -> tuple[DataFile, pa.Table]:
            rows = read_data_file(self._store, file, table.schema)
            if rows.num_rows != file.rows:
                raise DocumentUnreadable(
                    f"data file '{file.path}' holds {rows.num_rows} rows instead of {file.rows}", file=file.path
                )
            return file, rows

        read: list[tuple[DataFile, pa.Table]] = []
        try:
            for found in self._map(one, files):
                read.append(found)
                if sum(rows.nbytes for _, rows in read) >= TOGETHER_BYTES:
                    self._holder.files.stage(table.name, read)
                    read = []
            if read:
                self._holder.files.stage(table.name, read)
        except BaseException:
            self._holder.files.unstage(table.name, [file.path for file in files])
            raise

    def now_ms(self) -> float:
        """The time by which `require_young` judges."""
        return self._runtime.monotonic_ms()

    def require_young(self, since_ms: float) -> None:
        """Raise `TryLater` when files that were begun at `since_ms` may count as garbage by now."""
        if self.now_ms() - since_ms > MAX_WRITE_MS:
            raise TryLater("the rows took too long: their files may count as garbage by now")

    def rewritten(
        self,
        target: WriteTarget,
        table: TableSpec,
        partition: int,
        here: Sequence[DataFile],
        rewrite: Rewrite,
        streams: Mapping[str, pa.Table] | None = None,
    ) -> PartitionChange:
        """The change that takes rows of the statement from the files that hold some, and puts those after it.

        A large file that loses few of them gets a deletion vector, if the statement says where they are; any other one
        is put anew. Small files are asked together whether any holds some. Its SQL may read `streams`, too.
        """
        from ballista_py.sql.prune.changes import (
            file_pruner,  # a parser, which an executor that only reads is spared
        )

        if rewrite.rows is None:
            return PartitionChange((), tuple(file.path for file in here), sum(file.rows for file in here))
        here = may_hold(here, file_pruner(rewrite.where, rewrite.alias, table))
        loaded = self.loaded(target, partition, here)

        def fresh() -> str:
            return f"{data_prefix(table.folder)}{self._runtime.new_id()}"

        edit = PartitionEdit(self._store, self._holder.files, table, partition, self._spool(table, map), fresh)
        try:
            if rewrite.count is not None and self._hold_none(table, rewrite.count, _small(here), loaded, streams):
                here = [file for file in here if file.rows >= SMALL_ROWS]
            for file in here:
                file_id = loaded[file.path]
                places = self._few(table, file, file_id, rewrite, streams)
                if places is None:
                    self._put_anew(edit, file, file_id, rewrite, streams)
                elif len(places):
                    self._put_changed(edit, file_id, rewrite, len(places), streams)
                    edit.take(file, file_id, places)
            return edit.finish()
        except BaseException:
            edit.discard()
            raise

    def _few(
        self, table: TableSpec, file: DataFile, file_id: int, rewrite: Rewrite, streams: Streams
    ) -> Places | None:
        """Where the rows of the statement are in a large file, if they are few enough to leave the others."""
        if file.rows < SMALL_ROWS or rewrite.places is None:
            return None
        with altered_under(self._holder, (definition_of(table),)):
            places = self._engine.places(table.name, file_id, rewrite.places, streams)
        return None if places is None or not is_few(file, len(places)) else places

    def _put_anew(
        self, edit: PartitionEdit, file: DataFile, file_id: int, rewrite: Rewrite, streams: Streams
    ) -> None:
        """Put all rows of a file as they are after the statement, if it holds some of it."""
        table, scans = edit.table, {edit.table.name: [file_id]}
        if rewrite.count is not None and not self._count(table, rewrite.count, scans, streams):
            return
        assert rewrite.rows is not None
        edit.remove(file)
        for batch in self._rows(table, rewrite.rows, scans, streams):
            rows, hits = after(batch, deletes=rewrite.deletes)
            edit.affected += hits
            changed = pc.fill_null(batch.column(batch.num_columns - 1), False)
            if hits and not rewrite.deletes:
                require_small_values(table, rows.filter(changed))
            # What it leaves as it is may be larger than what comes in today, or lack a value.
            new = pa.nulls(len(rows), pa.bool_()).fill_null(False) if rewrite.deletes else changed
            edit.put(conform(table, rows, max_value_bytes=None, new=new))

    def _put_changed(
        self, edit: PartitionEdit, file_id: int, rewrite: Rewrite, count: int, streams: Streams
    ) -> None:
        """Put the rows of the statement, so many of a file, as they are after it; none where it deletes."""
        edit.affected += count
        if rewrite.deletes:
            return
        table, found = edit.table, 0
        columns = ", ".join([*(f"c{place}" for place in range(len(table.schema))), "hit"])
        sql = f"select * from ({rewrite.rows}) as changed({columns}) where hit"
        for batch in self._rows(table, sql, {table.name: [file_id]}, streams):
            rows = pa.RecordBatch.from_arrays(batch.columns[:-1], names=table.schema.names)
            require_small_values(table, rows)
            edit.put(conform(table, rows, max_value_bytes=None))
            found += len(rows)
        if found != count:
            raise InvariantViolated(f"the statement affects {count} rows of a file, and {found} when asked again")

    def done_with(self, target: WriteTarget, paths: Sequence[str]) -> None:
        """Unload what was written and not committed; what was prepared stays until `decided`."""
        if target.attempt is None:
            self._holder.files.unstage(target.table.table, paths)
            return
        with self._lock:
            self._waiting.setdefault((target.table.table, target.attempt), []).extend(paths)

    def decided(self, table: str, attempt: str) -> None:
        """Unload what was prepared, unless it is served by now."""
        with self._lock:
            paths = self._waiting.pop((table, attempt), [])
        self._holder.files.unstage(table, paths)

    def forget_but(self, attempts: set[tuple[str, str]]) -> None:
        """Unload what waits for the decision on other attempts (table, attempt) than these."""
        with self._lock:
            gone = self._waiting.keys() - attempts
        for table, attempt in gone:
            self.decided(table, attempt)

    def loaded(self, target: WriteTarget, partition: int, here: Iterable[DataFile]) -> Mapping[str, int]:
        """The ids of the files of a manifest, which are loaded if they were not.

        Raises `NotOwner`, and `TryLater` when the files were replaced since the manifest was read.
        """
        needed = {file.path for file in here}
        for _ in range(ATTEMPTS):
            mine = self._holder.owned(part_of(target.table, partition), target.incarnation)
            held = mine.held[partition].files
            if held.keys() >= needed:
                return held
            self._holder.reload(target.table.table, [partition])
        raise TryLater(f"partition {partition} of table '{target.table.table}' has changed since it was read")

    def check_primary_key(
        self, table: TableSpec, partition: int, new: Sequence[DataFile], here: Iterable[DataFile]
    ) -> None:
        """Raise `SchemaMismatch` if a key of the new files is there already, or twice among them."""
        from ballista_py.sql.prune.changes import key_sql

        if not table.primary_key or not new:
            return
        holdings = self._holder.holdings(table.name)
        ids = holdings.held[partition].files if holdings is not None and partition in holdings.held else {}
        kept = [file.path for file in here]
        if any(path not in ids for path in kept):
            raise TryLater(f"partition {partition} of table '{table.name}' is being loaded")
        keys = list(table.primary_key)
        rows = pa.concat_tables(read_data_file(self._store, file, table.schema).select(keys) for file in new)
        doubled = self._rows(table, key_sql(table), {table.name: [ids[path] for path in kept]}, {NEW_ROWS: rows})
        first = next((batch.to_pylist()[0] for batch in doubled if batch.num_rows), None)
        if first is not None:
            key = ", ".join(f"{name} = {first[name]}" for name in table.primary_key)
            raise SchemaMismatch(
                f"the primary key of table '{table.name}' is taken: a row with {key} exists already"
            )

    def rows(self, table: TableSpec, ids: Sequence[int]) -> Iterable[pa.RecordBatch]:
        """All rows of loaded files."""
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in table.schema.names)
        return self._rows(table, f'select {columns} from "{table.name}"', {table.name: ids})

    def _spool(self, table: TableSpec, run_all: Mapper) -> RowSpool:
        return RowSpool(
            self._store,
            table.folder,
            table.schema,
            self._runtime,
            run_all,
            file_format=table.file_format,
            max_bytes=self._spool_bytes,
            definition=table.definition,
            on_files=lambda files: self._holder.files.stage(table.name, files),
            figures=self.figures,
            table=table.name,
        )

    def _rows(
        self,
        table: TableSpec,
        sql: str,
        scans: Mapping[str, Sequence[int]],
        streams: Mapping[str, pa.Table] | None = None,
    ) -> Iterable[pa.RecordBatch]:
        """What a text gives that was made for this definition of the table; it is bound when this returns."""
        made = (definition_of(table),)
        with altered_under(self._holder, made):
            running = self._engine.query(sql, scans=scans, streams=streams)
        return rows_unless_altered(self._holder, made, running.batches())

    def _hold_none(
        self,
        table: TableSpec,
        count: str,
        files: Sequence[DataFile],
        loaded: Mapping[str, int],
        streams: Mapping[str, pa.Table] | None,
    ) -> bool:
        """Whether several files hold no row of a statement: one question costs more than their few rows do."""
        scans = {table.name: [loaded[file.path] for file in files]}
        return len(files) > 1 and not self._count(table, count, scans, streams)

    def _count(
        self,
        table: TableSpec,
        sql: str,
        scans: Mapping[str, Sequence[int]],
        streams: Mapping[str, pa.Table] | None,
    ) -> int:
        return sum(sum(batch.column(0).to_pylist()) for batch in self._rows(table, sql, scans, streams))


def _small(files: Sequence[DataFile]) -> list[DataFile]:
    return [file for file in files if file.rows < SMALL_ROWS]


def after(batch: pa.RecordBatch, *, deletes: bool) -> tuple[pa.RecordBatch, int]:
    """The rows that a statement leaves, and how many it affects; the last column says which those are."""
    hits = batch.column(batch.num_columns - 1)
    rows = batch.select(list(range(batch.num_columns - 1)))
    count = pc.sum(hits).as_py() or 0
    return (rows.filter(pc.invert(hits)) if deletes else rows), count


def _restored(table: TableSpec, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows that were made by another definition of the table, with their partition, as rows of this one."""
    place = batch.num_columns - 1
    given = pa.schema(list(batch.schema)[:place])
    if is_same(given, table.schema):
        yield batch
        return
    for part in in_fills(batch, stored_names(given), table.schema):
        rows = restored(part.select(list(range(place))), table.schema, given)
        yield rows.append_column(PARTITION_COLUMN, part.column(place))
