"""Answers: an info that says where the parts of one are fetched; its rows, in messages that every client takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from ballista_py.transport.arrow.frames import portions
from ballista_py.transport.flight.calls import OpenCall
from ballista_py.transport.flight.holdings import paced
from ballista_py.transport.flight.keepalive import filling_pulse
from ballista_py.transport.flight.methods import Writer
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight_sql.ahead import Ahead, KeepAlive
from ballista_py.transport.flight_sql.messages import message
from ballista_py.work import each_working

UNKNOWN = -1


def endpoint(ticket: bytes, locations: Sequence[str] = ()) -> Any:
    """A part of an answer: its ticket, and where to show it; without a place, where the info came from.

    >>> endpoint(b"t").ticket.ticket
    b't'
    """
    where = [message("Location", uri=uri) for uri in locations]
    return message("FlightEndpoint", ticket=message("Ticket", ticket=ticket), location=where)


def flight_info(schema: pa.Schema | None, descriptor: Any, endpoints: list[Any], records: int = UNKNOWN) -> Any:
    """What an answer is made of; `schema` is None while nobody knows its columns.

    >>> flight_info(pa.schema([]), None, []).total_records
    -1
    """
    return message(
        "FlightInfo",
        schema=b"" if schema is None else schema.serialize().to_pybytes(),
        flight_descriptor=descriptor,
        endpoint=endpoints,
        total_records=records,
        total_bytes=UNKNOWN,
    )


def answer(result: StreamResult, call: OpenCall, writer: Writer, keep: KeepAlive | None = None) -> None:
    """Send all rows of the result, and cancel it whatever happens.

    With `keep` a reader for whom there is nothing yet is sent a batch without rows now and then, marked
    `filling_pulse`: proxies and drivers close what is silent, and only the server of a stream can send on it.
    """
    with ExitStack() as over:
        over.callback(result.cancel)
        call.attach(result.cancel)
        made = each_working(call.context.work, paced(result.batches, call.budget, call.context.caller))
        batches = (portion for batch in made for portion in portions(batch, call.message_bytes()))
        ahead = None
        if keep is not None and not any(_holds(_takes_no_pulse, kind) for kind in result.schema.types):
            ahead = Ahead(batches, keep)
            over.callback(ahead.close)
        with call.sending():
            writer.begin(result.schema)
        pulses = 0
        while True:
            there, batch = (True, next(batches, None)) if ahead is None else ahead.take()
            if call.reason is not None:
                raise call.reason
            if there and batch is None:
                return
            with call.sending():
                if batch is None:
                    writer.write_batch(pa.RecordBatch.from_pylist([], schema=result.schema), filling_pulse(pulses))
                else:
                    writer.write_batch(batch)
            pulses = 0 if there else pulses + 1


def _takes_no_pulse(kind: pa.DataType) -> bool:
    """A batch without rows would bring dictionaries of its own, and pyarrow makes none of unions."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_union(kind))


def _holds(is_wanted: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    return is_wanted(kind) or any(_holds(is_wanted, kind.field(i).type) for i in range(kind.num_fields))
