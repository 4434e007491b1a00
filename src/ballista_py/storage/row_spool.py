"""The rows of one statement on their way into files: gathered by partition, never more than a bound in memory.

Files are written under a folder of the statement's own and nobody sees them before a manifest names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from ballista_py.runtime import Runtime
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.files import write_data_file
from ballista_py.storage.manifest import DataFile, data_prefix

SPOOL_BYTES = 128 << 20

RunAll = Callable[[Callable[[tuple[int, pa.Table]], DataFile], list[tuple[int, pa.Table]]], Iterator[DataFile]]


class RowSpool:
    """Takes batches of a table whose last column is the partition, and gives the files that hold them.

    `schema` is that of the files, `file_format` their form. `run_all` works as `map` does. Not for several threads.
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
    ) -> None:
        self._store = store
        self._prefix = f"{data_prefix(folder)}{runtime.new_id()}"
        self._schema = schema
        self._run_all = run_all
        self._format = file_format
        self._max_bytes = max_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written = 0
        self._files: dict[int, list[DataFile]] = {}

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

    def discard(self) -> None:
        """Remove the files again; for a statement that surely names them in no manifest."""
        for file in (file for files in self._files.values() for file in files):
            self._store.delete(file.path)
        self._files.clear()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        parts = list(_by_partition(rows, self._schema))
        first = self._written
        self._written += len(parts)
        keys = {partition: f"{self._prefix}/{first + n}.{self._format}" for n, (partition, _) in enumerate(parts)}

        def write(part: tuple[int, pa.Table]) -> DataFile:
            return write_data_file(self._store, keys[part[0]], part[1], self._format)

        for (partition, _), file in zip(parts, self._run_all(write, parts), strict=True):
            self._files.setdefault(partition, []).append(file)


def _by_partition(rows: pa.Table, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    partitions = rows.column(rows.num_columns - 1).to_numpy()
    rows = rows.select(list(range(rows.num_columns - 1))).cast(schema)
    found, starts = np.unique(partitions, return_index=True)
    if len(found) > 1:
        order = np.argsort(partitions, kind="stable")
        rows, (found, starts) = rows.take(pa.array(order)), np.unique(partitions[order], return_index=True)
    ends = [*starts[1:].tolist(), len(partitions)]
    for partition, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
        yield partition, rows.slice(start, end - start)
