"""A digest of the rows of a stream: the same for the same rows, in whatever order and batches they come.

It tells two loads apart that come under one name. It is no signature: whoever wants two loads with one digest can make
them. Rows are as their client sent them, so that it does not matter what has become of their table since; the digest
of a value never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_NULL, _SECOND = np.uint64(0x165667B19E3779F9), np.uint64(0x27D4EB2F165667C5)
_HALF = np.uint64(32)
_BY_WIDTH = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class RowsDigest:
    """Takes in batches of one schema. Used by one thread.

    >>> rows = pa.record_batch({"a": [1, 2, None], "b": ["x", "y", "z"]})
    >>> one, other = RowsDigest(), RowsDigest()
    >>> one.add(rows)
    >>> other.add(rows.take([2])), other.add(rows.take([1, 0]))
    (None, None)
    >>> one.value == other.value, one.value == RowsDigest().value
    (True, False)
    """

    def __init__(self) -> None:
        self._rows = self._first = self._second = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        mixed = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            np.bitwise_xor(mixed, _words(column), out=mixed)
            _mix(mixed)
        self._rows += batch.num_rows
        self._first = (self._first + int(np.sum(mixed, dtype=np.uint64))) & _MASK
        np.bitwise_xor(mixed, _SECOND, out=mixed)
        _mix(mixed)
        self._second = (self._second + int(np.sum(mixed, dtype=np.uint64))) & _MASK

    @property
    def value(self) -> str:
        """The digest of all rows so far."""
        return f"{self._rows:x}.{self._first:016x}.{self._second:016x}"

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, which are all that this digest then is of; it begins anew with the first."""
        self._rows = self._first = self._second = 0
        for batch in batches:
            self.add(batch)
            yield batch


def _mix(words: Words) -> None:
    np.multiply(words, _P1, out=words)
    np.bitwise_xor(words, words >> _HALF, out=words)
    np.multiply(words, _P2, out=words)
    np.bitwise_xor(words, words >> _HALF, out=words)


def _words(values: pa.Array) -> Words:
    """One number for each value, the same for equal ones of a type."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL, np.uint64)
    if pa.types.is_dictionary(kind):
        return _words(values.cast(kind.value_type))
    words = _plain_words(values)
    if values.null_count:
        words = np.where(pc.is_null(values).to_numpy(zero_copy_only=False), _NULL, words)
    return words


def _plain_words(values: pa.Array) -> Words:
    """As `_words`; what stands for a null is not defined."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values, kind = values.cast(pa.int8()), pa.int8()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _of_bytes(values.cast(pa.large_binary()))  # it may be no UTF-8, which is found later
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _of_bytes(values)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _of_bytes(values.view(pa.binary(kind.byte_width)).cast(pa.binary()))
    if pa.types.is_primitive(kind) and kind.bit_width in _BY_WIDTH:
        plain = values.view(_BY_WIDTH[kind.bit_width])
        numbers = (plain.fill_null(0) if plain.null_count else plain).to_numpy(zero_copy_only=False)
        return cast("Words", numbers.astype(np.int64, copy=False).view(np.uint64))
    # Nested values are rare in rows that are sent under a name; their text is the same for equal ones.
    return _of_bytes(pa.array([_text(values.slice(place, 1)) for place in range(len(values))], pa.string()))


def _text(one: pa.Array) -> str:
    try:
        return repr(one[0].as_py())
    except (ValueError, OverflowError):  # dates that Python does not have
        return str(one)


def _of_bytes(values: pa.Array) -> Words:
    import polars as pl
    import polars_hash  # noqa: F401  registers the `nchash` expressions

    hashed = cast("Any", pl.col("v")).nchash.xxhash64(seed=42).fill_null(0)
    return cast("Words", pl.Series("v", values).to_frame().select(hashed).to_series().to_numpy())
