"""The exchange in which a task puts rows at an executor, from the side of the task."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from ballista_py.errors import InvalidData, SchemaMismatch, TransportError
from ballista_py.transport.arrow.door import FlightRows
from ballista_py.transport.arrow.frames import portions
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.errors import FLIGHT_FAILURES
from ballista_py.transport.table_read.messages import packed
from ballista_py.transport.table_write.messages import known_of_write, pb
from ballista_py.transport.table_write.put_tally import PutTally

MESSAGE_BYTES = 1 << 20
MAX_ROW_BYTES = 3 << 20  # with what stands around it, less than executors take of one message


class RowSender:
    """Sends rows. Used by one thread; what is not finished must be cancelled."""

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
