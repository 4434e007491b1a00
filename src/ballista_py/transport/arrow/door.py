"""The one door for Arrow data that another process sent: nothing behind it meets a byte that was not checked.

Arrow's own reader trusts the lengths, offsets and numbers inside a message; whoever uses such rows unchecked reads
memory that was never sent, or dies. Here every schema and every batch is checked whole before anybody sees it, and
what is not valid, not understood or larger than a bound is refused with `InvalidData`. Valid rows are handed on as
they came, without a copy. Flight readers and IPC streams are read in this module and nowhere else.

The rows of a Flight call as its messages bring them: each message is measured, and only then does Arrow read it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from attrs import frozen

from ballista_py.errors import InvalidData
from ballista_py.transport.arrow.messages import (
    CONTINUES,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    bytes_when_read,
    check_schema_bytes,
    measure,
)
from ballista_py.transport.arrow.sizes import viewed_text, written_out
from ballista_py.transport.arrow.types import check_schema, with_whole_unions
from ballista_py.transport.flight.wire import FlightData, read_data

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
        self._most_header, self._most_said = MAX_HEADER_BYTES, MAX_SAID_BYTES

    def bound(self, *, header: int, said: int) -> None:
        """Take no message whose description has more bytes than `header`, or beside which more than `said` is said."""
        self._most_header, self._most_said = header, said

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
        data = read_data(next(self._messages)) if first is None else first
        if len(data.said) > self._most_said:
            raise InvalidData("what is said beside the rows is too long")
        if len(data.header) > self._most_header:
            raise InvalidData("what describes rows is too long")
        return data

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


MAX_BATCH_BYTES = 2 << 30
ROW_BYTES = 16
ANSWER_ROWS = (
    1 << 20
)  # of one batch: nodes of ours send no more, and rows are told of, merged and dropped by batches
_MAX_REASON = 200
_BAD_TEXT = re.compile(r"In column (\d+): Invalid: Invalid UTF8 sequence at string index (\d+)")
# What pyarrow raises for messages that it cannot read. Of OSError because flatbuffers that are none give IOError.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)


@frozen
class Chunk:
    """One message of a Flight stream: `rows`, or None when it brings only what was `said` beside them."""

    rows: pa.RecordBatch | None
    said: bytes


class FlightRows:
    """What a peer sends in one Flight call, checked. `reader` is what pyarrow gives for it, on either side.

    Failures of the link come out as pyarrow raises them, and so does, of a node that `answers`, any `ArrowException`:
    it may be what that node said. What the peer sent and should not have raises `InvalidData`.
    """

    def __init__(self, reader: Any, *, answers: bool, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._reader = reader
        self._passed_on = (flight.FlightError, pa.ArrowException, OSError) if answers else (flight.FlightError,)
        self._max_batch_bytes = max_batch_bytes
        self._max_rows = ANSWER_ROWS if answers else MAX_BATCH_BYTES
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches. Waits for the peer to send it."""
        if self._schema is None:
            try:
                with _reading(self._passed_on):
                    found = self._reader.schema
            except StopIteration:
                raise InvalidData("what was sent ended before it said which columns it has") from None
            self._schema = check_schema(found)
        return self._schema

    def read(self) -> Chunk:
        """The next message. Raises `StopIteration` at the end of the stream."""
        _ = self.schema
        with _reading(self._passed_on):
            chunk = self._reader.read_chunk()
            rows, said = chunk.data, chunk.app_metadata
        if rows is not None and rows.num_rows > self._max_rows:
            raise InvalidData(f"a batch of an answer has {rows.num_rows:,} rows, more than {self._max_rows:,}")
        return Chunk(
            rows if rows is None else check_batch(rows, self._max_batch_bytes),
            b"" if said is None else bytes(said),
        )

    def hear(self) -> bytes:
        """The next message of a peer that answers without rows. Raises `StopIteration` at the end."""
        with _reading(self._passed_on):
            said = self._reader.read_chunk().app_metadata
        return b"" if said is None else bytes(said)

    def cancel(self) -> None:
        """Give up the rest of a call that this process made."""
        self._reader.cancel()


def check_batch(batch: pa.RecordBatch, max_bytes: int = MAX_BATCH_BYTES) -> pa.RecordBatch:
    """The batch, if every offset, length, index, bitmap and text in it is valid; its schema was checked before.

    Raises `InvalidData`, also for one that takes more than `max_bytes` once it is written out (`batch_bytes`).

    >>> check_batch(pa.record_batch({"a": [1, 2]})).num_rows
    2
    """
    with _reading():
        if batch.num_rows * ROW_BYTES > max_bytes:
            raise _too_large(max_bytes)
        batch.validate()  # of the lengths of buffers only, so that the next line may read them
        if sum(viewed_text(column) for column in batch.columns) > max_bytes:
            raise _too_large(max_bytes)
        _validate(batch)
        batch = with_whole_unions(batch)
        if batch_bytes(batch) > max_bytes:
            raise _too_large(max_bytes)
    return batch


def _validate(batch: pa.RecordBatch) -> None:
    """Check all values. Raises `InvalidData` for a text that is not UTF-8, and what pyarrow raises for the rest."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        bad = _BAD_TEXT.fullmatch(str(error).strip())
        if bad is None:
            raise
        name = batch.schema.field(int(bad[1])).name
        raise InvalidData(
            f"row {bad[2]} has text that is not UTF-8 in column '{name}' of what was sent: none of it was used"
        ) from None


def batch_bytes(batch: pa.RecordBatch) -> int:
    """How large the valid batch is to whoever writes its values out: a value that is shared counts at each place.

    A row counts `ROW_BYTES` at least, so that columns without bytes have a size.
    """
    rows: int = batch.num_rows
    return max(rows * ROW_BYTES, int(sum(written_out(column) for column in batch.columns)))


def read_rows(data: bytes, max_bytes: int = MAX_BATCH_BYTES, *, compressed: bool = False) -> pa.Table:
    """The rows of an IPC stream that came inside another message, checked, at most `max_bytes` of them.

    `compressed` says whether its bodies may be; what they unpack to is bounded before they are.
    Raises `InvalidData`.
    """
    with _reading():
        if bytes_when_read(data, compressed=compressed) > max_bytes:
            raise _too_large(max_bytes)
        with pa.ipc.open_stream(data) as stream:
            schema = check_schema(stream.schema)
            batches, left = [], max_bytes
            for batch in stream:
                batches.append(check_batch(batch, left))
                left -= batch_bytes(batches[-1])
            return pa.Table.from_batches(batches, schema=schema)


def read_schema(data: bytes) -> pa.Schema:
    """The schema in an IPC message that came inside another one. Raises `InvalidData`.

    >>> read_schema(pa.schema([("a", pa.int64())]).serialize().to_pybytes()).names
    ['a']
    """
    check_schema_bytes(data)
    with _reading():
        found = pa.ipc.read_schema(pa.py_buffer(data))
    return check_schema(found)


@contextmanager
def _reading(passed_on: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(error, (InvalidData, *passed_on)) or not isinstance(error, _UNREADABLE):
            raise
        raise _refused(error) from None


def _refused(error: Exception) -> InvalidData:
    reason = (str(error).splitlines() or [""])[0][:_MAX_REASON] or type(error).__name__
    return InvalidData(f"what was sent is not valid Arrow data ({reason}): none of it was used")


def _too_large(max_bytes: int) -> InvalidData:
    return InvalidData(
        f"a batch takes more than {max_bytes >> 20} MiB once its values are written out: send smaller batches"
    )
