"""The rows of a Flight call as its messages bring them: each message is measured, and only then does Arrow read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import InvalidData
from ballista_py.transport.arrow.messages import CONTINUES, MAX_BODY_BYTES, measure
from ballista_py.transport.flight.frames import FlightData, read_data

MAX_WAITING_BYTES = 2 * MAX_BODY_BYTES
MAX_SAID_BYTES = 1 << 20
_PADDED = 8
# Clients send buffers wherever they come to lie; engines read values where they must lie.
_OPTIONS = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


@frozen
class Brought:
    """What one message brought: rows, or what is said beside them."""

    data: pa.RecordBatch | None
    app_metadata: bytes


class RowsIn:
    """A reader as those of pyarrow, of the encoded messages that `messages` gives. One thread.

    Whatever ends `messages` comes out of it. Raises `InvalidData` and what Arrow raises for messages that are not
    valid.
    """

    def __init__(self, messages: Iterator[bytes], first: FlightData | None = None) -> None:
        self._messages = messages
        self._first = first
        self._feed = _Feed()
        self._reader: Any = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches; waits for it. Raises `StopIteration` where no messages come any more."""
        while self._reader is None:
            data = self._next()
            if len(data.header):
                if self._take(data) != "schema":
                    raise InvalidData("rows were sent before their columns")
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._feed, "r"), options=_OPTIONS)
        return self._reader.schema

    def read_chunk(self) -> Brought:
        """The next message with rows, or with something said. Raises `StopIteration` at the end."""
        _ = self.schema
        while True:
            data = self._next()
            if len(data.said) > MAX_SAID_BYTES:
                raise InvalidData("what is said beside the rows is too long")
            if not len(data.header):
                return Brought(None, data.said)
            kind = self._take(data)
            if kind == "schema":
                raise InvalidData("the columns changed amid the rows")
            if kind == "rows":
                return Brought(self._batch(), data.said)

    def _batch(self) -> pa.RecordBatch:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            raise InvalidData("rows were sent without the dictionaries that they need") from None

    def _next(self) -> FlightData:
        first, self._first = self._first, None
        return read_data(next(self._messages)) if first is None else first

    def _take(self, data: FlightData) -> str:
        found = measure(data.header, data.body, compressed=True)
        self._feed.put(data.header, data.body, found.body_bytes)
        if self._feed.waiting > MAX_WAITING_BYTES:
            raise InvalidData("the dictionaries of a batch take too much: send smaller ones")
        return found.kind


class _Feed:
    """A file for Arrow's reader that gives message after message, never more than was put into it."""

    closed = False

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.waiting = 0

    def put(self, header: memoryview, body: memoryview, body_bytes: int) -> None:
        padding = -len(header) % _PADDED
        self._add(memoryview(CONTINUES))
        self._add(memoryview((len(header) + padding).to_bytes(4, "little")))
        self._add(header if not padding else memoryview(header.tobytes() + bytes(padding)))
        if body_bytes:
            self._add(body[:body_bytes])

    def read(self, size: int) -> memoryview:
        """Arrow asks for the pieces as they were put, so this copies nothing."""
        if not self._pieces:
            return memoryview(b"")
        piece = self._pieces.popleft()
        if len(piece) > size:
            self._pieces.appendleft(piece[size:])
            piece = piece[:size]
        elif len(piece) < size and self._pieces:
            raise InvalidData("a message has not the bytes that it speaks of")
        self.waiting -= len(piece)
        return piece

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._pieces.clear()

    def _add(self, piece: memoryview) -> None:
        self._pieces.append(piece)
        self.waiting += len(piece)
