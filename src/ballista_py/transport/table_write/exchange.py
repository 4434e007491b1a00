"""The exchange in which a task puts rows at an executor: all of them, ended by what both have counted, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from ballista_py.errors import InvalidData, TransportError
from ballista_py.transport.arrow.door import FlightRows, RowsIn
from ballista_py.transport.arrow.sizes import in_pieces
from ballista_py.transport.flight.calls import CallContext, OpenCall
from ballista_py.transport.flight.errors import FLIGHT_FAILURES
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.flight.wire import from_json
from ballista_py.transport.table_read.tally import NO_COLUMNS
from ballista_py.transport.table_write.messages import known_of_write
from ballista_py.transport.table_write.put_tally import PutTally

WRITE_VERB = "DoExchange table_write"


class RowsTaker(Protocol):
    """What takes rows of writes in at an executor."""

    def take(self, ticket: Mapping[str, Any], rows: PutStream, context: CallContext) -> Any:
        """The `Receipt` of rows that lie ready. Raises `Unauthenticated` for a ticket that does not count, and
        `SnapshotGone` for a write that is over."""
        ...


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
            if chunk.said:
                raise InvalidData("rows of a write come with nothing said beside them")
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
