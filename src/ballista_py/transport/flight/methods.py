"""The methods of Flight's service: which message comes in, what a port is asked with it, and which messages go out.

A port is an object with a function for each method that it answers, named as Python names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ballista_py.errors import InvalidData, TransportError
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.arrow.frames import RowsOut
from ballista_py.transport.flight.listener import ServedCall
from ballista_py.transport.flight.wire import data_frame, read_data
from ballista_py.transport.flight_sql.messages import message, read
from ballista_py.transport.security.callers import TOKEN_HEADER

MAX_COMMAND_BYTES = 64 << 20


class Writer:
    """The way back of a stream of rows: its schema once, then batches, and what is said beside them.

    Every function raises `LinkBroke` when the reader went away.
    """

    def __init__(self, call: ServedCall) -> None:
        self._call = call
        self._rows: RowsOut | None = None

    def begin(self, schema: pa.Schema) -> None:
        """Say the columns of all batches."""
        self._rows = RowsOut(schema)
        self._call.send(self._rows.first)

    def write_batch(self, batch: pa.RecordBatch, said: bytes = b"") -> None:
        """Send a batch, and `said` with it."""
        assert self._rows is not None
        for frame in self._rows.frames(batch, said):
            self._call.send(frame)

    def write_metadata(self, said: bytes) -> None:
        """Send something without rows."""
        self._call.send(data_frame(said=said))


class PutWriter:
    """The way back of a `do_put`."""

    def __init__(self, call: ServedCall) -> None:
        self._call = call

    def write(self, said: bytes) -> None:
        """Send a result."""
        self._call.send(_encoded("PutResult", app_metadata=said))


def _exchange(port: Any, call: ServedCall) -> None:
    descriptor, reader = _begun(port, call)
    port.do_exchange(call, descriptor, reader, Writer(call))


def _put(port: Any, call: ServedCall) -> None:
    descriptor, reader = _begun(port, call)
    port.do_put(call, descriptor, reader, PutWriter(call))


def _get(port: Any, call: ServedCall) -> None:
    port.do_get(call, _only(port, call, "Ticket"), Writer(call))


def _action(port: Any, call: ServedCall) -> None:
    for body in port.do_action(call, _only(port, call, "Action")):
        call.send(_encoded("Result", body=body))


def _info(port: Any, call: ServedCall) -> None:
    call.send(port.get_flight_info(call, _only(port, call, "FlightDescriptor")).SerializeToString())


def _poll(port: Any, call: ServedCall) -> None:
    call.send(port.poll_flight_info(call, _only(port, call, "FlightDescriptor")).SerializeToString())


def _schema(port: Any, call: ServedCall) -> None:
    schema = port.get_schema(call, _only(port, call, "FlightDescriptor"))
    call.send(_encoded("SchemaResult", schema=schema.serialize().to_pybytes()))


def _actions(port: Any, call: ServedCall) -> None:
    for name, about in port.list_actions(call).items():
        call.send(_encoded("ActionType", type=name, description=about))


def _handshake(port: Any, call: ServedCall) -> None:
    """What it says stands in its headers; the messages of older clients are not read, for they come from strangers."""
    call.send_headers({TOKEN_HEADER: f"Bearer {port.do_handshake(call)}"})


def _export(port: Any, call: ServedCall) -> None:
    call.send(port.export(call, _first(call)))


METHODS: Mapping[str, Callable[[Any, ServedCall], None]] = {
    "DoExchange": _exchange,
    "DoPut": _put,
    "DoGet": _get,
    "DoAction": _action,
    "GetFlightInfo": _info,
    "PollFlightInfo": _poll,
    "GetSchema": _schema,
    "ListActions": _actions,
    "Handshake": _handshake,
    "Export": _export,
}


def _begun(port: Any, call: ServedCall) -> tuple[Any, RowsIn]:
    """What the first message of a stream says of it, and a reader of all that it brings.

    Clients of Arrow say the columns in the same message, so its bounds are looked at part by part.
    """
    data = _first(call)
    first = read_data(data)
    _require_short(len(data) - len(first.header), port.most_first_bytes)
    _require_short(len(first.header), port.most_columns_bytes)
    return read("FlightDescriptor", bounded(first.descriptor or b"")), RowsIn(call.received(), first)


def _only(port: Any, call: ServedCall, name: str) -> Any:
    """The one message that a call brings."""
    data = _first(call)
    _require_short(len(data), port.most_first_bytes)
    return read(name, bounded(data))


def _require_short(size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise InvalidData(f"a call begins with {size:,} bytes, and {most:,} are the most here")


def bounded(data: bytes, max_bytes: int = MAX_COMMAND_BYTES) -> bytes:
    """The bytes of something that takes many times as much once it is read. Raises `InvalidData`."""
    if len(data) > max_bytes:
        raise InvalidData(f"a command has more than {max_bytes >> 20} MiB: ingest what it brings into a table")
    return data


def _first(call: ServedCall) -> bytes:
    try:
        return call.receive()
    except StopIteration:
        raise TransportError("the call ended before it said what it wants") from None


def _encoded(name: str, **fields: Any) -> bytes:
    return bytes(message(name, **fields).SerializeToString())
