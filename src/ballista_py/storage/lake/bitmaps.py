"""Deletion vectors of Iceberg v3 and of Delta: positions in a file, as 64-bit roaring bitmaps; pure.

Both formats have the same bytes within: a magic number, how many bitmaps there are, and for each the upper 32 bits of
its positions and a 32-bit roaring bitmap in its portable form. They come from whoever can write the table, so nothing
is taken on trust: all lengths are held against the bytes that are there, and a bitmap of runs is no longer than the
file has rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ballista_py.errors import DocumentUnreadable

Positions: TypeAlias = npt.NDArray[np.int64]
MAX_VECTOR_BYTES = 256 << 20
_MAGIC, _NATIVE_MAGIC = 1681511377, 1681511376
_NO_RUNS, _WITH_RUNS = 12346, 12347
_ARRAY_MOST = 4096  # values of a container that lists them; one with more has a bit for each
_BITS_BYTES = 8192
_OFFSETS_FROM = 4  # containers, from which on a bitmap with runs has offsets, too


def puffin_positions(blob: bytes, rows: int) -> Positions:
    """The positions of a `deletion-vector-v1` blob, ascending. Raises `DocumentUnreadable`."""
    return _positions(_framed(blob), rows)


def delta_positions(data: bytes, rows: int, *, inline: bool) -> Positions:
    """The positions of a vector of Delta: `inline` its bytes alone, else with its length before and its CRC after."""
    return _positions(data if inline else _framed(data), rows)


def _framed(data: bytes) -> bytes:
    """What stands between a length (4 bytes, big-endian) and the CRC-32 of it."""
    length = int.from_bytes(data[:4], "big")
    body = data[4 : 4 + length]
    if len(data) != length + 8 or zlib.crc32(body) != int.from_bytes(data[4 + length :], "big"):
        raise DocumentUnreadable("a deletion vector is cut, or its checksum is another one")
    return body


def _positions(data: bytes, rows: int) -> Positions:
    magic = int.from_bytes(data[:4], "little")
    if magic == _NATIVE_MAGIC:
        raise DocumentUnreadable("a deletion vector has the older form 'native', which is not read here")
    if magic != _MAGIC or len(data) < 12:
        raise DocumentUnreadable("a deletion vector does not begin as one does")
    count, at, last, found = int.from_bytes(data[4:12], "little"), 12, -1, []
    for _ in range(min(count, len(data))):
        key = int.from_bytes(_cut(data, at, 4), "little")
        if key <= last or key >> 31:
            raise DocumentUnreadable("a deletion vector does not ascend")
        last, high = key, np.int64(key) << 32
        at += 4
        for low in _bitmap(data, at, rows - int(high)):
            if isinstance(low, int):
                at = low
            else:
                found.append(low + high)
    if at != len(data) or count > len(data):
        raise DocumentUnreadable("a deletion vector has more or fewer bytes than its bitmaps")
    positions = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(positions) and (not np.all(positions[1:] > positions[:-1]) or int(positions[-1]) >= rows):
        raise DocumentUnreadable(f"a deletion vector names rows that its file of {rows:,} rows does not have")
    return positions


def _bitmap(data: bytes, at: int, rows: int) -> Iterator[Positions | int]:
    """The values of a bitmap, container by container; last of all where it ends in `data`."""
    cookie = int.from_bytes(_cut(data, at, 4), "little")
    runs: npt.NDArray[np.bool_] | None = None
    if cookie & 0xFFFF == _WITH_RUNS:
        size, at = (cookie >> 16) + 1, at + 4
        flags = np.frombuffer(_cut(data, at, (size + 7) // 8), np.uint8)
        runs, at = np.unpackbits(flags, bitorder="little").astype(np.bool_), at + (size + 7) // 8
    elif cookie == _NO_RUNS:
        size, at = int.from_bytes(_cut(data, at + 4, 4), "little"), at + 8
    else:
        raise DocumentUnreadable("a bitmap of a deletion vector does not begin as one does")
    if size > 1 << 16:
        raise DocumentUnreadable("a bitmap of a deletion vector has too many containers")
    heads = np.frombuffer(_cut(data, at, 4 * size), "<u2").reshape(-1, 2).astype(np.int64)
    if np.any(np.diff(heads[:, 0]) <= 0):
        raise DocumentUnreadable("a bitmap of a deletion vector does not ascend")
    at += 4 * size
    if runs is None or size >= _OFFSETS_FROM:
        at += len(_cut(data, at, 4 * size))  # where each begins, which follows from what they are
    for number, (key, less) in enumerate(heads.tolist()):
        if key << 16 >= rows:
            raise DocumentUnreadable("a deletion vector names rows that its file does not have")
        values, at = _container(data, at, less + 1, runs is not None and bool(runs[number]))
        if len(values) != less + 1:
            raise DocumentUnreadable(
                "a container of a deletion vector has another number of positions than it says"
            )
        yield values + (key << 16)
    yield at


def _container(data: bytes, at: int, count: int, is_runs: bool) -> tuple[Positions, int]:
    if is_runs:
        number = int.from_bytes(_cut(data, at, 2), "little")
        pairs = np.frombuffer(_cut(data, at + 2, 4 * number), "<u2").reshape(-1, 2).astype(np.int64)
        starts, lengths = pairs[:, 0], pairs[:, 1] + 1
        if int(lengths.sum()) != count or (number and int((starts + lengths).max()) > 1 << 16):
            raise DocumentUnreadable("a run of a deletion vector is longer than its container")
        before = np.concatenate(([0], np.cumsum(lengths)[:-1])) if number else lengths
        return np.repeat(starts - before, lengths) + np.arange(count), at + 2 + 4 * number
    if count <= _ARRAY_MOST:
        return np.frombuffer(_cut(data, at, 2 * count), "<u2").astype(np.int64), at + 2 * count
    bits = np.unpackbits(np.frombuffer(_cut(data, at, _BITS_BYTES), np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), at + _BITS_BYTES


def _cut(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) != size:
        raise DocumentUnreadable("a deletion vector is cut")
    return found
