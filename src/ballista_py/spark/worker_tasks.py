"""What tasks of a Spark elsewhere do with the store: they put data files and answers there, and read data files.

Promises that a task puts nothing once the run that it is of has ended, and that whatever an attempt puts is named as no
other attempt's: only what the driver was told of counts, by the receipt of the one attempt whose result Spark takes.
Arguments come from the driver alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define, field

from ballista_py.errors import ConfigError, MergeTooLarge, ObjectExists, OutcomeUnknown, StoreUnavailable, TryLater
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.spark.elsewhere import IN_FILE
from ballista_py.state.documents.claims import require_claim
from ballista_py.state.documents.codec import converter
from ballista_py.state.stores.store import ConditionalStore, open_store
from ballista_py.storage.formats import parquet
from ballista_py.storage.formats.deletion_vector import numbered, original_of
from ballista_py.storage.formats.files import check_bytes, checksum, read_places
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.manifest import DataFile

GROUP_BYTES = 64 << 20  # of rows that are encoded at a time
PIECE_BYTES = 8 << 20
PUT_TRIES = 3
OPEN = "open"
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}


def tell_release(
    _batches: Iterator[pa.RecordBatch], opened: tuple[str, str], release: str
) -> Iterator[pa.RecordBatch]:
    """One row with the release: the worker has it, as all tasks make sure, and the client of the store."""
    _store(opened)
    yield pa.RecordBatch.from_pydict({"release": [release]})


def put_rows(
    batches: Iterator[pa.RecordBatch],
    opened: tuple[str, str],
    claim: str,
    prefix: str,
    schema: pa.Schema,
    compression: str,
    max_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Put the rows below `prefix` as Parquet files of `schema`; the last column says of which partition each row is.

    Gives a row a file: the partition's number, and the description as JSON. Rows of a partition follow each other.
    Raises `VersionConflict` when the claim on the prefix is over, or is not there: then this store is another one.
    """
    store, runtime = _store(opened), SystemRuntime()
    require_claim(store, claim, runtime)
    files = _Files(
        store, runtime, claim, prefix, _attempt(), schema, _CODECS.get(compression, compression), max_bytes
    )
    for batch in batches:
        numbers = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        rows = _as(batch.select(range(batch.num_columns - 1)), schema)
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)] if len(numbers) else []
        for start, end in pairwise(bounds):
            files.add(int(numbers[start]), rows.slice(start, end - start))
        yield from files.receipts()
    files.finish()
    yield from files.receipts()


