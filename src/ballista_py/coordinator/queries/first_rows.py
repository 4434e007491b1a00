"""The rows that a table is made of: files and manifests first, which nobody sees before the table has its name.

Promises: a statement that fails, or whose scheduler dies, while it makes a table leaves files that the collector takes
away, and no table; whoever sees the table sees all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.writes.row_routes import distinct_values
from ballista_py.errors import TryLater
from ballista_py.partitions.map import NOBODY, PartitionMap
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.row_spool import RowSpool
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.work import require_wanted

RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@frozen
class FirstRows:
    """Writes the rows of tables to be. Thread-safe. `run_all` works as `map` does, on several at the same time."""

    store: ConditionalStore
    runtime: Runtime
    run_all: RunAll

    def write(self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: str) -> dict[tuple[Any, ...], float]:
        """Write the rows (of the table's schema) and the manifests of all partitions; how many rows each has.

        Nothing is left of the files when it raises: what the rows and the store raise, and `TryLater` when it took
        so long that files may count as garbage by now.
        """
        started_ms = self.runtime.monotonic_ms()
        spool = RowSpool(
            self.store,
            table.folder,
            table.schema,
            self.runtime,
            lambda do, parts: iter(list(self.run_all(do, parts))),
            file_format=table.file_format,
        )
        try:
            values = self._spooled(table, rows, spool)
            files = spool.finish()
            done = list(
                self.run_all(
                    lambda n: self._manifest(table, values[n], files.get(n, ()), token), range(len(values))
                )
            )
            if self.runtime.monotonic_ms() - started_ms > MAX_WRITE_MS:
                raise TryLater("the rows took too long: their files may count as garbage by now")
        except BaseException:
            spool.discard()
            raise
        return dict(zip(values, done, strict=True))

    def _spooled(self, table: TableSpec, rows: Iterable[pa.RecordBatch], spool: RowSpool) -> list[tuple[Any, ...]]:
        """Take in the rows; the values of all partitions, those known beforehand first."""
        values = list(table.spec.static_values() or ())
        pmap = PartitionMap.build(table.name, table.spec, values)
        for batch in rows:
            ids = pmap.lookup(pmap.spec.evaluate(batch), batch.num_rows)
            new = ids == NOBODY
            if new.any():
                values += distinct_values(pmap, batch.filter(pa.array(new)))
                pmap = PartitionMap.build(table.name, table.spec, values)
                ids = pmap.lookup(pmap.spec.evaluate(batch), batch.num_rows)
            spool.add(batch.append_column(PARTITION_COLUMN, pa.array(ids.astype(np.int32))))
        return values

    def _manifest(self, table: TableSpec, value: tuple[Any, ...], files: Iterable[DataFile], token: str) -> float:
        require_wanted()
        storage = PartitionStorage(self.store, table.folder, table.spec.path(value), runtime=self.runtime)
        made = storage.create().document
        new = tuple(files)
        if new:
            storage.commit(add=new, epoch=made.epoch, token=token)
        return float(sum(file.rows for file in new))
