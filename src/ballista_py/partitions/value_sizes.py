"""How large single values are: pure. What an engine makes of 2,048 rows at a time is as large as their values are.

A table of many small values says nothing about the one that is large, and a sum says nothing about how many stand
together. So values above `SMALL_BYTES` are counted by powers of two; of all others it is enough to know that they are
small. A column of numbers, or of texts that are all small, costs a look at its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.lib as lib
from attrs import field, frozen

SMALL_BYTES = 4_096
MAX_VALUE_BYTES = 16 << 20  # of one value in a row that comes into a table
_VIEWS = frozenset((lib.Type_STRING_VIEW, lib.Type_BINARY_VIEW))
_TEXTS = frozenset((lib.Type_STRING, lib.Type_BINARY, lib.Type_LARGE_STRING, lib.Type_LARGE_BINARY))
_LISTS = frozenset((lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_MAP))
_SLOT_BYTES = 8.0

Sizes: TypeAlias = npt.NDArray[np.float64]


@frozen
class LargeValues:
    """How many values there are of more than `SMALL_BYTES`, by the power of two that none of them exceeds.

    >>> found = LargeValues.of(pa.array(["a", "b" * 10_000, "c" * 10_000]))
    >>> found.largest, found.together(1), found.together(2_048)
    (16384, 16384, 32768)
    """

    counts: Mapping[int, int] = field(factory=dict)

    @classmethod
    def of(cls, column: pa.Array) -> LargeValues:
        """Those of a valid array."""
        if not may_be_large(column.type) or column.nbytes <= SMALL_BYTES:
            return NONE_LARGE
        sizes = value_sizes(column)
        large = sizes[sizes > SMALL_BYTES]
        if not len(large):
            return NONE_LARGE
        powers, counts = np.unique(np.ceil(np.log2(large)).astype(np.int64), return_counts=True)
        return cls(dict(zip(powers.tolist(), counts.tolist(), strict=True)))

    @classmethod
    def all_of(cls, many: Iterable[LargeValues]) -> LargeValues:
        """Those of several arrays."""
        counts: dict[int, int] = {}
        for one in many:
            for power, count in one.counts.items():
                counts[power] = counts.get(power, 0) + count
        return cls(counts) if counts else NONE_LARGE

    @property
    def largest(self) -> int:
        """What no value exceeds; 0 if all are small."""
        return 1 << max(self.counts) if self.counts else 0

    def together(self, rows: int) -> int:
        """What the largest of so many rows take together; the small ones count nothing."""
        size = 0
        for power in sorted(self.counts, reverse=True):
            taken = min(rows, self.counts[power])
            size += taken << power
            rows -= taken
        return size


NONE_LARGE = LargeValues()


def windows(sizes: Sizes, max_bytes: int, max_rows: int) -> list[tuple[int, int]]:
    """From and to of runs of rows with these sizes: of so many rows, and one more than so many bytes, at most.

    >>> windows(np.array([1.0, 9.0, 1.0, 1.0, 1.0]), 10, 2)
    [(0, 1), (1, 3), (3, 5)]
    """
    if not len(sizes):
        return []
    heap = np.floor(np.cumsum(sizes) / max_bytes).astype(np.int64)
    starts = np.flatnonzero(np.diff(heap, prepend=-1)).tolist()
    found = []
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        found += [(one, min(one + max_rows, end)) for one in range(start, end, max_rows)]
    return found


def may_be_large(kind: pa.DataType) -> bool:
    """Whether values of the type can be of any size."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.id in _TEXTS | _VIEWS or bool(
        pa.types.is_nested(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or (pa.types.is_fixed_size_binary(kind) and kind.byte_width > SMALL_BYTES)
    )


def first_too_large(column: pa.Array, max_bytes: int = MAX_VALUE_BYTES) -> tuple[int, int] | None:
    """The place and the size of the first value that takes more than the bound; None if there is none.

    >>> first_too_large(pa.array(["a", "bcd"]), 2)
    (1, 3)
    """
    if not may_be_large(column.type) or (column.nbytes <= max_bytes and column.type.id in _TEXTS):
        return None
    sizes = value_sizes(column)
    places = np.flatnonzero(sizes > max_bytes)
    return (int(places[0]), int(sizes[places[0]])) if len(places) else None


def value_sizes(array: Any) -> Sizes:
    """The bytes that each value takes once it is written out, at least; a few more where it is nested."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if not len(array):
        return np.zeros(0)
    if kind.id in _VIEWS:
        lengths = np.frombuffer(array.buffers()[1], np.int32)[::4]
        return lengths[array.offset : array.offset + len(array)].astype(np.float64)
    if kind.id in _TEXTS:
        lengths = pc.binary_length(array)
        filled = lengths.fill_null(0) if lengths.null_count else lengths
        return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.float64)
    if kind.id == lib.Type_DICTIONARY:
        places = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return value_sizes(array.dictionary)[places] if len(array.dictionary) else np.zeros(len(array))
    if kind.id in _LISTS:
        bounds = array.offsets.to_numpy().astype(np.int64)
        return _between(_elements(array), bounds[:-1], bounds[1:])
    if kind.id == lib.Type_FIXED_SIZE_LIST:
        starts = (array.offset + np.arange(len(array))) * kind.list_size
        return _between(value_sizes(array.values), starts, starts + kind.list_size)
    if kind.id == lib.Type_STRUCT:
        parts = (value_sizes(array.field(number)) for number in range(kind.num_fields))
        return sum(parts, np.full(len(array), _SLOT_BYTES))
    if pa.types.is_primitive(kind) or pa.types.is_null(kind) or pa.types.is_fixed_size_binary(kind):
        return np.full(len(array), 1.0 if pa.types.is_null(kind) else max(1.0, kind.bit_width / 8))
    # Unions, run ends, list views: what all take could be in one of them.
    return np.full(len(array), float(array.nbytes))


def _elements(array: Any) -> Sizes:
    if array.type.id == lib.Type_MAP:
        return value_sizes(array.keys) + value_sizes(array.items)
    return value_sizes(array.values)


def _between(sizes: Sizes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Sizes:
    sums = np.concatenate(([0.0], np.cumsum(sizes)))
    found: Sizes = _SLOT_BYTES + sums[ends] - sums[starts]
    return found
