"""The rows of one statement on their way into files: gathered by partition, never more than a bound in memory.

Files are written under a folder of the statement's own and nobody sees them before a manifest names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ballista_py.figures import UNSEEN, Figures
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.manifest import DataFile, data_prefix
from ballista_py.work import require_wanted

SPOOL_BYTES = 128 << 20
LEAST_SPOOL_BYTES = 8 << 20
SPOOLS = 16  # at once, in the memory of a node
DISCARD_MS = 2_000.0

MAX_RUNS = 4_096

Part: TypeAlias = tuple[int, pa.Table]
RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
OnFiles = Callable[[Sequence[tuple[DataFile, pa.Table]]], None]


def spool_bytes(max_bytes: int) -> int:
    """What the rows of one statement may be at a node that may take `max_bytes`, before they are written to files.

    >>> [spool_bytes(mb << 20) >> 20 for mb in (64, 256, 4096)]
    [8, 16, 128]
    """
    return max(LEAST_SPOOL_BYTES, min(SPOOL_BYTES, max_bytes // SPOOLS))


class RowSpool:
    """Takes batches of a table whose last column is the partition, and gives the files that hold them.

    `schema` is that of the table by its `definition`, `file_format` the form of the files. `run_all` works as `map`.
    `on_files` is told of files that were written together, with their rows, and `figures` how large each of them is,
    as one of the `table`. Files lie `below` that prefix, where one is given. Not for several threads.
    """

    def __init__(
        self,
        store: ConditionalStore,
        folder: str,
        schema: pa.Schema,
        runtime: Runtime,
        run_all: RunAll = map,
        *,
        file_format: str = "parquet",
        max_bytes: int = SPOOL_BYTES,
        on_files: OnFiles | None = None,
        definition: int = 0,
        figures: Figures = UNSEEN,
        table: str = "",
        below: str = "",
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._prefix = f"{below or data_prefix(folder)}{runtime.new_id()}"
        self._schema = schema
        self._run_all = run_all
        self._format = file_format
        self._max_bytes = max_bytes
        self._on_files = on_files
        self._definition = definition
        self._figures = figures
        self._table = table
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written = 0
        self._files: dict[int, list[DataFile]] = {}
        self._keys: list[str] = []  # of all that was begun

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows; now and then this writes files."""
        if batch.num_rows:
            self._waiting.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= self._max_bytes:
            self._flush()

    def finish(self) -> dict[int, list[DataFile]]:
        """The files of each partition, all written; call it once."""
        self._flush()
        return self._files

    def discard(self) -> list[str]:
        """Remove the files again, for a statement that surely names them in no manifest; which they were.

        Who waits for its end waits no longer than `DISCARD_MS`: the collector finds what is left then.
        """
        keys, self._keys = self._keys, []
        until_ms = self._runtime.monotonic_ms() + DISCARD_MS

        def remove(key: str) -> None:
            if self._runtime.monotonic_ms() <= until_ms:
                self._store.delete(key)

        for _ in self._run_all(remove, keys):
            pass
        self._files.clear()
        return keys

    def _flush(self) -> None:
        if not self._waiting:
            return
        parts = list(_by_partition(self._waiting, self._schema))
        self._waiting, self._bytes = [], 0
        first = self._written
        self._written += len(parts)
        keys = {partition: f"{self._prefix}/{first + n}.{self._format}" for n, (partition, _) in enumerate(parts)}

        def write(part: Part) -> DataFile | Exception:
            try:
                require_wanted()
                self._keys.append(keys[part[0]])
                began_ms = self._runtime.monotonic_ms()
                file = write_data_file(self._store, keys[part[0]], part[1], self._format, self._definition)
                took_ms = self._runtime.monotonic_ms() - began_ms
                self._figures.add("dataset_acceleration_snapshot_write_bytes", file.bytes, table=self._table)
                self._figures.record("dataset_acceleration_snapshot_write_duration_ms", took_ms, table=self._table)
            except Exception as error:
                self._figures.add("dataset_acceleration_snapshot_write_failures", table=self._table)
                return error
            return file

        # All of them come to their end first, so that nothing is left to do when one failed.
        written = list(zip(parts, self._run_all(write, parts), strict=True))
        done: list[tuple[DataFile, pa.Table]] = []
        for (partition, rows), file in written:
            if isinstance(file, Exception):
                raise file
            self._files.setdefault(partition, []).append(file)
            done.append((file, rows))
        if self._on_files is not None:
            require_wanted()
            self._on_files(done)


def _by_partition(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each partition, in their order."""
    runs = [_runs(batch) for batch in batches]
    if all(found is not None for found in runs) and sum(len(found or ()) for found in runs) <= MAX_RUNS:
        parts: dict[int, list[pa.RecordBatch]] = {}
        for batch, found in zip(batches, runs, strict=True):
            for partition, start, stop in found or ():
                parts.setdefault(partition, []).append(batch.slice(start, stop - start))
        for partition in sorted(parts):
            yield partition, pa.Table.from_batches(parts[partition]).drop_columns([PARTITION_COLUMN]).cast(schema)
        return
    rows = pa.Table.from_batches(batches)
    partitions = rows.column(rows.num_columns - 1).to_numpy()
    rows = rows.drop_columns([PARTITION_COLUMN]).take(pa.array(np.argsort(partitions, kind="stable"))).cast(schema)
    for partition, start, stop in _cut(np.sort(partitions)):
        yield partition, rows.slice(start, stop - start)


def _runs(batch: pa.RecordBatch) -> list[tuple[int, int, int]] | None:
    """Partition, start and end of each run of rows, if they come in order of their partitions, as senders sort them."""
    partitions = batch.column(batch.num_columns - 1).to_numpy()
    return _cut(partitions) if bool(np.all(partitions[1:] >= partitions[:-1])) else None


def _cut(partitions: npt.NDArray[np.int32]) -> list[tuple[int, int, int]]:
    starts = np.flatnonzero(np.diff(partitions, prepend=-1))
    stops = [*starts[1:].tolist(), len(partitions)]
    return list(zip(partitions[starts].tolist(), starts.tolist(), stops, strict=True))
