"""Sorts the rows of a batch by small keys, once, with strings copied in runs.

Arrow copies strings one by one. Rows that stay neighbours (sorted input, few executors) are copied as one piece
here, which takes half the time; where there are few such rows Arrow's way is kept. Numbers are copied by numpy,
which takes two thirds of Arrow's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import frozen

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
