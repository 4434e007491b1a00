"""Sections that come in pieces, read as rows while the next pieces are on their way."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define, field

from ballista_py.errors import DocumentUnreadable, InvalidData
from ballista_py.storage.formats.columns import as_schema, columns_to_read
from ballista_py.storage.formats.deletion_vector import Places, numbered
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.formats.parquet_ranges import (
    TAIL_BYTES,
    GroupRanges,
    Range,
    are_within,
    footer_range,
    group_ranges,
)
from ballista_py.transport.table_read.pieces import NO_PLACES, PACKINGS, PARQUET, SectionPiece, pieces_in, unpacked
from ballista_py.transport.table_read.tokens.positions import Position

BATCH_ROWS = 30_720
Chunks = Iterator[tuple[Position, pa.RecordBatch]]


def rows_of_pieces(
    chunks: Iterable[tuple[Position, pa.RecordBatch]],
    schema: pa.Schema,
    begin: Position,
    *,
    may_skip: bool = False,
) -> Chunks:
    """The rows of the sections whose pieces come, from `begin` on, each batch with where it begins. A Server `may_skip`
    row groups.

    Raises `InvalidData` for pieces that make no sections, and what reading them raises.
    """
    section, file = -1, None
    for at, batch in chunks:
        for piece in pieces_in(batch):
            if at.section != section or file is None:
                if file is not None and not file.is_read:
                    raise InvalidData("a node began a section before all pieces of the one before were there")
                section, file = at.section, _begun(piece, schema, may_skip)
            skipped = begin.row if section == begin.section else 0
            for row, rows in file.rows(piece, at.row):
                cut = max(0, skipped - row)
                if cut < rows.num_rows:
                    yield Position(section, row + cut), rows.slice(cut)
    if file is not None and not file.is_read:
        raise InvalidData("a node ended before all pieces of a section were there")


def _begun(piece: SectionPiece, schema: pa.Schema, may_skip: bool) -> _Packed | _Parquet | _Whole:
    if piece.encoding in PACKINGS:
        return _Packed(schema)
    memory = _Memory(piece.section_bytes)
    gone = NO_PLACES if piece.gone is None else piece.gone
    return (
        _Parquet(schema, memory, gone, may_skip)
        if piece.encoding == PARQUET
        else _Whole(piece.encoding, schema, memory, gone)
    )


@define
class _Packed:
    """A section whose pieces are rows."""

    schema: pa.Schema
    is_read: bool = True

    def rows(self, piece: SectionPiece, at: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a piece, the first of which is the row `at`."""
        for batch in unpacked(piece):
            if batch.schema.types != self.schema.types:
                raise InvalidData("a node gave other columns than the read job has")
            yield at, pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            at += batch.num_rows


