"""Changes of rows by their keys, as they come to an owner: which keys of each partition, and the rows that come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from ballista_py.errors import InvariantViolated, MergeTooLarge
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.rewrite import Rewrite
from ballista_py.transport.flight.commands import GONE_COLUMN, PARTITION_COLUMN

KEYS_BYTES = 256 << 20  # of the keys of one statement, at one owner


@define
class KeyedRows:
    """Takes the rows apart (last columns: whether it goes, and the partition). Used by one thread.

    Keeps the keys of all of them, and hands on those that come to the table. Raises `InvariantViolated` for rows that
    are not the table's, and `MergeTooLarge` beyond `max_bytes` of keys.
    """

    table: TableSpec
    max_bytes: int = KEYS_BYTES
    _keys: dict[int, list[pa.RecordBatch]] = field(factory=lambda: defaultdict(list), init=False)
    _bytes: int = field(default=0, init=False)

    def coming(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that come, with their partition as last column."""
        schema = self.table.schema.append(pa.field(PARTITION_COLUMN, pa.int32()))
        names = [*self.table.schema.names, GONE_COLUMN, PARTITION_COLUMN]
        for batch in rows:
            if batch.schema.names != names or not self.table.primary_key:
                raise InvariantViolated(
                    f"changes of table '{self.table.name}' came with other columns than it has"
                )
            self._keep(batch)
            gone = pc.fill_null(batch.column(GONE_COLUMN), False)
            new = batch.filter(pc.invert(gone)).drop_columns([GONE_COLUMN])
            if new.num_rows:
                yield pa.RecordBatch.from_arrays(new.columns, schema=schema)

    def _keep(self, batch: pa.RecordBatch) -> None:
        keys = batch.select(list(self.table.primary_key))
        partitions = batch.column(PARTITION_COLUMN)
        for partition in pc.unique(partitions).to_pylist():
            own = keys.filter(pc.equal(partitions, partition))
            self._bytes += own.nbytes
            self._keys[partition].append(own)
        if self._bytes > self.max_bytes:
            raise MergeTooLarge(
                f"the keys of these changes of table '{self.table.name}' take more than {self.max_bytes >> 20} MiB: "
                "send them in several batches"
            )

    @property
    def partitions(self) -> set[int]:
        """Those that some key belongs to."""
        return set(self._keys)

    def of(self, partition: int) -> pa.Table:
        """The keys that belong to the partition."""
        columns = [self.table.schema.field(name) for name in self.table.primary_key]
        found = self._keys.get(partition, [])
        schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        batches = [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in found]
        return pa.Table.from_batches(batches, schema=schema)


def without_keys(table: TableSpec, keys: pa.Table) -> Rewrite:
    """What leaves the rows of a file whose keys are none of these, which are the relation `NEW_ROWS`."""
    from ballista_py.sql.prune.changes import without_rows_of_keys  # a parser, which executors are spared

    return without_rows_of_keys(table, keys)
