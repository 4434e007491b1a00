"""The exchange in which a task puts rows at an executor: all of them, ended by what both have counted, or none."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from ballista_py.errors import InvalidData, SchemaMismatch, TransportError
from ballista_py.transport.arrow.door import FlightRows
from ballista_py.transport.arrow.feed import RowsIn
from ballista_py.transport.arrow.frames import portions
from ballista_py.transport.arrow.sizes import in_pieces
from ballista_py.transport.flight.calls import CallContext, OpenCall
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.errors import FLIGHT_FAILURES
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.flight.wire import from_json
from ballista_py.transport.table_read.messages import packed
from ballista_py.transport.table_read.tally import NO_COLUMNS
from ballista_py.transport.table_write.messages import known_of_write, pb

WRITE_VERB = "DoExchange table_write"
MESSAGE_BYTES = 1 << 20
MAX_ROW_BYTES = 3 << 20  # with what stands around it, less than executors take of one message


class RowsTaker(Protocol):
    """What takes rows of writes in at an executor."""

    def take(self, ticket: Mapping[str, Any], rows: PutStream, context: CallContext) -> Any:
        """The `Receipt` of rows that lie ready. Raises `Unauthenticated` for a ticket that does not count, and
        `SnapshotGone` for a write that is over."""
        ...


class PutTally:
    """What both ends of an exchange count."""

    def __init__(self) -> None:
        self.rows = self.crc32 = 0

    def add(self, rows: int) -> None:
        """Count a batch."""
        self.rows += rows
        self.crc32 = zlib.crc32(rows.to_bytes(8, "little"), self.crc32)

    def message(self) -> Any:
        """The `PutEnd`."""
        return pb.PutEnd(rows=self.rows, crc32=self.crc32, complete=True)


class PutStream:
    """The rows of a task, as they come: `schema`, then the batches, once. When the iteration ends they are complete."""

    def __init__(self, reader: RowsIn, call: OpenCall) -> None:
        self._rows = FlightRows(reader, answers=False)
        self._call = call

    @property
    def schema(self) -> pa.Schema:
        """The columns. Waits for them."""
        with self._call.receiving():
            return self._rows.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises `TransportError` when the rows break off, `InvalidData` for those that are not valid or not those
        that were counted where they come from."""
        tally, end = PutTally(), None
        while True:
            try:
                with self._call.receiving():
                    chunk = self._rows.read()
            except (StopIteration, *FLIGHT_FAILURES):
                break
            if end is not None:
                raise InvalidData("rows were sent after their end")
            if chunk.rows is None:
                end = known_of_write("PutEnd", chunk.said)
                continue
            tally.add(chunk.rows.num_rows)
            yield from in_pieces(chunk.rows)
        if end is None:
            raise TransportError(f"the rows broke off after {tally.rows}, without their end: none was kept")
        if end != tally.message():
            raise InvalidData(
                f"{tally.rows} rows came, and their sender says that they were {end.rows}: none was kept"
            )


def take_rows(taker: RowsTaker, request: Any, call: OpenCall, reader: RowsIn, writer: Writer) -> None:
    """Answer a `PutRows` to its end."""
    with call.sending():
        writer.begin(NO_COLUMNS)
    receipt = taker.take(from_json(request.ticket), PutStream(reader, call), call.context)
    with call.sending():
        writer.write_metadata(receipt.SerializeToString())


class RowSender:
    """The side of the task. Used by one thread; what is not finished must be cancelled."""

    def __init__(self, pool: FlightPool, uri: str, ticket: bytes, schema: pa.Schema) -> None:
        self.address = uri.partition("://")[2]
        self._pool = pool
        self._tally = PutTally()
        self._writer, reader = pool.open_exchange(self.address, packed(pb.PutRows(ticket=ticket)))
        self._reader = FlightRows(reader, answers=True)
        try:
            self._writer.begin(schema)
        except FLIGHT_FAILURES as error:
            raise self._told(error) from None

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows. Raises what the executor raised, `TransportError` when the link failed, and `SchemaMismatch` for a
        row that is too large."""
        for portion in portions(batch, MESSAGE_BYTES):
            if portion.nbytes > MAX_ROW_BYTES and portion.num_rows == 1:
                raise SchemaMismatch(
                    f"a row takes {portion.nbytes:,} bytes, and {MAX_ROW_BYTES:,} are the most that is written so: "
                    "send it by INSERT, or `ingest`"
                )
            self._tally.add(portion.num_rows)
            try:
                self._writer.write_batch(portion)
            except FLIGHT_FAILURES as error:
                raise self._told(error) from None

    def finish(self) -> Any:
        """The `Receipt`, once these were all rows. Raises as `send`."""
        try:
            self._writer.write_metadata(self._tally.message().SerializeToString())
            self._writer.done_writing()
            said = self._reader.hear()
        except StopIteration:
            raise TransportError(f"node {self.address} ended the exchange early", peer=self.address) from None
        except FLIGHT_FAILURES as error:
            raise self._told(error) from None
        receipt = known_of_write("Receipt", said)
        if receipt.rows != self._tally.rows:
            raise InvalidData(f"node {self.address} says that it has other rows than were sent: send them again")
        self.cancel()
        return receipt

    def cancel(self) -> None:
        """Give up: the executor keeps nothing. Harmless after the end."""
        self._reader.cancel()
        with suppress(*FLIGHT_FAILURES):
            self._writer.close()

    def _told(self, error: Exception) -> Exception:
        """What the executor raised, which it says on the other half of the exchange, or what became of the link."""
        try:
            while True:
                self._reader.hear()
        except StopIteration:
            pass
        except FLIGHT_FAILURES as said:
            error = said
        finally:
            self.cancel()
        return self._pool.failure(error, self.address)
