"""XXH64 with seed 42 over whole arrays, folded into buckets: the arithmetic under `bucket`, and nothing else.

The hash, the modulo and the widening run block by block in scratch memory that fits a core's cache, so an array
is read once and its buckets are written once. What the bytes of a value are is decided in `bucket_types`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

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
