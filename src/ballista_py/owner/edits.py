"""One partition's change under way: files that go, and what comes in their place, until it is whole or taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
from attrs import define, field

from ballista_py.errors import StoreError
from ballista_py.owner.changes import PartitionChange
from ballista_py.partitions.table import TableSpec
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.deletion_vector import NONE_GONE, Places
from ballista_py.storage.formats.files import read_places, write_deletion_vector
from ballista_py.storage.held.files import LoadedFiles
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.row_spool import RowSpool
from ballista_py.transport.flight.commands import PARTITION_COLUMN

MAX_GONE = 4  # one in so many rows of a file may be gone


@define
class PartitionEdit:
    """Used by one thread. `fresh` gives a folder of its own for deletion vectors; `staged` are the engine's files."""

    store: ConditionalStore
    staged: LoadedFiles
    table: TableSpec
    partition: int
    spool: RowSpool
    fresh: Callable[[], str]
    affected: int = field(default=0, init=False)
    _removed: list[str] = field(factory=list, init=False)
    _vectors: list[DataFile] = field(factory=list, init=False)

    def put(self, rows: pa.RecordBatch) -> None:
        """Have rows come, which fit the table."""
        self.spool.add(tagged(rows, self.partition))

    def remove(self, file: DataFile) -> None:
        """Have a file go whose rows are put anew, as far as they stay."""
        self._removed.append(file.path)

    def take(self, file: DataFile, file_id: int, newly: Places) -> None:
        """Have the rows at these places go from a file, by a deletion vector in its place."""
        gone = np.union1d(self._gone(file), newly)
        vector = write_deletion_vector(self.store, f"{self.fresh()}/0.deletions", file, gone)
        self._vectors.append(vector)
        self.staged.stage_vector(self.table.name, vector, file_id, gone, newly)
        self._removed.append(file.path)

    def finish(self) -> PartitionChange:
        """The change, its files written; none where no row is affected."""
        files = self.spool.finish().get(self.partition, [])
        if not self.affected:
            self.discard()
            return PartitionChange()
        return PartitionChange((*files, *self._vectors), tuple(self._removed), self.affected)

    def discard(self) -> None:
        """Take back all that was written and loaded."""
        paths = [vector.path for vector in self._vectors]
        self.staged.unstage(self.table.name, [*paths, *self.spool.discard()])
        for path in paths:
            with suppress(StoreError):  # the collector finds it
                self.store.delete(path)

    def _gone(self, file: DataFile) -> Places:
        """The places that are gone from the original of a file already."""
        if file.original is None:
            return NONE_GONE
        known = self.staged.gone(self.table.name, file.path)
        return read_places(self.store, file) if known is None else known


def is_few(file: DataFile, rows: int) -> bool:
    """Whether so many more rows may go from a file by a deletion vector.

    What is gone is read and held by whoever takes the file, so it is written anew once that is a quarter.

    >>> file = DataFile(path="a.parquet", rows=1_000, bytes=1)
    >>> is_few(file, 250), is_few(file, 251)
    (True, False)
    """
    before = file.rows if file.original is None else file.original.rows
    return (before - file.rows + rows) * MAX_GONE <= before


def tagged(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """The rows with their partition as last column."""
    return batch.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
