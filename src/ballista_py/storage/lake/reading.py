"""The rows of a scan task, from the files that it names.

A file is read some row groups at a time: as many as have about `GROUP_BYTES` in the columns that are read, and a larger
one in parts. What the footer says of sizes is an estimate and no more; rows are counted as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, wait

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.errors import DocumentUnreadable, JobCancelled, SnapshotGone, Unsupported
from ballista_py.partitions.columns import MAX_FILL_BYTES, initial_of
from ballista_py.scans.task import EqualityDeletes, FileSlice, ScanCondition, ScanTask
from ballista_py.sql.prune.file_bounds import ColumnBounds
from ballista_py.storage.formats.parquet import BATCH_ROWS
from ballista_py.storage.formats.statistics import group_bounds
from ballista_py.storage.lake.bitmaps import Positions
from ballista_py.storage.lake.deletes import GoneValues, equality_deletes, gone_positions
from ballista_py.storage.lake.footers import Footer, footer_of, reading
from ballista_py.storage.lake.matching import Matched, lacking, matched
from ballista_py.storage.lake.opening import CredentialsNow, LakeOpener, OpenedFile
from ballista_py.storage.lake.pruning import may_hold

GROUP_BYTES = 64 << 20
BATCH_BYTES = 16 << 20
_STREAM_BYTES = 1 << 20
_DICTIONARY_BYTES = (
    8.0  # of a value on the average, below which a text column is surely a dictionary and its places
)


def task_rows(
    task: ScanTask,
    opener: LakeOpener,
    credentials: CredentialsNow | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task in exactly its schema, without those that its deletes take away.

    `credentials` is asked before each file is opened (None: those of the task); `cancelled` between batches: then it
    ends with `JobCancelled`. Row groups that the filter excludes are left out, all others are given whole.

    Raises `SnapshotGone` for a file that was changed or removed, `SchemaMismatch` for values that do not fit,
    `DocumentUnreadable` for a file that is spoilt, `Unsupported` for one of a kind that is not read here and
    `StoreUnavailable` where the store does not answer. What was given before an error is right.

    Where the opener has a pool, one batch is read there while the one before it is used.
    """
    found = _task_rows(task, opener, _asked(task, credentials), cancelled)
    return found if opener.pool is None else _ahead(found, opener.pool)


def _asked(task: ScanTask, given: CredentialsNow | None) -> CredentialsNow:
    """What is asked before each file."""
    return (lambda: task.credentials) if given is None else given


def _ahead(found: Generator[pa.RecordBatch, None, None], pool: Executor) -> Iterator[pa.RecordBatch]:
    pending = pool.submit(next, found, None)
    try:
        while (batch := pending.result()) is not None:
            pending = pool.submit(next, found, None)
            yield batch
    finally:
        if not pending.cancel():
            wait([pending])
        found.close()


def _task_rows(
    task: ScanTask, opener: LakeOpener, credentials: CredentialsNow, cancelled: Callable[[], bool]
) -> Generator[pa.RecordBatch, None, None]:
    for file in task.files:
        if file.format != "parquet":
            raise Unsupported(f"file '{file.path}' is of the format {file.format}, which is not read here")
        now = credentials()
        with opener.open(file.path, now, size=file.size, version=file.version) as opened:
            footer = footer_of(opener, opened)
            plan = _plan(task, file, footer)
            gone = gone_positions(file, footer.rows, opener, now)
            values = equality_deletes(file, opener, now)
            for batch in _file_rows(plan, opened, footer, gone, values):
                if cancelled():
                    raise JobCancelled(f"scan task {task.name} was ended")
                yield batch


@frozen(kw_only=True)
class _Plan:
    """How a slice is read: its row groups, the columns of the task, and those that only deletes are compared by."""

    file: FileSlice
    schema: pa.Schema
    columns: tuple[Matched, ...]
    compared: tuple[Matched, ...]
    groups: tuple[int, ...]
    held: tuple[str, ...]


def _plan(task: ScanTask, file: FileSlice, footer: Footer) -> _Plan:
    if file.rows is not None and file.rows != footer.rows:
        raise DocumentUnreadable(
            f"file '{file.path}' has {footer.rows:,} rows, and its table says {file.rows:,}", file=file.path
        )
    columns = _matched(task.schema, file, footer)
    by = {field.name: field for one in file.deletes if isinstance(one, EqualityDeletes) for field in one.schema}
    compared = _matched(by.values(), file, footer) if by else ()
    numbers = range(footer.metadata.num_row_groups) if file.row_groups is None else file.row_groups
    if any(not 0 <= number < footer.metadata.num_row_groups for number in numbers):
        raise SnapshotGone(f"file '{file.path}' has not the row groups of the task: plan the statement anew")
    groups = tuple(number for number in numbers if _may_group(task.filter, task.schema, file, footer, number))
    held = tuple(dict.fromkeys(one.held for one in (*columns, *compared) if one.held is not None))
    return _Plan(file=file, schema=task.schema, columns=columns, compared=compared, groups=groups, held=held)


