"""What both ends of an exchange count."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa

from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tokens.exchange import chained
from ballista_py.transport.table_read.tokens.positions import Position

NO_COLUMNS = pa.schema([])


class ChunkTally:
    """What both ends count."""

    def __init__(self) -> None:
        self.rows = self.chunks = self.crc32 = 0

    def add(self, rows: int) -> None:
        """Count a chunk."""
        self.rows += rows
        self.chunks += 1
        self.crc32 = zlib.crc32(rows.to_bytes(8, "little"), self.crc32)

    def message(self) -> Any:
        """The `Trailer`."""
        return pb.Trailer(rows=self.rows, chunks=self.chunks, crc32=self.crc32, complete=True)


class GrantTally:
    """What both ends count of the rows of a grant: batches, and what goes together up to a place."""

    def __init__(self) -> None:
        self.rows = self.chunks = self.crc32 = 0
        self.of_step = 0  # the checksum of the last step
        self.rows_of_step = 0
        self._open_rows = 0

    def add(self, rows: int) -> None:
        """Count a batch."""
        self.chunks += 1
        self._open_rows += rows

    def ends(self, end: Position) -> None:
        """Count that all up to here was sent."""
        said = (
            self._open_rows.to_bytes(8, "little")
            + end.section.to_bytes(4, "little")
            + end.row.to_bytes(8, "little")
        )
        self.of_step, self.rows_of_step = zlib.crc32(said), self._open_rows
        self.crc32 = chained(self.crc32, self.of_step)
        self.rows += self._open_rows
        self._open_rows = 0

    @property
    def is_open(self) -> bool:
        """Whether batches came that no place stands behind yet."""
        return self._open_rows > 0

    def message(self, end: Position) -> Any:
        """The `Trailer`."""
        at = pb.Position(section=end.section, row=end.row)
        return pb.Trailer(rows=self.rows, chunks=self.chunks, crc32=self.crc32, complete=True, end=at)