def read_files(
    batches: Iterator[pa.RecordBatch],
    opened: tuple[str, str],
    files: Sequence[bytes],
    schema: pa.Schema,
    wanted: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The rows of data files, with the columns and types of `wanted`; each row that comes in is the number of one.

    `schema` is that of their table. Raises what reading a data file raises.
    """
    store = _store(opened)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            file = converter().loads(files[number], DataFile)
            for rows in _rows_of(store, file, schema):
                yield _as(rows.select(wanted.names), wanted)


def keep_answer(
    batches: Iterator[pa.RecordBatch], opened: tuple[str, str], home: str, folder: str, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Put a task's part of an answer below `folder` in pieces, and give a row for each: part, object, rows.

    Raises `TryLater` when the answer was given up, and `MergeTooLarge` when all answers below `home` would take more
    than `max_bytes`.
    """
    store, attempt, piece = _store(opened), _attempt(), 0
    part = _part()
    held: list[pa.RecordBatch] = []
    size = 0

    def put() -> pa.RecordBatch:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, held[0].schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            for rows in held:
                writer.write_batch(rows)
        data = bytes(sink.getvalue())
        _require_room(store, home, folder, len(data), max_bytes)
        name = f"{part:06}-{attempt}-{piece:06}.arrow"
        _created(store, f"{folder}{name}", data)
        count = sum(rows.num_rows for rows in held)
        return pa.RecordBatch.from_pydict(
            {"part": pa.array([part], pa.int32()), "file": [name], "rows": pa.array([count], pa.int64())}
        )

    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            yield put()
            held, size, piece = [], 0, piece + 1
    if held:
        yield put()


@define
class _Files:
    """The files of one task, of which one is written at a time, in memory."""

    store: ConditionalStore
    runtime: Runtime
    claim: str
    prefix: str
    attempt: str
    schema: pa.Schema
    codec: str
    max_bytes: int
    _number: int = field(init=False, default=-1)
    _held: list[pa.RecordBatch] = field(init=False, factory=list)
    _size: int = field(init=False, default=0)
    _rows: int = field(init=False, default=0)
    _sink: pa.BufferOutputStream | None = field(init=False, default=None)
    _writer: pq.ParquetWriter | None = field(init=False, default=None)
    _done: list[tuple[int, DataFile]] = field(init=False, factory=list)

    def add(self, number: int, rows: pa.RecordBatch) -> None:
        """Take rows of a partition."""
        if number != self._number:
            self.finish()
            self._number = number
        self._held.append(rows)
        self._size += rows.nbytes
        self._rows += rows.num_rows
        if self._rows >= parquet.ROW_GROUP_ROWS or self._size >= GROUP_BYTES:
            self._flush()
            if self._sink is not None and self._sink.tell() >= self.max_bytes:
                self.finish()

    def finish(self) -> None:
        """Put the file that is begun, if one is."""
        self._flush()
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        data = bytes(self._sink.getvalue())
        self._writer = self._sink = None
        require_claim(self.store, self.claim, self.runtime)
        self._done.append((self._number, self._put(data)))

    def receipts(self) -> Iterator[pa.RecordBatch]:
        """What was put and not told yet."""
        done, self._done = self._done, []
        if done:
            texts = [orjson.dumps(converter().unstructure(file)).decode() for _, file in done]
            yield pa.RecordBatch.from_pydict(
                {"number": pa.array([number for number, _ in done], pa.int32()), "file": texts}
            )

    def _flush(self) -> None:
        if not self._held:
            return
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._writer = pq.ParquetWriter(self._sink, self.schema, compression=self.codec, store_schema=True)
        rows = pa.Table.from_batches(self._held, self.schema)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._held, self._size, self._rows = [], 0, 0

    def _put(self, data: bytes) -> DataFile:
        """The file, under a name that is nobody's; under another one if nobody knows whether it came."""
        for _ in range(PUT_TRIES):
            key = f"{self.prefix}/{self._number:05}-{self.attempt}-{self.runtime.new_id()}.parquet"
            try:
                self.store.create(key, data)
            except (OutcomeUnknown, ObjectExists):
                continue
            rows, columns = parquet.footer(pa.py_buffer(data), key)
            return DataFile(path=key, rows=rows, bytes=len(data), checksum=checksum(data), columns=columns)
        raise StoreUnavailable(
            f"a data file below '{self.prefix}' could not be stored: no reply came, three times"
        )


def _rows_of(store: ConditionalStore, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    whole = file if file.original is None else original_of(file)
    data = check_bytes(store.get(whole.path, whole.bytes).data, whole)
    rows = file_format(whole.format, whole.path).read_batches(pa.py_buffer(data), schema, whole.path)
    if file.original is None:
        return iter(rows)
    return (left for _, left in numbered(rows, read_places(store, file)))


def _require_room(store: ConditionalStore, home: str, folder: str, size: int, max_bytes: int) -> None:
    taken, is_open = size, False
    for entry in store.list(home):
        taken += entry.size
        is_open = is_open or entry.key == f"{folder}{OPEN}"
    if not is_open:
        raise TryLater("the answer was given up, or this worker has another store than the driver")
    if taken > max_bytes:
        raise MergeTooLarge(f"the answers of Spark would take more than {max_bytes:,} bytes of the store")


def _created(store: ConditionalStore, key: str, data: bytes) -> None:
    """Store it under a key that is this attempt's own, so that what lies there can only be this."""
    for last in (False, False, True):
        try:
            store.create(key, data)
        except ObjectExists:
            return
        except OutcomeUnknown:
            if last:
                raise StoreUnavailable(
                    "a part of an answer could not be stored: no reply came, three times"
                ) from None
        else:
            return


def _as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [column.cast(kind) for column, kind in zip(rows.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _store(opened: tuple[str, str]) -> ConditionalStore:
    location, options = opened
    if options.startswith(IN_FILE):
        options = _file_of_the_session(options.removeprefix(IN_FILE))
    return open_store(location, **orjson.loads(options))


def _file_of_the_session(name: str) -> str:
    from pyspark import SparkFiles

    try:
        return (Path(SparkFiles.getRootDirectory()) / name).read_text()
    except OSError as error:
        raise ConfigError(f"the options of the store did not come to a worker: {error.strerror}") from None


def _part() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    return task.partitionId()


def _attempt() -> str:
    """What tells this attempt from every other one, also of a Spark that was started anew."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None
    return f"{task.taskAttemptId()}-{SystemRuntime().new_id()[:12]}"
