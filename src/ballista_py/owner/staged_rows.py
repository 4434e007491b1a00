"""Rows that tasks put for a write, at any executor: checked, split by partition, and kept in files that nobody sees.

Nothing of what a task says of its rows is believed: they are held against the table as it was when the write began, and
the partition of each is found here. What is kept is named by one object of the store, and a receipt is its digest: who
commits can name what executors have kept, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.engines.engine import Engine
from ballista_py.engines.row_checks import require_checks
from ballista_py.errors import SchemaMismatch
from ballista_py.figures import UNSEEN, Figures
from ballista_py.partitions.conform import check_columns, conform
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.values import require_short_value
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.files import Mapper
from ballista_py.storage.row_spool import SPOOL_BYTES, RowSpool
from ballista_py.storage.writes.leases import WriteDocument, WriteLeases, staging_prefix
from ballista_py.storage.writes.staged import StagedFile, StagedFiles, Value

MAX_VALUES = 100_000  # partitions that the rows of one sender belong to


@frozen(kw_only=True)
class KeptPut:
    """What was kept of one sender: the object that names its files, by its digest, and how many rows they have."""

    write_id: str
    sender: str
    digest: str
    rows: int


@frozen
class StagedRows:
    """Takes rows in. Safe to share between threads. Of the rows of a sender `spool_bytes` are in memory at most;
    `mapper` runs requests to the store at the same time."""

    store: ConditionalStore
    engine: Engine
    runtime: Runtime
    mapper: Mapper
    spool_bytes: int = SPOOL_BYTES
    figures: Figures = UNSEEN
    leases: WriteLeases = field(init=False)

    @leases.default
    def _leases(self) -> WriteLeases:
        return WriteLeases(self.store, self.runtime)

    def begun(self, write_id: str, client: str) -> WriteDocument:
        """The write that a ticket is for, kept on. Raises `SnapshotGone` once it is over."""
        return self.leases.renew_now_and_then(write_id, client)

    def keep(
        self, write_id: str, write: WriteDocument, schema: pa.Schema, rows: Iterable[pa.RecordBatch]
    ) -> KeptPut:
        """Keep the rows of one sender, all of them or none.

        Raises `SchemaMismatch` for rows that are not the table's, `SnapshotGone` for a write that is over meanwhile,
        and what the rows and the store raise.
        """
        table, sender = write.table, self.runtime.new_id()
        check_columns(table, schema)
        numbers = ValueNumbers(table)
        spool = RowSpool(
            self.store,
            table.folder,
            table.schema,
            self.runtime,
            self.mapper,
            file_format=table.file_format,
            max_bytes=self.spool_bytes,
            definition=table.definition,
            figures=self.figures,
            table=table.name,
            below=f"{staging_prefix(table.folder, write_id)}{sender}/",
        )
        try:
            for batch in self._checked(write_id, write, rows):
                spool.add(numbers.tagged(batch))
            kept = StagedFiles(
                files=tuple(
                    StagedFile(value=numbers.values[number], file=file)
                    for number, files in sorted(spool.finish().items())
                    for file in files
                )
            )
            self.leases.renew_now_and_then(write_id, write.client)
            digest = self.leases.put(write_id, sender, kept, table)
        except BaseException:
            spool.discard()
            raise
        return KeptPut(write_id=write_id, sender=sender, digest=digest, rows=kept.rows)

    def _checked(
        self, write_id: str, write: WriteDocument, rows: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The rows as those of the table, the write kept on while they come."""
        first_row, due_ms = 0, self.runtime.monotonic_ms() + write.lease_ms / 4
        for batch in rows:
            fitting = conform(write.table, batch, first_row)
            require_checks(self.engine, write.table, fitting, first_row)
            first_row += batch.num_rows
            yield fitting
            if self.runtime.monotonic_ms() > due_ms:
                due_ms += write.lease_ms / 4
                self.begun(write_id, write.client)


@define
class ValueNumbers:
    """Numbers for the partition values of rows, in the order in which they are met. `values` has them by number.

    >>> table = TableSpec(name="t", schema=pa.schema([("a", pa.string())]),
    ...     spec=PartitionSpec.parse(["a"], pa.schema([("a", pa.string())])))
    >>> numbers = ValueNumbers(table)
    >>> numbers.tagged(pa.record_batch({"a": ["x", None, "x"]})).column(1).to_pylist(), numbers.values
    ([0, 1, 0], [('x',), (None,)])
    """

    table: TableSpec
    values: list[Value] = field(factory=list, init=False)
    _number_of: dict[str, int] = field(factory=dict, init=False)

    def tagged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the number of their partition value as last column.

        Raises `SchemaMismatch` for a value that can name no partition, and for too many of them.
        """
        spec = self.table.spec
        codes = _codes(spec.evaluate(batch), batch.num_rows)
        found, first, places = np.unique(codes, return_index=True, return_inverse=True)
        own = batch.take(pa.array(first)) if len(found) else batch
        numbers = np.array([self._number(value) for value in self._values(own)], np.int32)
        column = pa.array(numbers[places] if len(found) else numbers, pa.int32())
        return batch.append_column(PARTITION_COLUMN, column)

    def _values(self, rows: pa.RecordBatch) -> list[Value]:
        spec: PartitionSpec = self.table.spec
        if not spec.keys:
            return [()] * rows.num_rows
        try:
            columns: list[list[Any]] = [column.to_pylist() for column in spec.evaluate(rows)]
        except (ValueError, OverflowError):
            raise SchemaMismatch(
                f"a row of table '{self.table.name}' has a partition value beyond the years 1 to 9999, which none can "
                "have"
            ) from None
        return list(zip(*columns, strict=True))

    def _number(self, value: Value) -> int:
        path = self.table.spec.path(value)  # one for NaN, too
        number = self._number_of.get(path)
        if number is None:
            if len(self.values) >= MAX_VALUES:
                raise SchemaMismatch(
                    f"the rows of one sender belong to more than {MAX_VALUES:,} partitions of table "
                    f"'{self.table.name}': sort them by partition, and send them from several tasks"
                )
            require_short_value(self.table.name, [key.expression for key in self.table.spec.keys], value)
            number = self._number_of[path] = len(self.values)
            self.values.append(value)
        return number


def _codes(columns: Iterable[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """One number for each row, the same for rows of the same values and for no others."""
    codes = np.zeros(rows, np.int64)
    for column in columns:
        coded = column.dictionary_encode(null_encoding="encode")
        size = max(1, len(coded.dictionary))
        codes = codes * size + coded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)  # so that many keys do not overflow
    return codes