@define
class _Memory:
    """A file of which pieces come: those that did not take no memory."""

    size: int
    held: list[Range] = field(init=False, factory=list)
    _map: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self._map = mmap.mmap(-1, max(1, self.size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise InvalidData(f"there is no room for a section of {self.size:,} bytes: {error.strerror}") from None

    def put(self, piece: SectionPiece) -> None:
        """Take in the bytes of a piece."""
        if piece.section_bytes != self.size:
            raise InvalidData("a node gave pieces of two sections for one")
        self._map[piece.offset : piece.offset + len(piece.data)] = memoryview(piece.data)
        self.held.append((piece.offset, piece.offset + len(piece.data)))

    def buffer(self) -> pa.Buffer:
        """All of the file, zeros where nothing came."""
        return pa.py_buffer(self._map).slice(0, self.size)

    def bytes(self, start: int, stop: int) -> bytes:
        """Some of it, zeros where nothing came."""
        return bytes(self._map[start:stop])

    def let_go(self, ranges: Iterable[Range]) -> None:
        """Give back the memory of bytes that were read."""
        for start, stop in ranges:
            low, high = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
            if low < high and hasattr(self._map, "madvise"):
                self._map.madvise(mmap.MADV_DONTNEED, low, high - low)


@define
class _Parquet:
    """A Parquet file, whose footer comes first and then one row group after the other."""

    schema: pa.Schema
    memory: _Memory
    gone: Places
    may_skip: bool = False
    is_read: bool = False
    _file: Any = None
    _groups: list[tuple[int, GroupRanges]] = field(init=False, factory=list)
    _starts: list[int] = field(init=False, factory=list)  # of these row groups, and the end of the last one
    _next: int = 0

    def rows(self, piece: SectionPiece, at: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that can be read with this piece and were not before; `at` is where its row group begins."""
        if piece.encoding != PARQUET:
            raise InvalidData("a node gave pieces of two sections for one")
        self.memory.put(piece)
        try:
            if self._file is None and not self._opened(piece):
                return
            if piece.stop == piece.first:
                self.is_read = self._next == len(self._groups)
                return
            if self.may_skip:
                self._next = max(self._next, self._place(piece))
            yield from self._group(piece, at)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise DocumentUnreadable("a data file that a node sent is damaged, or no Parquet file") from error
        self.is_read = self.may_skip or self._next == len(self._groups)

    def _opened(self, piece: SectionPiece) -> bool:
        """Open the file once its footer is there."""
        size = self.memory.size
        if not are_within([(size - TAIL_BYTES, size)], self.memory.held):
            return False
        start, stop = footer_range(size, self.memory.bytes(size - TAIL_BYTES, size))
        if not are_within([(start, stop)], self.memory.held):
            return False
        self._file = pq.ParquetFile(pa.BufferReader(self.memory.buffer()), coerce_int96_timestamp_unit="us")
        groups = group_ranges(self._file.metadata, self.schema.names, size)
        self._groups = [(number, group) for number, group in enumerate(groups) if group.rows]
        rows = np.cumsum([0, *(group.rows for _, group in self._groups)])
        self._starts = rows.tolist()
        self._next = self._place(piece)
        return True

    def _place(self, piece: SectionPiece) -> int:
        """Which row group a piece belongs to, of those that have rows."""
        if piece.first not in self._starts:
            raise InvalidData("a node gave rows of a section that begin amid a row group")
        return self._starts.index(piece.first)

    def _group(self, piece: SectionPiece, at: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._next >= len(self._groups):
            raise InvalidData("a node gave more row groups of a section than it has")
        number, group = self._groups[self._next]
        if piece.stop - piece.first != group.rows or piece.first != self._starts[self._next]:
            raise InvalidData("a node gave other row groups of a section than it has")
        if not are_within(group.ranges, self.memory.held):
            raise InvalidData("a node did not send all pieces of a section")
        self._next += 1
        low, high = np.searchsorted(self.gone, (piece.first, piece.stop))
        columns = columns_to_read(self._file.schema_arrow, self.schema, "")
        batches = (
            made
            for batch in self._file.iter_batches(BATCH_ROWS, row_groups=[number], columns=columns)
            for made in as_schema(batch.select(columns), self.schema, "")
        )
        for _, batch in numbered(batches, self.gone[low:high] - piece.first):
            yield at, batch
            at += batch.num_rows
        self.memory.let_go(group.ranges)


@define
class _Whole:
    """A file that is read once all of it is there."""

    encoding: str
    schema: pa.Schema
    memory: _Memory
    gone: Places
    is_read: bool = False

    def rows(self, piece: SectionPiece, _at: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows with the last piece, else none."""
        if piece.encoding != self.encoding:
            raise InvalidData("a node gave pieces of two sections for one")
        self.memory.put(piece)
        if not are_within([(0, self.memory.size)], self.memory.held):
            return
        at = 0
        batches = file_format(self.encoding).read_batches(self.memory.buffer(), self.schema, "")
        for _, batch in numbered(batches, self.gone):
            yield at, batch
            at += batch.num_rows
        self.is_read = True
