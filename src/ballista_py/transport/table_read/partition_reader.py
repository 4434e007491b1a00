"""One exchange with a Server, from the side of the Client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ballista_py.errors import InvalidData, TransportError
from ballista_py.transport.arrow.door import FlightRows
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.errors import FLIGHT_FAILURES
from ballista_py.transport.table_read.messages import known, packed, pb
from ballista_py.transport.table_read.tally import NO_COLUMNS, ChunkTally
from ballista_py.transport.table_read.tokens.positions import Position

WINDOW_CHUNKS = 2


class PartExchange:
    """What a Server says to a request, and the rows if it accepts. Used by one thread; `cancel` may come from any."""

    def __init__(self, pool: FlightPool, uri: str, request: Any) -> None:
        self.address = uri.partition("://")[2]
        self._pool = pool
        self._writer, reader = pool.open_exchange(self.address, packed(request))
        self._reader = FlightRows(reader, answers=True)
        try:
            with suppress(*FLIGHT_FAILURES):  # what went wrong is said on the other half
                self._writer.begin(NO_COLUMNS)
            self.reply = self._replied()
        except FLIGHT_FAILURES as error:
            self.cancel()
            raise self._failed(error) from None
        except BaseException:
            self.cancel()
            raise

    def _replied(self) -> Any:
        self.schema = self._reader.schema
        try:
            return known("Reply", self._reader.read().said)
        except StopIteration:
            raise self._broken() from None

    def chunks(self) -> Iterator[tuple[Position, pa.RecordBatch]]:
        """The rows, each chunk with where it begins. When the iteration ends without an error they were complete.

        Raises what the Server raised, and `TransportError` when the link failed or rows are missing.
        """
        tally, trailer = ChunkTally(), None
        try:
            self._ask(WINDOW_CHUNKS)
            while True:
                try:
                    chunk = self._reader.read()
                except StopIteration:
                    break
                if chunk.rows is None:
                    trailer = known("Trailer", chunk.said)
                    self._writer.done_writing()
                    continue
                at = known("Chunk", chunk.said).at
                tally.add(chunk.rows.num_rows)
                yield Position(at.section, at.row), chunk.rows
                self._ask(1)
        except FLIGHT_FAILURES as error:
            raise self._failed(error) from None
        finally:
            self.cancel()
        if trailer is None:
            raise self._broken()
        if trailer != tally.message():
            raise InvalidData(f"the rows from node {self.address} are not those that it says it sent: read again")

    def messages(self) -> Iterator[tuple[bytes, pa.RecordBatch | None]]:
        """What comes, as it comes, until the Server has ended: what is said beside rows, or beside none.

        Nothing of it is looked at here, and what comes without rows counts as the last. Raises as `chunks`.
        """
        try:
            while True:
                try:
                    chunk = self._reader.read()
                except StopIteration:
                    return
                if chunk.rows is None:
                    self._writer.done_writing()
                yield chunk.said, chunk.rows
        except FLIGHT_FAILURES as error:
            raise self._failed(error) from None
        finally:
            self.cancel()

    def say(self, credit: Any) -> None:
        """Send a `Credit`; one thread at a time, which need not be the one that reads."""
        with suppress(*FLIGHT_FAILURES):  # what went wrong is said on the other half
            self._writer.write_metadata(credit.SerializeToString())

    def cancel(self) -> None:
        """Give up the rest. Harmless after the end."""
        self._reader.cancel()
        with suppress(*FLIGHT_FAILURES):
            self._writer.close()

    def _ask(self, chunks: int) -> None:
        with suppress(*FLIGHT_FAILURES):  # what went wrong is said on the other half
            self._writer.write_metadata(pb.Credit(chunks=chunks).SerializeToString())

    def _broken(self) -> TransportError:
        return TransportError(f"the rows from node {self.address} broke off", peer=self.address)

    def _failed(self, error: Exception) -> Exception:
        return self._pool.failure(error, self.address)
