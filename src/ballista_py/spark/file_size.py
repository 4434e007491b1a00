"""Keeps data files below a size, so that an owner loads and a reader fetches them in pieces.

Spark bounds files by rows alone. The rows that fit are guessed from the columns' types; a file that came out too
large for all that is divided between its row groups, so a file exceeds the bound by no more than one of those.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MAX_FILE_BYTES = 1 << 30
MAX_ROWS_PER_FILE = 50_000_000

_TEXT_BYTES = 16  # what a string takes in a compressed file, roughly
_ITEMS = 4


def rows_per_file(schema: pa.Schema, max_bytes: int) -> int:
    """About how many rows of `schema` make a file of `max_bytes`.

    >>> rows_per_file(pa.schema([("id", pa.int64()), ("name", pa.string())]), 24_000)
    1000
    """
    return max(1, min(MAX_ROWS_PER_FILE, max_bytes // max(1, sum(_width(column.type) for column in schema))))


def split_large(path: Path, max_bytes: int) -> list[Path]:
    """The file itself, or what it was divided into: the same rows in the same order. It must be nobody else's yet."""
    if path.stat().st_size <= max_bytes:
        return [path]
    with pq.ParquetFile(path) as file:
        runs = _runs(
            [_group_bytes(file.metadata.row_group(g)) for g in range(file.metadata.num_row_groups)], max_bytes
        )
        if len(runs) == 1:
            return [path]
        codec = file.metadata.row_group(0).column(0).compression.lower()
        pieces = []
        for number, groups in enumerate(runs):
            pieces.append(path.with_name(f"{path.stem}-{number:04}.parquet"))
            with pq.ParquetWriter(
                pieces[-1], file.schema_arrow, compression="none" if codec == "uncompressed" else codec
            ) as writer:
                for group in groups:
                    rows = file.read_row_group(group)
                    writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    path.unlink()
    return pieces


def _runs(sizes: list[int], max_bytes: int) -> list[list[int]]:
    """Neighbours that together stay within the bound, at least one each."""
    runs: list[list[int]] = []
    left = 0
    for group, size in enumerate(sizes):
        if not runs or size > left:
            runs.append([])
            left = max_bytes
        runs[-1].append(group)
        left -= size
    return runs


def _group_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(column).total_compressed_size for column in range(group.num_columns))


def _width(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _ITEMS * (_width(kind.key_type) + _width(kind.item_type))
    if pa.types.is_list(kind):
        return _ITEMS * _width(kind.value_type)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES
