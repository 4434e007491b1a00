"""How many bytes the values of an array take once each is written out at its own place.

Dictionaries, run ends, views and list views name a value many times: a few kilobytes can stand for terabytes. The
sizes are found without making the values, and rows that are to be written out are taken in pieces by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.lib as lib

from ballista_py.errors import InvalidData

MAX_SLOTS = 1 << 24
PIECE_BYTES = 16 << 20
_SHARING = frozenset((
    lib.Type_DICTIONARY, lib.Type_RUN_END_ENCODED, lib.Type_STRING_VIEW, lib.Type_BINARY_VIEW, lib.Type_LIST_VIEW,
    lib.Type_LARGE_LIST_VIEW, lib.Type_DENSE_UNION,
))  # fmt: skip
_VIEWS = (lib.Type_STRING_VIEW, lib.Type_BINARY_VIEW)
_TEXTS = (lib.Type_STRING, lib.Type_BINARY, lib.Type_LARGE_STRING, lib.Type_LARGE_BINARY)
_LISTS = (lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_MAP)
_LIST_VIEWS = (lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW)
_SLOT_BYTES = 8.0

Sizes: TypeAlias = npt.NDArray[np.float64]


def written_out(array: pa.Array) -> float:
    """The bytes of all values of a valid array; exact where nothing is shared, else within a few bytes a value.

    >>> written_out(pa.array(["x" * 1_000] * 4).dictionary_encode())
    4064.0
    """
    if not shares(array.type):
        return float(array.nbytes)
    kind, slots = array.type.id, _SLOT_BYTES * len(array)
    if not len(array):
        return 0.0
    if kind == lib.Type_DICTIONARY:
        times = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(array.dictionary))
        return slots + float(times @ _sizes(array.dictionary))
    if kind == lib.Type_RUN_END_ENCODED:
        return slots + float(_run_lengths(array) @ _sizes(array.values))
    if kind in _VIEWS:
        return slots + float(_view_lengths(array).sum(dtype=np.float64))
    return float(_sizes(array).sum())


def in_pieces(batch: pa.RecordBatch, max_bytes: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows of a valid batch, as many at once as take `max_bytes` when they are written out; a larger one alone.

    Rows that share no values come as they are: what they take they have brought.

    >>> rows = pa.record_batch({"a": pa.array(["x" * 1_000] * 4).dictionary_encode()})
    >>> [piece.num_rows for piece in in_pieces(rows, 2_500)]
    [2, 2]
    """
    if not any(shares(kind) for kind in batch.schema.types):
        yield batch
        return
    for begin in range(0, batch.num_rows, MAX_SLOTS):
        part = batch.slice(begin, MAX_SLOTS)
        sums = np.cumsum(sum(_sizes(column) for column in part.columns if shares(column.type)))
        start, before = 0, 0.0
        while start < part.num_rows:
            stop = max(start + 1, int(np.searchsorted(sums, before + max_bytes, side="right")))
            yield part.slice(start, stop - start)
            start, before = stop, float(sums[stop - 1])


