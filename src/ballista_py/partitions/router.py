"""Splits a batch of rows by the executors that own the partitions they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.map import NOBODY, PartitionMap
from ballista_py.partitions.router_gather import Each, gather
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.partitions.value_index import Ids


@frozen(kw_only=True)
class RoutedBatch:
    """One batch, split. `by_executor` carries the partition ids in the last column, `__partition` (int32).

    `unassigned` holds the other rows: with their partition id if the partition has no owner, with null if their
    value has no partition yet. No row is in two places and none is lost.
    """

    by_executor: Mapping[str, pa.RecordBatch]
    unassigned: pa.RecordBatch


@frozen(slots=False)
class PartitionRouter:
    """Routes rows by the owners of one map.

    `each` copies the columns of a batch; with the `map` of a thread pool it does so side by side. With
    `by_partition` the rows of an executor come partition by partition, in ascending order, for no more work; a map
    of more than 65,535 partitions is routed as without.
    """

    spec: PartitionSpec
    pmap: PartitionMap = field(repr=False)
    each: Each = field(default=map, repr=False)
    by_partition: bool = False

    def route(self, batch: pa.RecordBatch) -> RoutedBatch:
        """The batch split by owner; within an executor (or with `by_partition` a partition) rows keep their order.

        The parts are slices of one gathered copy, about as large as the batch; strings come out plain, never as
        views, whose slices would carry all of their buffers.

        Raises `SchemaMismatch` if the batch lacks a key column, or has a column named `__partition`.
        """
        if PARTITION_COLUMN in batch.schema.names:
            raise SchemaMismatch(f"the rows have a column '{PARTITION_COLUMN}', a name that is taken")
        partitions = self.pmap.lookup(self.spec.evaluate(batch), batch.num_rows)
        # The place behind the last executor stands for nobody; ids of -1 read the last item.
        nobody = len(self.pmap.executors)
        owners = self._owner_of.take(partitions, mode="wrap")
        counts = np.bincount(owners, minlength=nobody + 1)
        places = np.flatnonzero(counts).tolist()
        rows = _plain(batch)
        if len(places) > 1 or self._ranks is not None:
            keys = owners if self._ranks is None else self._ranks.take(partitions, mode="wrap")
            rows, order = gather(rows, keys, self.each)
            partitions = partitions.take(order)
        whole = _with_partitions(rows, partitions)
        parts: dict[int, pa.RecordBatch] = {}
        start = 0
        for place in places:
            parts[place] = whole.slice(start, counts[place])
            start += counts[place]
        assert start == batch.num_rows
        rest = parts.pop(nobody, whole.slice(start))
        names = [owner[0] for owner in self.pmap.executors]
        return RoutedBatch(by_executor={names[place]: part for place, part in parts.items()}, unassigned=rest)

    @cached_property
    def _owner_of(self) -> npt.NDArray[np.uint16] | npt.NDArray[np.int32]:
        nobody = len(self.pmap.executors)
        owners = np.append(self.pmap.owner_index[:, 0], NOBODY)
        owners[owners == NOBODY] = nobody
        return owners.astype(np.uint16) if nobody < 1 << 16 else owners

    @cached_property
    def _ranks(self) -> npt.NDArray[np.uint16] | None:
        """The place of each partition among all, by owner and then by number; the last is that of no partition."""
        if not self.by_partition or len(self._owner_of) > 1 << 16:
            return None
        ranks = np.empty(len(self._owner_of), np.uint16)
        ranks[np.argsort(self._owner_of, kind="stable")] = np.arange(len(ranks))
        return ranks


def _with_partitions(rows: pa.RecordBatch, partitions: Ids) -> pa.RecordBatch:
    unknown = partitions == NOBODY
    column = pa.array(partitions, mask=unknown if unknown.any() else None)
    schema = rows.schema.append(pa.field(PARTITION_COLUMN, pa.int32()))
    return pa.RecordBatch.from_arrays([*rows.columns, column], schema=schema)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its string views, which Arrow cannot gather either, as plain strings."""
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if not any(kind in plain for kind in batch.schema.types):
        return batch
    return batch.cast(pa.schema([field.with_type(plain.get(field.type, field.type)) for field in batch.schema]))
