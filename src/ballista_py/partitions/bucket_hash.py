"""Arrow arrays to the numbers and bytes that are hashed for `bucket`: one form per logical type, for ever.

The table of types stands in docs/design/010-bucket.md. Layouts of one type (widths, units, dictionaries, views)
meet in the same form here; what has no form is refused by name.

XXH64 with seed 42 over whole arrays, folded into buckets: the arithmetic under `bucket`, and nothing else.

The hash, the modulo and the widening run block by block in scratch memory that fits a core's cache, so an array
is read once and its buckets are written once. What the bytes of a value are is decided in `bucket_types`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.type_names import type_name

if TYPE_CHECKING:
    import polars as pl


def check_bucket_type(arrow_type: pa.DataType) -> None:
    """Raises `UnsupportedExpression`, naming the type, if values of `arrow_type` have no bucket."""
    if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        arrow_type = arrow_type.value_type
    if not (is_bytes(arrow_type) or _is_number(arrow_type) or pa.types.is_null(arrow_type)):
        raise UnsupportedExpression(
            f"bucket does not take values of type {type_name(arrow_type)}: partition by a column of a scalar type"
        )


def bucket_array(num_buckets: int, values: pa.Array) -> pa.Int32Array:
    """The buckets of one array, of any layout of a type that `check_bucket_type` lets pass."""
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if pa.types.is_dictionary(values.type):
        if len(values.dictionary) > len(values):
            return bucket_array(num_buckets, decoded(values))
        return _taken(bucket_array(num_buckets, values.dictionary), values.indices)
    if pa.types.is_null(values.type) or len(values) == values.null_count:
        return pa.nulls(len(values), pa.int32())
    out = np.empty(len(values), np.int32)
    _bucket_into(num_buckets, values, out)
    return pa.Array.from_buffers(pa.int32(), len(values), [_validity(values), pa.py_buffer(out)])


def _taken(buckets: pa.Int32Array, indices: pa.Array) -> pa.Int32Array:
    if buckets.null_count or not len(buckets):
        return buckets.take(indices)
    picks = _numbers(indices, np.dtype(indices.type.to_pandas_dtype()))
    # What an index under a null is does not matter, as long as it is read safely.
    found = buckets.to_numpy().take(picks, mode="clip" if indices.null_count else "wrap")
    return pa.Array.from_buffers(pa.int32(), len(indices), [_validity(indices), pa.py_buffer(found)])


def decoded(values: pa.DictionaryArray) -> pa.Array:
    """The values of a dictionary array themselves, as plain arrays, because Arrow cannot take from views."""
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    dictionary = values.dictionary.cast(plain.get(values.type.value_type, values.type.value_type))
    return dictionary.take(values.indices)


def _bucket_into(num_buckets: int, values: pa.Array, out: Buckets) -> None:
    kind = values.type
    if is_bytes(kind):
        bucket_bytes(num_buckets, values.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else values, out)
    elif pa.types.is_boolean(kind):
        bucket_ints(num_buckets, _numbers(values.cast(pa.int32()), np.int32), out)
    elif pa.types.is_date32(kind):
        bucket_ints(num_buckets, _numbers(values, np.int32), out)
    elif pa.types.is_date64(kind):
        days = np.floor_divide(_numbers(values, np.int64), 86_400_000)
        bucket_ints(num_buckets, days.astype(np.int32), out)
    elif pa.types.is_decimal(kind):
        _bucket_decimals(num_buckets, values, out)
    elif pa.types.is_timestamp(kind):
        bucket_longs(num_buckets, _microseconds(values), out)
    elif pa.types.is_time(kind):
        nanoseconds = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[kind.unit]
        width = np.dtype(np.int32 if pa.types.is_time32(kind) else np.int64)
        bucket_longs(num_buckets, _numbers(values, width).astype(np.int64) * nanoseconds, out)
    else:
        numbers = _numbers(values, np.dtype(kind.to_pandas_dtype()))
        if pa.types.is_uint64(kind) and (pc.max(values).as_py() or 0) >= 1 << 63:
            raise SchemaMismatch("bucket takes unsigned integers below 2^63 only: a value is 2^63 or more")
        bucket_longs(num_buckets, numbers, out)


def _bucket_decimals(num_buckets: int, values: pa.Array, out: Buckets) -> None:
    width = values.type.bit_width // 8
    if values.type.precision <= 18:
        words = _numbers(values, np.dtype(np.int32 if width == 4 else np.int64), max(1, width // 8))
        bucket_longs(num_buckets, words, out)
    else:
        bucket_bytes(num_buckets, _minimal_big_endian(values, width), out)


def _minimal_big_endian(values: pa.Array, width: int) -> pa.Array:
    """The unscaled values as Java's `BigInteger.toByteArray` writes them: the shortest two's complement."""
    start = values.offset * width
    raw = np.frombuffer(values.buffers()[1], np.uint8)[start : start + len(values) * width]
    big = raw.reshape(-1, width)[:, ::-1]
    sign = np.where(big[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    first = np.argmax(big != sign, axis=1)
    first[(big == sign).all(axis=1)] = width - 1
    # One sign byte more where the first byte that differs would read as the other sign.
    lead = np.take_along_axis(big, first[:, None], axis=1)[:, 0]
    first -= ((lead ^ sign[:, 0]) >= 0x80) & (first > 0)
    keep = np.arange(width) >= first[:, None]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(width - first, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(big[keep]))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def _microseconds(values: pa.Array) -> npt.NDArray[np.int64]:
    raw = _numbers(values, np.int64)
    unit = values.type.unit
    if unit == "us":
        return raw
    if unit == "ns":
        return np.asarray(np.floor_divide(raw, 1_000))
    try:
        scaled = values.cast(pa.timestamp("us", values.type.tz))
    except pa.ArrowInvalid as error:
        raise SchemaMismatch("a timestamp lies outside of what microseconds can hold") from error
    return _numbers(scaled, np.int64)


def _numbers(values: pa.Array, dtype: npt.DTypeLike, stride: int = 1) -> npt.NDArray[Any]:
    """The raw numbers under the array, nulls included, without a copy."""
    raw = np.frombuffer(values.buffers()[1], dtype)
    return raw[values.offset * stride : (values.offset + len(values)) * stride : stride]


def _validity(values: pa.Array) -> pa.Buffer | None:
    if values.null_count == 0:
        return None
    bitmap = values.buffers()[0]
    if values.offset == 0:
        return bitmap
    return values.is_valid().buffers()[1]


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of the type are strings or bytes."""
    of = pa.types
    return bool(
        of.is_string(kind)
        or of.is_large_string(kind)
        or of.is_string_view(kind)
        or of.is_binary(kind)
        or of.is_large_binary(kind)
        or of.is_binary_view(kind)
        or of.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(
        of.is_integer(kind)
        or of.is_float32(kind)
        or of.is_float64(kind)
        or of.is_boolean(kind)
        or of.is_date(kind)
        or of.is_timestamp(kind)
        or of.is_time(kind)
        or of.is_decimal(kind)
    )


SEED = 42
BLOCK_ROWS = 32_768
STRING_BLOCK_ROWS = 65_536

_MASK = (1 << 64) - 1
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5

_P1, _P2, _P3, _P4 = (np.uint64(p) for p in (_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4))
_LONG_START = np.uint64((SEED + _PRIME_5 + 8) & _MASK)
_INT_START = np.uint64((SEED + _PRIME_5 + 4) & _MASK)
_29, _32, _33 = np.uint64(29), np.uint64(32), np.uint64(33)

Words = npt.NDArray[np.uint64]
Buckets = npt.NDArray[np.int32]


def bucket_longs(num_buckets: int, values: npt.NDArray[Any], out: Buckets) -> None:
    """Write the bucket of every value, hashed as 8 bytes, into `out`; integers are widened, floats normalised."""
    words, scratch = _scratch(len(values))
    for start in range(0, len(values), BLOCK_ROWS):
        block = values[start : start + BLOCK_ROWS]
        own, spare = words[: len(block)], scratch[: len(block)]
        if block.dtype.kind == "f":
            _normalise_floats(block, own.view(np.float64))
            np.multiply(own, _P2, out=own)
        elif block.dtype.itemsize == 8:
            np.multiply(block.view(np.uint64), _P2, out=own)
        else:
            np.copyto(own.view(np.int64), block, casting="unsafe")
            np.multiply(own, _P2, out=own)
        _hash_longs(own, spare)
        fold(num_buckets, own, out[start : start + BLOCK_ROWS], spare)


def bucket_ints(num_buckets: int, values: npt.NDArray[np.int32], out: Buckets) -> None:
    """Write the bucket of every value, hashed as 4 bytes, into `out`."""
    words, scratch = _scratch(len(values))
    for start in range(0, len(values), BLOCK_ROWS):
        block = values[start : start + BLOCK_ROWS]
        own, spare = words[: len(block)], scratch[: len(block)]
        np.copyto(own, block.view(np.uint32))
        _hash_ints(own, spare)
        fold(num_buckets, own, out[start : start + BLOCK_ROWS], spare)


def bucket_bytes(num_buckets: int, values: pa.Array, out: Buckets) -> None:
    """Write the bucket of every string or binary value into `out`; what stands for a null is not defined."""
    import polars as pl

    expression = _xxhash64(values.null_count > 0)
    for start in range(0, len(values), STRING_BLOCK_ROWS):
        # The shortest way in and out: for a thousand rows it counts more than the hashing.
        piece = values if len(values) <= STRING_BLOCK_ROWS else values.slice(start, STRING_BLOCK_ROWS)
        words = pl.Series("v", piece).to_frame().select(expression).to_series().to_numpy()
        fold(num_buckets, words, out[start : start + STRING_BLOCK_ROWS])


@cache
def _xxhash64(nullable: bool) -> pl.Expr:
    import polars as pl
    import polars_hash  # noqa: F401  registers the `nchash` expressions

    hashed: pl.Expr = cast("Any", pl.col("v")).nchash.xxhash64(seed=SEED)
    return hashed.fill_null(0) if nullable else hashed


def fold(num_buckets: int, words: Words, out: Buckets, scratch: Words | None = None) -> None:
    """Write each hash, as a signed number, modulo `num_buckets` into `out`; `scratch` is used up, `words` is kept."""
    signed = words.view(np.int64)
    if num_buckets & (num_buckets - 1) == 0:
        np.bitwise_and(signed, num_buckets - 1, out=out, casting="unsafe")
        return
    whole = np.empty_like(signed) if scratch is None else scratch.view(np.int64)
    np.floor_divide(signed, num_buckets, out=whole)
    np.multiply(whole, num_buckets, out=whole)
    np.subtract(signed, whole, out=out, casting="unsafe")


def _scratch(rows: int) -> tuple[Words, Words]:
    size = min(rows, BLOCK_ROWS)
    return np.empty(size, np.uint64), np.empty(size, np.uint64)


def _normalise_floats(block: npt.NDArray[Any], out: npt.NDArray[np.float64]) -> None:
    with np.errstate(invalid="ignore"):
        np.add(block, 0.0, out=out)
    np.copyto(out, np.nan, where=np.isnan(out))


def _hash_longs(words: Words, scratch: Words) -> None:
    """Hash values that were multiplied by the second prime already."""
    _rotate(words, 31, scratch)
    np.multiply(words, _P1, out=words)
    np.bitwise_xor(words, _LONG_START, out=words)
    _rotate(words, 27, scratch)
    np.multiply(words, _P1, out=words)
    np.add(words, _P4, out=words)
    _avalanche(words, scratch)


def _hash_ints(words: Words, scratch: Words) -> None:
    np.multiply(words, _P1, out=words)
    np.bitwise_xor(words, _INT_START, out=words)
    _rotate(words, 23, scratch)
    np.multiply(words, _P2, out=words)
    np.add(words, _P3, out=words)
    _avalanche(words, scratch)


def _avalanche(words: Words, scratch: Words) -> None:
    for shift, prime in ((_33, _P2), (_29, _P3)):
        np.right_shift(words, shift, out=scratch)
        np.bitwise_xor(words, scratch, out=words)
        np.multiply(words, prime, out=words)
    np.right_shift(words, _32, out=scratch)
    np.bitwise_xor(words, scratch, out=words)


def _rotate(words: Words, left: int, scratch: Words) -> None:
    np.right_shift(words, np.uint64(64 - left), out=scratch)
    np.left_shift(words, np.uint64(left), out=words)
    np.bitwise_or(words, scratch, out=words)