def viewed_text(array: Any) -> float:
    """The bytes that the views of texts in an array name, at any depth, before anybody looks at what they name.

    Of the array no more than its buffers need be checked. Arrow looks at each text by itself, however many are one.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if not _has_viewed_text(kind):
        return 0.0
    if kind.id == lib.Type_STRING_VIEW:
        return float(np.maximum(_view_lengths(array), 0).sum(dtype=np.float64))
    if kind.id == lib.Type_DICTIONARY:
        return viewed_text(array.dictionary)
    if kind.id == lib.Type_MAP:
        return viewed_text(array.keys) + viewed_text(array.items)
    if kind.id in (lib.Type_STRUCT, lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION):
        return sum(viewed_text(array.field(number)) for number in range(kind.num_fields))
    return viewed_text(array.values)


def _has_viewed_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if kind.id == lib.Type_DICTIONARY:
        return _has_viewed_text(kind.value_type)
    if kind.id == lib.Type_STRING_VIEW:
        return True
    return any(_has_viewed_text(kind.field(number).type) for number in range(kind.num_fields))


def shares(kind: pa.DataType) -> bool:
    """Whether arrays of the type, or of one inside it, can name one value at many places."""
    if isinstance(kind, pa.BaseExtensionType):
        return shares(kind.storage_type)
    if kind.id in _SHARING:
        return True
    return any(shares(kind.field(number).type) for number in range(kind.num_fields))


def _sizes(array: Any) -> Sizes:
    """The bytes of each value. As floats, because list views inside list views multiply beyond any integer."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if len(array) > MAX_SLOTS:
        raise InvalidData("an array is longer than anybody can take: send smaller batches")
    kind = array.type.id
    if not len(array):  # pyarrow dies of the offsets of an empty union
        return np.zeros(0)
    if kind in _VIEWS:
        return _SLOT_BYTES + _view_lengths(array).astype(np.float64)
    if kind in _TEXTS:
        return _SLOT_BYTES + _numbers(pc.binary_length(array))
    if kind == lib.Type_DICTIONARY:
        return _taken(_sizes(array.dictionary), array.indices)
    if kind == lib.Type_RUN_END_ENCODED:
        return _runs(array)
    if kind in _LISTS:
        bounds = array.offsets.to_numpy().astype(np.int64)
        values = (
            pa.StructArray.from_arrays([array.keys, array.items], ["k", "v"]) if kind == lib.Type_MAP else None
        )
        sums = _sums(array.values if values is None else values)
        return _between(sums, bounds[:-1], bounds[1:])
    if kind in _LIST_VIEWS:
        starts = array.offsets.to_numpy().astype(np.int64)
        sums = _sums(array.values)
        return _between(sums, starts, starts + array.sizes.to_numpy().astype(np.int64))
    if kind == lib.Type_FIXED_SIZE_LIST:
        wide = array.type.list_size
        sums = _sums(array.values)
        first = (array.offset + np.arange(len(array))) * wide
        return _between(sums, first, first + wide)
    if kind in (lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION):
        return _union(array)
    if kind == lib.Type_STRUCT:
        children = (_sizes(array.field(number)) for number in range(array.type.num_fields))
        return sum(children, np.full(len(array), _SLOT_BYTES))
    each = max(1.0, array.type.bit_width / 8) if array.type.id != lib.Type_NA else 1.0
    return np.full(len(array), each)


def _sums(values: pa.Array) -> Sizes:
    """What all values before each take, and at the end what all take."""
    sums: Sizes = np.concatenate(([0.0], np.cumsum(_sizes(values))))
    return sums


def _between(sums: Sizes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Sizes:
    found: Sizes = _SLOT_BYTES + sums[ends] - sums[starts]
    return found


def _taken(sizes: Sizes, indices: pa.Array) -> Sizes:
    places = _numbers(indices).astype(np.int64)
    found: Sizes = _SLOT_BYTES + (sizes[places] if len(sizes) else np.zeros(len(places)))
    return found


def _runs(array: Any) -> Sizes:
    found: Sizes = _SLOT_BYTES + np.repeat(_sizes(array.values), _run_lengths(array))
    return found


def _run_lengths(array: Any) -> npt.NDArray[np.int64]:
    ends = array.run_ends.to_numpy().astype(np.int64)
    bounds = np.clip(np.concatenate(([0], ends)), array.offset, array.offset + len(array))
    return np.diff(bounds)


def _view_lengths(array: Any) -> npt.NDArray[np.int32]:
    lengths = np.frombuffer(array.buffers()[1], np.int32)[::4]
    return lengths[array.offset : array.offset + len(array)]


def _union(array: Any) -> Sizes:
    codes = array.type_codes.to_numpy()
    found = np.full(len(array), _SLOT_BYTES)
    for number, code in enumerate(array.type.type_codes):
        child = _sizes(array.field(number))
        rows = np.flatnonzero(codes == code)
        if array.type.id == lib.Type_DENSE_UNION:
            found[rows] += child[array.offsets.to_numpy()[rows]]
        else:
            found += child  # all of them were sent, whichever is meant
    return found


def _numbers(array: pa.Array) -> Sizes:
    """The numbers as floats, nothing for a null."""
    filled = array.fill_null(0) if array.null_count else array
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.float64)