def _matched(wanted: object, file: FileSlice, footer: Footer) -> tuple[Matched, ...]:
    fields: Sequence[pa.Field] = list(wanted)  # type: ignore[call-overload]
    lent = [field.with_nullable(True) if field.name in file.partition_values else field for field in fields]
    return matched(footer.schema, lent, file.found_by, file.path)


def _may_group(
    conditions: Sequence[ScanCondition], schema: pa.Schema, file: FileSlice, footer: Footer, number: int
) -> bool:
    """Whether a row group may have rows that the filter lets pass."""
    if not conditions:
        return True
    bounds = bounds_in_file(conditions, schema, file, footer, number)
    return may_hold(conditions, footer.metadata.row_group(number).num_rows, bounds)


def bounds_in_file(
    conditions: Sequence[ScanCondition], schema: pa.Schema, file: FileSlice, footer: Footer, number: int
) -> dict[str, ColumnBounds]:
    """What is known of the columns of the conditions in a row group, as far as the schema has them."""
    asked = {one.column for one in conditions}
    fields = [field.with_nullable(True) for field in schema if field.name in asked]
    in_group = group_bounds(footer.metadata, number, footer.schema)
    rows = footer.metadata.row_group(number).num_rows
    found = {}
    for column in matched(footer.schema, fields, file.found_by, file.path):
        name = column.field.name
        if column.held is not None:
            if column.held in in_group:
                found[name] = in_group[column.held]
            continue
        value = file.partition_values.get(name)
        if value is None:
            initial = initial_of(column.field)
            value = None if initial is None else initial[0]
        if value is None or not value.is_valid:
            found[name] = ColumnBounds(nulls=rows)
        else:
            found[name] = bounds_of_value(value)
    return found


def bounds_of_value(value: pa.Scalar) -> ColumnBounds:
    """The bounds of a column with one value in all rows."""
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        return ColumnBounds(nulls=0)
    if isinstance(plain, float) and plain != plain:
        return ColumnBounds(nulls=0)
    return ColumnBounds(low=plain, high=plain, nulls=0)


def _file_rows(
    plan: _Plan, opened: OpenedFile, footer: Footer, gone: Positions, values: tuple[GoneValues, ...]
) -> Iterator[pa.RecordBatch]:
    starts = np.concatenate(
        ([0], np.cumsum([_group_rows(footer, n) for n in range(footer.metadata.num_row_groups)]))
    )
    for groups in _gathered(plan, footer):
        places = np.concatenate([np.arange(0)] + [np.arange(starts[n], starts[n + 1]) for n in groups])
        first = 0
        for batch in _batches(plan, opened, footer, groups):
            own = places[first : first + batch.num_rows]
            first += batch.num_rows
            if first > len(places):
                break
            for part, numbers in _parts(plan, batch, own):
                made = _valid(_made(plan, part, numbers, gone, values), plan.file)
                if made.num_rows:
                    yield made
        if first != len(places):
            raise DocumentUnreadable(
                f"row groups of file '{plan.file.path}' have other rows than its footer says", file=plan.file.path
            )
        opened.check()


def _gathered(plan: _Plan, footer: Footer) -> Iterator[tuple[int, ...]]:
    """The row groups in lots of about `GROUP_BYTES`."""
    leaves, size = footer.leaves(plan.held), 0
    lot: list[int] = []
    for number in plan.groups:
        more = footer.group_bytes(number, leaves)[0]
        if lot and size + more > GROUP_BYTES:
            yield tuple(lot)
            lot, size = [], 0
        lot.append(number)
        size += more
    if lot:
        yield tuple(lot)


