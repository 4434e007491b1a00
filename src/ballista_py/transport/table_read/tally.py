"""What both ends of an exchange count."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa

from ballista_py.transport.table_read.messages import pb

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
