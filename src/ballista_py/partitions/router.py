"""Splits a batch of rows by the executors that own the partitions they belong to.

Sorts the rows of a batch by small keys, once, with strings copied in runs.

Arrow copies strings one by one. Rows that stay neighbours (sorted input, few executors) are copied as one piece
here, which takes half the time; where there are few such rows Arrow's way is kept. Numbers are copied by numpy,
which takes two thirds of Arrow's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.map import NOBODY, PartitionMap
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.partitions.value_index import Ids

Rows = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.uint16] | npt.NDArray[np.int32]
# As the built-in `map`: a thread pool's `map` copies columns side by side.
Each: TypeAlias = Callable[[Callable[[pa.Array], pa.Array], Iterable[pa.Array]], Iterable[pa.Array]]

RUNS_FROM_ROWS = 4_096
ROWS_PER_RUN = 2
# By bits; numpy moves 16 bytes whole if it takes them for a complex number.
_WIDTHS: Mapping[int, npt.DTypeLike] = {
    8: np.uint8,
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
    128: np.complex128,
}


def gather(batch: pa.RecordBatch, keys: Keys, each: Each = map) -> tuple[pa.RecordBatch, Rows]:
    """The batch sorted by `keys`, one a row, equal ones in the order in which they were; and that order.

    `each` goes over the columns as `map` does.
    """
    # A stable sort of 16-bit numbers is a counting sort.
    order = np.argsort(keys, kind="stable")
    indices = pa.array(order)
    if len(order) < RUNS_FROM_ROWS:
        return batch.take(indices), order
    runs = _Runs.of(keys, order)

    def take(column: pa.Array) -> pa.Array:
        if runs is not None and _is_text(column.type):
            return runs.take(column, indices)
        width = _WIDTHS.get(column.type.bit_width) if _is_number(column.type) else None
        if width is None or column.null_count:
            return column.take(indices)
        raw = np.frombuffer(column.buffers()[1], width)[column.offset : column.offset + len(column)]
        return pa.Array.from_buffers(column.type, len(column), [None, _taken(raw, order)])

    return pa.RecordBatch.from_arrays(list(each(take, batch.columns)), schema=batch.schema), order


@frozen(eq=False)
class _Runs:
    """Neighbours that stay neighbours: where each run starts in the input (ascending), and their new order."""

    order: Rows
    starts: Rows
    ranks: pa.Array

    @classmethod
    def of(cls, keys: Keys, order: Rows) -> _Runs | None:
        """The runs of equal keys; None if there are too many to be worth it."""
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        if len(starts) * ROWS_PER_RUN > len(keys):
            return None
        return cls(order, starts, pa.array(np.argsort(keys[starts], kind="stable")))

    def take(self, column: pa.Array, indices: pa.Array) -> pa.Array:
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        dtype = np.dtype(np.int64 if large else np.int32)
        _, offset_buffer, data = column.buffers()
        if data is None:
            return column.take(indices)
        offsets = np.frombuffer(offset_buffer, dtype)[column.offset : column.offset + len(column) + 1]
        lengths = np.diff(offsets)
        width = _WIDTHS.get(8 * int(lengths[0]))
        if width is not None and not column.null_count and (lengths == lengths[0]).all():  # flags, codes
            raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].view(width)
            even = pa.py_buffer(offsets - offsets[0])
            return pa.Array.from_buffers(column.type, len(column), [None, even, _taken(raw, self.order)])
        pieces = pa.Array.from_buffers(
            pa.large_binary() if large else pa.binary(),
            len(self.starts),
            [None, pa.py_buffer(np.append(offsets[self.starts], offsets[-1])), data],
        )
        gathered_buffer = pa.allocate_buffer((len(column) + 1) * dtype.itemsize)
        gathered = np.frombuffer(gathered_buffer, dtype)
        gathered[0] = 0
        np.cumsum(lengths.take(self.order), out=gathered[1:])
        validity = column.is_valid().take(indices).buffers()[1] if column.null_count else None
        buffers = [validity, gathered_buffer, pieces.take(self.ranks).buffers()[2]]
        return pa.Array.from_buffers(column.type, len(column), buffers)


def _taken(raw: npt.NDArray[Any], order: Rows) -> pa.Buffer:
    # Arrow keeps memory that was given back, numpy has to ask the machine for all of it anew.
    taken = pa.allocate_buffer(raw.nbytes)
    raw.take(order, out=np.frombuffer(taken, raw.dtype), mode="clip")  # other modes buffer what they write
    return taken


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal128(kind))


def _is_text(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_string(kind) or of.is_binary(kind) or of.is_large_string(kind) or of.is_large_binary(kind))


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
