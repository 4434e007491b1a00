"""Which bytes of a Parquet file are needed to read some of its columns, row group by row group; pure.

Whoever has the footer and these bytes at their places reads the columns as from the whole file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.errors import DocumentUnreadable

TAIL_BYTES = 8  # the length of the footer, and the magic word
Range: TypeAlias = tuple[int, int]
"""From an offset of the file to another one, which is not of it."""


@frozen
class GroupRanges:
    """The bytes of a row group of so many `rows` that are needed, in the order in which they lie."""

    rows: int
    ranges: tuple[Range, ...]


def footer_range(file_bytes: int, tail: bytes) -> Range:
    """Where the footer lies, by the last `TAIL_BYTES` of a file, which are of it. Raises `DocumentUnreadable`.

    >>> footer_range(1_000, (92).to_bytes(4, "little") + b"PAR1")
    (900, 1000)
    """
    start = file_bytes - TAIL_BYTES - int.from_bytes(tail[:4], "little")
    if len(tail) != TAIL_BYTES or tail[4:] != b"PAR1" or start < len(b"PAR1"):
        raise DocumentUnreadable("the footer of a Parquet file is damaged, or it is encrypted, or no Parquet file")
    return start, file_bytes


def group_ranges(metadata: pq.FileMetaData, columns: Collection[str], file_bytes: int) -> tuple[GroupRanges, ...]:
    """The bytes of each row group that hold these top-level columns, and perhaps others whose names begin alike.

    Raises `DocumentUnreadable` for a footer that names bytes which the file does not have.
    """
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    leaves = [n for n, path in enumerate(paths) if path in columns or _is_within(path, columns)]
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [_chunk(group.column(leaf), file_bytes) for leaf in leaves]
        found.append(GroupRanges(group.num_rows, _joined(chunks)))
    return tuple(found)


def are_within(wanted: Iterable[Range], had: Sequence[Range]) -> bool:
    """Whether all bytes of some ranges are in others.

    >>> are_within([(2, 5)], [(3, 9), (0, 3)]), are_within([(2, 5)], [(0, 3), (4, 9)])
    (True, False)
    """
    joined = _joined(had)
    return all(any(low <= start and stop <= high for low, high in joined) for start, stop in wanted)


def _is_within(path: str, columns: Collection[str]) -> bool:
    return "." in path and any(path.startswith(f"{column}.") for column in columns)


def _chunk(column: Any, file_bytes: int) -> Range:
    starts = [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset:
        starts.append(column.dictionary_page_offset)
    start, size = min(starts), column.total_compressed_size
    if start < 0 or size < 0 or start + size > file_bytes:
        raise DocumentUnreadable("the footer of a Parquet file names bytes that the file does not have")
    return start, start + size


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same bytes in as few ranges as there can be, in their order."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)
