"""Splits a batch of rows by the executors that own the partitions they belong to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch
from ballista_py.planning.partition_map import NOBODY, Owner, PartitionMap
from ballista_py.planning.partition_spec import PARTITION_COLUMN, PartitionSpec


@frozen(kw_only=True)
class RoutedBatch:
    """One batch, split. `by_executor` carries the partition ids in the last column, `__partition` (int32).

    `unassigned` holds the other rows: with their partition id if the partition has no owner, with null if their
    value has no partition yet. No row is in two places and none is lost.
    """

    by_executor: Mapping[str, pa.RecordBatch]
    unassigned: pa.RecordBatch


@frozen
class PartitionRouter:
    """Routes rows by the owners of one map."""

    spec: PartitionSpec
    pmap: PartitionMap = field(repr=False)

    def route(self, batch: pa.RecordBatch) -> RoutedBatch:
        """The batch split by owner; within an executor rows keep their order.

        Raises `SchemaMismatch` if the batch lacks a key column, or has a column named `__partition`.
        """
        if PARTITION_COLUMN in batch.schema.names:
            raise SchemaMismatch(f"the rows have a column '{PARTITION_COLUMN}', a name that is taken")
        partitions = self.pmap.lookup(self.spec.evaluate(batch), batch.num_rows)
        # The last place stands for nobody.
        nobody = len(self.pmap.executors)
        owner_of = np.append(self.pmap.owner_index[:, 0], NOBODY)
        owners = owner_of.take(partitions, mode="wrap")
        owners[owners == NOBODY] = nobody
        narrow = owners.astype(np.uint16 if nobody < 1 << 16 else np.int32)
        counts = np.bincount(narrow, minlength=nobody + 1)
        order = np.argsort(narrow, kind="stable")
        ends = np.cumsum(counts)
        by_executor: dict[str, pa.RecordBatch] = {}
        for place in np.flatnonzero(counts[:nobody]).tolist():
            rows = order[ends[place] - counts[place] : ends[place]]
            by_executor[_executor(self.pmap.executors[place])] = _gather(batch, partitions, rows)
        rest = _gather(batch, partitions, order[ends[nobody] - counts[nobody] :])
        routed = RoutedBatch(by_executor=dict(sorted(by_executor.items())), unassigned=rest)
        assert sum(part.num_rows for part in by_executor.values()) + rest.num_rows == batch.num_rows
        return routed


def _executor(owner: Owner) -> str:
    return owner[0]


def _gather(
    batch: pa.RecordBatch, partitions: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    ids = partitions[rows]
    column = pa.array(ids, mask=ids == NOBODY)
    whole = len(rows) == batch.num_rows
    taken = batch if whole else batch.take(pa.array(rows))
    return taken.append_column(pa.field(PARTITION_COLUMN, pa.int32()), column)