def _batches(plan: _Plan, opened: OpenedFile, footer: Footer, groups: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    """The columns that are read of some row groups, in batches of bounded sizes."""
    rows = sum(_group_rows(footer, number) for number in groups)
    if not plan.held:
        for start in range(0, rows, BATCH_ROWS):
            yield _no_columns(min(BATCH_ROWS, rows - start))
        return
    leaves = footer.leaves(plan.held)
    sizes = [footer.group_bytes(number, leaves) for number in groups]
    streamed = sum(size for size, _ in sizes) > GROUP_BYTES
    plain = max(1, sum(size for _, size in sizes))
    batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * max(1, rows) // plain))
    with reading(opened):
        opened.source.seek(0)
        parquet = pq.ParquetFile(
            opened.source,
            metadata=footer.metadata,
            coerce_int96_timestamp_unit="us",
            pre_buffer=not streamed,
            buffer_size=_STREAM_BYTES if streamed else 0,
            read_dictionary=_as_dictionaries(plan, footer, groups),
        )
        for batch in parquet.iter_batches(batch_rows, row_groups=list(groups), columns=list(plan.held)):
            opened.check()
            yield batch


def _as_dictionaries(plan: _Plan, footer: Footer, groups: tuple[int, ...]) -> list[str]:
    """Text columns that hardly take room in the file: how long their values are only these themselves tell, once each,
    and a long one may be in all rows."""
    found = []
    for name in plan.held:
        kind = footer.schema.field(name).type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            (leaf,) = footer.leaves([name])
            chunks = [footer.metadata.row_group(number).column(leaf) for number in groups]
            rows = sum(_group_rows(footer, number) for number in groups)
            size = sum(max(0, chunk.total_uncompressed_size) for chunk in chunks)
            largest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
            small = largest * min(rows, BATCH_ROWS) <= BATCH_BYTES
            if not small and size < _DICTIONARY_BYTES * rows and all(c.has_dictionary_page for c in chunks):
                found.append(name)
    return found


def _parts(plan: _Plan, batch: pa.RecordBatch, places: Positions) -> Iterator[tuple[pa.RecordBatch, Positions]]:
    """A batch in parts so that its dictionaries, and values of columns that the file lacks, stay small as rows."""
    row_bytes = sum(
        value.nbytes
        for one in plan.columns
        if one.held is None and (value := initial_of(one.field)) is not None and not value.null_count
    )
    row_bytes += sum(len(value.as_py() or "") for value in plan.file.partition_values.values() if _is_long(value))
    costs = np.full(batch.num_rows, row_bytes, np.int64)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.fill_null(pc.binary_length(column.dictionary), 0)
            costs += np.asarray(pc.fill_null(lengths.take(column.indices), 0), dtype=np.int64)
    total = np.cumsum(costs)
    start = 0
    while start < batch.num_rows:
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + MAX_FILL_BYTES, side="right")))
        yield batch.slice(start, stop - start), places[start:stop]
        start = stop


def _is_long(value: pa.Scalar) -> bool:
    return bool(pa.types.is_string(value.type) or pa.types.is_binary(value.type))


def _made(
    plan: _Plan, batch: pa.RecordBatch, places: Positions, gone: Positions, values: tuple[GoneValues, ...]
) -> pa.RecordBatch:
    """The rows of the task in a batch of the file."""
    kept = np.ones(batch.num_rows, np.bool_)
    if len(gone) and len(places):
        at = np.minimum(np.searchsorted(gone, places), len(gone) - 1)
        kept &= gone[at] != places
    if values:
        compared = {one.field.name: _column(plan, one, batch) for one in plan.compared}
        for one in values:
            kept &= ~one.gone(compared, batch.num_rows)
    if not plan.columns:
        return _no_columns(int(kept.sum())).replace_schema_metadata(plan.schema.metadata)
    # Converted before rows go: of the forms that files may have (views of texts) Arrow cannot choose rows.
    arrays = [_column(plan, one, batch) for one in plan.columns]
    made = pa.RecordBatch.from_arrays(arrays, schema=plan.schema)
    return made if kept.all() else made.filter(pa.array(kept))


def _valid(rows: pa.RecordBatch, file: FileSlice) -> pa.RecordBatch:
    """The rows, of which pyarrow has not looked at each value. Raises `DocumentUnreadable` for texts that are none."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        raise DocumentUnreadable(
            f"file '{file.path}' has values that are none of their type", file=file.path
        ) from None
    return rows


def _column(plan: _Plan, one: Matched, batch: pa.RecordBatch) -> pa.Array:
    if one.held is None:
        value = plan.file.partition_values.get(one.field.name)
        if value is None:
            return lacking(one.field, batch.num_rows)
        if value.type != one.field.type:
            value = value.cast(one.field.type)
        return pa.repeat(value, batch.num_rows)
    found = batch.column(one.held)
    if pa.types.is_dictionary(found.type) and not pa.types.is_dictionary(one.field.type):
        found = found.dictionary_decode()
    return found if one.convert is None else one.convert(found)


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["n"]).select([])


def _group_rows(footer: Footer, number: int) -> int:
    return int(footer.metadata.row_group(number).num_rows)
