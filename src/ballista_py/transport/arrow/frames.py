"""Record batches as the messages of a Flight stream: one copy of the values, and dictionaries before their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ballista_py.transport.arrow.door import ANSWER_ROWS
from ballista_py.transport.arrow.messages import Table
from ballista_py.transport.flight.wire import data_frame

_HEADER_TYPE, _BODY_LENGTH, _SCHEMA = 1, 3, 1
MESSAGE_BYTES = 1 << 20
LEAST_MESSAGE_BYTES = 64 << 10
ON_ITS_WAY_BYTES = 64 << 20


class RowsOut:
    """The messages of one stream. `first` is the one that says the schema; it goes before all others."""

    def __init__(self, schema: pa.Schema) -> None:
        said = memoryview(schema.serialize())
        self.first = data_frame(said[8:])
        self._pieces = _Pieces()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._pieces, "w"), schema)

    def frames(self, batch: pa.RecordBatch, said: bytes = b"") -> Iterator[bytes]:
        """The messages of a batch, the last with what is `said` beside it. Raises `ValueError` for other columns."""
        self._writer.write_batch(batch)
        messages = [one for one in _split(self._pieces.take()) if one[0] != _SCHEMA]
        for _, header, body in messages[:-1]:
            yield data_frame(header, body)
        for _, header, body in messages[-1:]:
            yield data_frame(header, body, said)


def portions(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of about `max_bytes` at most; a row that is larger stands alone."""
    count = min(-(-batch.nbytes // max_bytes), batch.num_rows)
    if count <= 1:
        yield batch
        return
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        portion = batch.slice(start, rows)
        if portion.num_rows < batch.num_rows and portion.nbytes > max_bytes:
            yield from portions(portion, max_bytes)  # the large values stand together
        else:
            yield portion


def message_bytes(calls: int) -> int:
    """How large a message of an answer shall be where so many calls are answered.

    What a reader does not take waits three times: as it was written, as it goes out, and in gRPC.

    >>> [message_bytes(calls) >> 10 for calls in (1, 64, 256, 2_000)]
    [1024, 1024, 256, 64]
    """
    return max(LEAST_MESSAGE_BYTES, min(MESSAGE_BYTES, ON_ITS_WAY_BYTES // max(1, calls)))


def answer_portions(batch: pa.RecordBatch, max_bytes: int = MESSAGE_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows in batches of as many as an answer may have together, and of about `max_bytes` at most.

    >>> [part.num_rows for part in answer_portions(pa.record_batch({"a": pa.nulls(ANSWER_ROWS + 1)}))]
    [1048576, 1]
    """
    if batch.num_rows <= ANSWER_ROWS:
        yield from portions(batch, max_bytes)
        return
    for start in range(0, batch.num_rows, ANSWER_ROWS):
        yield from portions(batch.slice(start, ANSWER_ROWS), max_bytes)


class _Pieces:
    """A file for Arrow's writer that keeps what is written, as it is."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Any] = []

    def write(self, piece: Any) -> int:
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> list[Any]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _split(pieces: list[Any]) -> Iterator[tuple[int, bytes, list[Any]]]:
    """The kind, the header and the pieces of the body of each message in a stream."""
    place = 0
    while place < len(pieces):
        length = int.from_bytes(pieces[place + 1], "little")
        place += 2
        header = b""
        while len(header) < length:
            header += pieces[place]
            place += 1
        root = Table.root(memoryview(header))
        left = root.scalar(_BODY_LENGTH, "<q", 0)
        begin = place
        while left > 0:
            left -= len(pieces[place])
            place += 1
        yield root.scalar(_HEADER_TYPE, "<B", 0), header, pieces[begin:place]
