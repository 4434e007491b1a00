"""Streams of rows to a node: sent batch by batch, acknowledged batch by batch, complete by an end marker.

A stream that ends without its marker (row count and checksum) is no stream: whoever receives it raises, because on
the wire a client that died looks like one that was done. A sender is never more than `WINDOW_BATCHES` ahead of what
the receiver has taken in, so neither side holds more than that. What becomes of the rows is decided by the handler.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any

import pyarrow as pa

from ballista_py.errors import InvalidData, TransportError
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.transport.arrow.door import FlightRows
from ballista_py.transport.arrow.frames import portions
from ballista_py.transport.arrow.messages import MAX_BODY_BYTES
from ballista_py.transport.arrow.sizes import in_pieces
from ballista_py.transport.flight.answer_shapes import known_result
from ballista_py.transport.flight.errors import FLIGHT_FAILURES
from ballista_py.transport.flight.shape_checks import MAX_KEPT_TOKEN_CHARS
from ballista_py.transport.flight.wire import MAX_SAID_BYTES, from_json, to_json

WINDOW_BATCHES = 4
MESSAGE_BYTES = 32 << 20  # nodes take no message that is much larger
WRITES = ("write", "apply", "adopt", "ingest", "execute", "create_table", "rewrite", "settle", "reload")


class Tally:
    """What both ends count: rows, and a checksum over the batches in order and the partitions of their rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._crc = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch."""
        self.rows += batch.num_rows
        self._crc = zlib.crc32(batch.num_rows.to_bytes(8, "little"), self._crc)
        if batch.schema.names[-1:] == [PARTITION_COLUMN]:
            self._crc = zlib.crc32(batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False), self._crc)

    def to_json(self) -> dict[str, int]:
        """The marker's content."""
        return {"rows": self.rows, "checksum": self._crc}


class WriteStream:
    """The sending end. Used by one thread; `abort` may come from any. What is not finished must be aborted."""

    def __init__(
        self,
        client: Any,
        writer: Any,
        reader: Any,
        address: str,
        failed: Callable[[Exception], Exception],
        kind: object = None,
    ) -> None:
        self.address = address
        self._kind = kind
        self._client = client  # kept while its stream is open
        self._writer = writer
        self._reader = FlightRows(reader, answers=True)
        self._failed = failed
        self._tally = Tally()
        self._open_batches = 0
        self._answer: dict[str, Any] | None = None

    def begin(self, schema: pa.Schema) -> None:
        """Say which columns the rows have. Raises what the node raised."""
        self._send(partial(self._writer.begin, schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch; waits while the receiver is too far behind. Raises what the node raised."""
        for portion in portions(batch, MESSAGE_BYTES):
            if portion.nbytes > MAX_BODY_BYTES:
                raise InvalidData(
                    f"one row takes more than {MAX_BODY_BYTES >> 20} MiB, which no node takes: split it"
                )
            self._tally.add(portion)
            self._send(partial(self._writer.write_batch, portion))
            self._open_batches += 1
            while self._open_batches > WINDOW_BATCHES:
                self._receive()

    def finish(self, token: str | None = None) -> dict[str, Any]:
        """Say that these were all; returns what the node made of them. Raises what the node raised.

        A `token` takes the place of the one in the command: that of these very rows.
        """
        end: dict[str, Any] = {"end": self._tally.to_json()}
        if token is not None:
            end["token"] = token
        self._send(lambda: self._writer.write_metadata(to_json(end)))
        self._send(self._writer.done_writing)
        while self._answer is None:
            self._receive()
        with suppress(*FLIGHT_FAILURES):
            self._writer.close()
        return self._answer

    def abort(self) -> None:
        """Give up: the node discards what it has received. Harmless after the end."""
        self._reader.cancel()
        with suppress(*FLIGHT_FAILURES):
            self._writer.close()

    def __del__(self) -> None:
        self.abort()

    def _send(self, send: Callable[[], object]) -> None:
        try:
            send()
        except FLIGHT_FAILURES:
            while True:  # the error that the node raised comes on the other half of the stream
                self._receive()

    def _receive(self) -> None:
        try:
            message = from_json(self._reader.hear(), most_bytes=MAX_SAID_BYTES)
        except StopIteration:
            raise TransportError(f"node {self.address} ended the write early", peer=self.address) from None
        except FLIGHT_FAILURES as error:
            raise self._failed(error) from None
        if "ack" in message:
            self._open_batches -= 1
        if "result" in message:
            self._answer = known_result(self._kind, message["result"], self.address)


class IncomingRows:
    """The receiving end: `schema`, then the batches, once. When the iteration ends, the rows were complete.

    `receiving` is entered around each wait for the sender, so that one that stands still can be told.
    """

    def __init__(
        self,
        reader: Any,
        acknowledge: Callable[[Mapping[str, Any]], None],
        receiving: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._reader = FlightRows(reader, answers=False)
        self.schema: pa.Schema = self._reader.schema
        self._receiving = receiving
        self._acknowledge = acknowledge
        self._tally = Tally()
        self.token: str | None = None  # that of these rows, if the end marker has one

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises `TransportError` when the stream breaks off or does not hold what its marker says.

        Raises `InvalidData` for a batch that is not valid.
        """
        while True:
            try:
                with self._receiving():
                    chunk = self._reader.read()
            except (StopIteration, *FLIGHT_FAILURES):
                break
            if chunk.rows is None:
                self._check(from_json(chunk.said, most_bytes=MAX_SAID_BYTES))
                return
            self._tally.add(chunk.rows)
            yield from in_pieces(chunk.rows)
            self._acknowledge({"ack": self._tally.rows})
        raise TransportError(
            f"the rows broke off after {self._tally.rows}, without their end marker: none was written"
        )

    def drain(self) -> None:
        """Wait for the end of a command that comes without rows. Raises as the iteration does."""
        for _ in self:
            raise TransportError("a command that takes no rows came with some")

    def reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader; an error of the stream comes out of it as it is."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def _check(self, message: Mapping[str, Any]) -> None:
        if message.get("end") != self._tally.to_json():
            raise TransportError("the rows are not those that were sent: none was written")
        token = message.get("token")
        if token is not None and (not isinstance(token, str) or len(token) > MAX_KEPT_TOKEN_CHARS):
            raise TransportError("the end marker of the rows has no token that can be kept: none was written")
        self.token = token
