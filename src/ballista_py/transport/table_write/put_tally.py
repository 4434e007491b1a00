"""What both ends of an exchange count in which rows are put."""

from __future__ import annotations

import zlib
from typing import Any

from ballista_py.transport.table_write.messages import pb


class PutTally:
    """Counts batches and their rows."""

    def __init__(self) -> None:
        self.rows = self.crc32 = 0

    def add(self, rows: int) -> None:
        """Count a batch."""
        self.rows += rows
        self.crc32 = zlib.crc32(rows.to_bytes(8, "little"), self.crc32)

    def message(self) -> Any:
        """The `PutEnd`."""
        return pb.PutEnd(rows=self.rows, crc32=self.crc32, complete=True)
