"""Finds partitions by value: arrays of key values in, partition ids out, without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

Ids = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int64]

MAX_DENSE_CELLS = 1 << 22


@frozen(eq=False)
class ColumnCodes:
    """Numbers for the distinct values of one key: 0, 1, … for known ones, -1 for any other.

    Integers of a narrow range are looked up in `table`, from `low` on, whose last cell is -1; other values are
    hashed by Arrow.
    """

    values: pa.Array
    table: npt.NDArray[np.int32] | None
    low: int
    null_code: int

    @classmethod
    def of(cls, column: pa.Array) -> ColumnCodes:
        """Codes for the values of `column`, in the order of their first appearance."""
        values = column.unique()
        position = pc.index_in(pa.scalar(None, column.type), value_set=values).as_py()
        null_code = -1 if position is None else position
        known = values.drop_null()
        if not pa.types.is_integer(column.type) or not len(known):
            return cls(values, None, 0, null_code)
        bounds = pc.min_max(known).as_py()
        low, high = bounds["min"], bounds["max"]
        if high - low > 4 * len(known) + 1024:
            return cls(values, None, 0, null_code)
        table = np.full(high - low + 2, -1, np.int32)
        places = pc.index_in(known, value_set=values).to_numpy()
        table[_cells(known, low, len(table))] = places
        return cls(values, table, low, null_code)

    def encode(self, column: pa.Array) -> npt.NDArray[np.int32]:
        """The code of every value of `column`."""
        if self.table is None:
            found = pc.fill_null(pc.index_in(column, value_set=self.values), -1)
            return np.asarray(found.to_numpy(), np.int32)
        codes = self.table.take(_cells(column, self.low, len(self.table)))
        if column.null_count:
            codes[np.asarray(column.is_null().to_numpy(zero_copy_only=False))] = self.null_code
        return codes


@frozen(eq=False)
class ValueIndex:
    """From key values to partition ids. Made once per map; `lookup` costs a few array passes."""

    columns: tuple[ColumnCodes, ...]
    strides: tuple[int, ...]
    dense: Ids | None
    sorted_codes: Codes
    sorted_ids: Ids

    @classmethod
    def of(cls, columns: Sequence[pa.Array], ids: Ids) -> ValueIndex:
        """The index of the partitions whose values stand in `columns`, row by row, under `ids`."""
        coders = tuple(ColumnCodes.of(column) for column in columns)
        strides: list[int] = []
        cells = 1
        for coder in coders:
            strides.append(cells)
            cells *= max(1, len(coder.values))
        empty = cls(coders, tuple(strides), None, np.empty(0, np.int64), np.empty(0, np.int32))
        codes = empty.codes(columns, len(ids))
        if cells <= max(MAX_DENSE_CELLS, 4 * len(ids)):
            dense = np.full(cells, -1, np.int32)
            dense[codes] = ids
            return cls(coders, tuple(strides), dense, empty.sorted_codes, empty.sorted_ids)
        order = np.argsort(codes, kind="stable")
        return cls(coders, tuple(strides), None, codes[order], ids[order])

    def codes(self, columns: Sequence[pa.Array], length: int) -> Codes:
        """One number per row that stands for its value; -1 if a key's value is unknown."""
        total = np.zeros(length, np.int64)
        unknown = np.zeros(length, np.bool_)
        for coder, stride, column in zip(self.columns, self.strides, columns, strict=True):
            codes = coder.encode(column)
            unknown |= codes < 0
            total += codes.astype(np.int64) * stride
        total[unknown] = -1
        return total

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Ids:
        """The partition id of every row; -1 for a value that has no partition."""
        if self.dense is not None and len(self.columns) == 1:
            codes = self.columns[0].encode(columns[0])
            found = self.dense.take(codes)
            found[codes < 0] = -1
            return found
        wide = self.codes(columns, length)
        if self.dense is not None:
            found = self.dense.take(wide)
            found[wide < 0] = -1
            return found
        places = np.searchsorted(self.sorted_codes, wide)
        places[places == len(self.sorted_codes)] = 0
        return np.where(self.sorted_codes[places] == wide, self.sorted_ids[places], -1).astype(np.int32)


def _cells(column: pa.Array, low: int, size: int) -> npt.NDArray[np.int64]:
    """How far each value lies above `low`; `size` - 1, the cell of the unknown, for all that lie outside.

    Differences are taken modulo 2^64, where none of them overflows: below `low` they are greater than any table.
    """
    given = pc.fill_null(column, pa.scalar(0, column.type)) if column.null_count else column
    numbers = np.asarray(given.to_numpy()).astype(np.int64, copy=False).view(np.uint64)
    above = numbers - np.uint64(low % (1 << 64))
    return np.asarray(np.minimum(above, np.uint64(size - 1)).view(np.int64))
