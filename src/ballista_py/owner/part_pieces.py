"""Data files on their way to a Client as they lie on disk: their bytes in pieces, and nothing is decoded here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ballista_py.errors import DocumentUnreadable, SchemaMismatch
from ballista_py.sql.prune.file_bounds import Condition, columns_of, may_pass
from ballista_py.storage.formats.columns import columns_to_read
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.parquet_ranges import TAIL_BYTES, GroupRanges, footer_range, group_ranges
from ballista_py.storage.formats.statistics import group_bounds
from ballista_py.storage.held.cache import LocalCopy
from ballista_py.transport.table_read.pieces import (
    ARROW,
    MAX_GONE,
    PARQUET,
    VORTEX,
    SectionPiece,
    packed_piece,
    packing_of,
)

PIECE_BYTES = 1 << 20
Located = Iterator[tuple[int, SectionPiece]]
"""Pieces, each with the number of the row at which what it belongs to begins, of those that are left."""


def file_pieces(
    copy: LocalCopy, base: pa.Schema, begin: int, encodings: Sequence[str], condition: Condition = ()
) -> Located | None:
    """The bytes of a file that are needed to read the columns `base` of its rows from the row `begin` on (of those that
    are left), or from a few before. Row groups whose statistics say that no row passes the `condition` are left out.

    None where the Client does not take the file's format, or would have to know more than that: the file lacks a
    column, or has one by another name or type. Raises `DocumentUnreadable` for a damaged file.
    """
    if copy.format not in encodings or len(copy.gone) > MAX_GONE:
        return None
    if copy.format == PARQUET:
        return _of_parquet(copy, base, begin, condition)
    return _whole(copy, base) if copy.format == VORTEX else None


def packed_pieces(batches: Iterable[tuple[int, pa.RecordBatch]], encodings: Sequence[str]) -> Located:
    """Rows, each batch with its first row, as Arrow: in the packing that the Client likes best, else in none."""
    packing = packing_of(encodings) or ARROW
    for at, batch in batches:
        yield at, packed_piece(batch, packing)


def _of_parquet(copy: LocalCopy, base: pa.Schema, begin: int, condition: Condition) -> Located | None:
    try:
        with pq.ParquetFile(copy.path, memory_map=True) as file:
            metadata, held = file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DocumentUnreadable("a data file is missing, damaged or no Parquet file") from error
    if not _is_plain(held, base) or _has_int96(metadata):
        return None
    with open(copy.path, "rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(size - TAIL_BYTES)
        footer = footer_range(size, opened.read(TAIL_BYTES))
    groups = group_ranges(metadata, base.names, size)
    tested = pa.schema([field for field in base if field.name in columns_of(condition)])
    kept = [
        not condition or may_pass(condition, group.rows, group_bounds(metadata, number, tested))
        for number, group in enumerate(groups)
    ]
    return _parquet(copy, size, footer, groups, kept, begin)


def _parquet(
    copy: LocalCopy,
    size: int,
    footer: tuple[int, int],
    groups: Sequence[GroupRanges],
    kept: Sequence[bool],
    begin: int,
) -> Located:
    stops = np.cumsum([group.rows for group in groups], dtype=np.int64)
    left = stops - np.searchsorted(copy.gone, stops)  # rows before the end of each group that are left
    start = int(np.searchsorted(left, begin, side="right"))
    sent = [number for number in range(start, len(groups)) if kept[number]]
    if not sent and not all(kept):
        return
    start = sent[0] if sent else start
    first = int(stops[start - 1]) if start else 0
    at = int(left[start - 1]) if start else 0
    with open(copy.path, "rb") as file:
        for number, (offset, data) in enumerate(_cut(file, [footer])):
            gone = copy.gone if not number else None
            yield at, _parquet_piece(offset, data, first, first, size, gone)
        for number in sent:
            first, at = (int(stops[number - 1]), int(left[number - 1])) if number else (0, 0)
            stop, ranges = int(stops[number]), groups[number].ranges
            if stop == first:
                continue
            held = None
            for offset, data in _cut(file, ranges):
                if held is not None:
                    yield at, _parquet_piece(*held, first, first, size)
                held = offset, data
            yield at, _parquet_piece(*(held or (0, b"")), first, stop, size)


def _parquet_piece(
    offset: int, data: bytes, first: int, stop: int, size: int, gone: Places | None = None
) -> SectionPiece:
    return SectionPiece(
        encoding=PARQUET, data=data, offset=offset, first=first, stop=stop, section_bytes=size, gone=gone
    )


def _cut(file: Any, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    for start, stop in ranges:
        for offset in range(start, stop, PIECE_BYTES):
            file.seek(offset)
            data = file.read(min(PIECE_BYTES, stop - offset))
            if len(data) != min(PIECE_BYTES, stop - offset):
                raise DocumentUnreadable("a data file became shorter while it was read")
            yield offset, data


def _whole(copy: LocalCopy, base: pa.Schema) -> Located | None:
    import vortex as vx

    try:
        file = vx.open(copy.path)
        rows, held = len(file), file.dtype.to_arrow_schema()
    except (RuntimeError, ValueError, OSError) as error:
        raise DocumentUnreadable("a data file is missing, damaged or no Vortex file") from error
    return _vortex(copy, rows) if _has_names(held, base) else None


def _vortex(copy: LocalCopy, rows: int) -> Located:
    with open(copy.path, "rb") as file:
        size = file.seek(0, 2)
        for offset, data in _cut(file, [(0, size)]):
            stop = rows if offset + len(data) == size else 0
            gone = copy.gone if not offset else None
            yield (
                0,
                SectionPiece(encoding=VORTEX, data=data, offset=offset, stop=stop, section_bytes=size, gone=gone),
            )


def _is_plain(held: pa.Schema, base: pa.Schema) -> bool:
    """Whether a file has just these columns, of their own types, perhaps beside others."""
    return _has_names(held, base) and all(held.field(field.name).type == field.type for field in base)


def _has_names(held: pa.Schema, base: pa.Schema) -> bool:
    """Whether a file has these columns under their own names; that is all that the types of Vortex tell."""
    try:
        return bool(columns_to_read(held, base, "") == base.names)
    except SchemaMismatch:
        return False


def _has_int96(metadata: pq.FileMetaData) -> bool:
    """Whether there are timestamps that readers take for others."""
    return any(metadata.schema.column(n).physical_type == "INT96" for n in range(metadata.num_columns))
