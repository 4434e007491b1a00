"""A port for clients takes large messages for rows alone: all else is short, or is refused before it is read."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py.errors import InvalidData
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.arrow.door import RowsIn
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.methods import _begun
from ballista_py.transport.flight.wire import data_frame, read_data
from ballista_py.transport.flight_sql import legs
from ballista_py.transport.flight_sql.legs import (
    MAX_COLUMNS_BYTES,
    MAX_END_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_TICKET_BYTES,
    PartsService,
)
from ballista_py.transport.security.access import PARTS
from ballista_py.transport.table_read.exchange import PartAnswer
from ballista_py.transport.table_read.messages import packed
from ballista_py.transport.table_read.messages import pb as read_pb
from ballista_py.transport.table_read.tokens.positions import START
from ballista_py.transport.table_write.messages import pb
from ballista_py.transport.table_write.row_sender import RowSender

SCHEMA = pa.schema([("a", pa.binary())])
REFUSED = (flight.FlightError, pa.ArrowException)


class Executor:
    """Takes rows and gives one, and notes what came as far as it."""

    def __init__(self):
        self.rows = 0
        self.schemas = []
        self.asked = 0

    def take(self, ticket, rows, context):
        self.schemas.append(rows.schema)
        self.rows += sum(batch.num_rows for batch in rows)
        return pb.Receipt(write_id="w", rows=self.rows)

    def open_part(self, request, context):
        self.asked += 1
        batch = pa.record_batch({"a": [b"1"]}, schema=SCHEMA)
        return PartAnswer(schema=SCHEMA, batches=iter([(START, batch)]), processed=False)


@pytest.fixture
def executor():
    return Executor()


@pytest.fixture
def address(serve, executor):
    made = partial(PartsService, command_of=lambda *_: {}, reads=executor, takes=executor)
    return serve(access=PARTS, service=made, message_bytes=MAX_MESSAGE_BYTES).address


@pytest.fixture
def exchange(address):
    """Begin an exchange by this command, and hear what comes of it."""
    clients = []

    def begin(command, schema=SCHEMA):
        clients.append(flight.connect(f"grpc://{address}"))
        writer, reader = clients[-1].do_exchange(flight.FlightDescriptor.for_command(command))
        writer.begin(schema)
        return writer, reader

    yield begin
    for client in clients:
        client.close()


def hear_out(reader):
    while True:
        try:
            reader.read_chunk()
        except StopIteration:
            return


def put(ticket=b"{}"):
    return packed(pb.PutRows(ticket=ticket))


def padded(ticket, size):
    return ticket + b" " * (size - len(ticket))


def test_rows_of_megabytes_come(address, executor):
    with FlightPool(SystemRuntime()) as pool:
        sender = RowSender(pool, f"grpc://{address}", b"{}", SCHEMA)
        sender.send(pa.record_batch({"a": [b"x" * ((3 << 20) - 100)]}, schema=SCHEMA))
        assert sender.finish().rows == 1


def test_columns_of_the_widest_table_come(address, executor):
    wide = pa.schema(
        [(f"a column with quite a long name, number {n}", pa.decimal128(18, 2)) for n in range(10_000)]
    )
    with FlightPool(SystemRuntime()) as pool:
        sender = RowSender(pool, f"grpc://{address}", b"{}", wide)
        assert sender.finish().rows == 0
    assert executor.schemas == [wide]
    assert MAX_TICKET_BYTES < wide.serialize().size < MAX_COLUMNS_BYTES


@pytest.mark.parametrize("command_of", [put, lambda ticket: packed(read_pb.Request(ticket=ticket))])
def test_a_long_command_is_refused_before_anything_of_it_is_read(exchange, executor, monkeypatch, command_of):
    read = []
    for name in ("put_of", "request_of"):
        found = getattr(legs, name)
        monkeypatch.setattr(legs, name, lambda command, found=found: read.append(len(command)) or found(command))
    with pytest.raises(REFUSED, match="are the most here"):
        hear_out(exchange(command_of(padded(b"{}", MAX_TICKET_BYTES)))[1])
    assert read == []
    assert (executor.asked, executor.schemas) == (0, [])


def test_a_long_ticket_is_refused_before_anything_of_it_is_read(address, monkeypatch):
    monkeypatch.setattr(legs, "_leg_ticket", lambda ticket: pytest.fail("it was read"))
    with flight.connect(f"grpc://{address}") as client, pytest.raises(REFUSED, match="are the most here"):
        client.do_get(flight.Ticket(b"x" * MAX_TICKET_BYTES)).read_all()


def test_too_many_columns_are_refused(exchange, executor):
    with pytest.raises(REFUSED, match="too long"):
        hear_out(
            exchange(put(), pa.schema([pa.field("a", pa.int8(), metadata={"m": "x" * MAX_COLUMNS_BYTES})]))[1]
        )
    assert executor.schemas == []


def test_who_reads_sends_nothing_long(exchange):
    request = packed(read_pb.Request(ticket=b"{}"))
    writer, reader = exchange(request)
    writer.write_metadata(read_pb.Credit(chunks=1).SerializeToString())
    writer.write_batch(pa.record_batch({"a": [b"x" * MAX_TICKET_BYTES]}, schema=SCHEMA))
    with pytest.raises(REFUSED, match="are the most here"):
        hear_out(reader)


@pytest.mark.parametrize("beside", [b"x", b"x" * (MAX_END_BYTES + 1)])
def test_beside_rows_of_a_write_nothing_is_said(exchange, executor, beside):
    writer, reader = exchange(put())
    writer.write_with_metadata(pa.record_batch({"a": [b"1"]}, schema=SCHEMA), beside)
    with pytest.raises(REFUSED, match="beside"):
        hear_out(reader)
    assert executor.rows == 0


def test_the_end_of_rows_is_short(exchange, executor):
    writer, reader = exchange(put())
    writer.write_metadata(b"\0" * (MAX_END_BYTES + 1))
    with pytest.raises(REFUSED, match="too long"):
        hear_out(reader)
    assert executor.rows == 0


@pytest.mark.parametrize(("command", "columns", "most"), [(9, 8, 8), (2, 9, 8), (0, 5, None)])
def test_of_clients_that_say_all_at_once_each_part_is_measured(command, columns, most):
    first = b"\n" + bytes([command]) + b"\0" * command + data_frame(b"x" * columns)
    port = SimpleNamespace(most_first_bytes=most and most + 4, most_columns_bytes=most)
    call = SimpleNamespace(receive=lambda: first, received=lambda: iter(()))
    if most is None:
        assert isinstance(_begun(port, call)[1], RowsIn)
        return
    with pytest.raises(InvalidData, match="are the most here"):
        _begun(port, call)


@pytest.mark.parametrize("sent", [{"header": b"x" * 9}, {"said": b"x" * 9}])
def test_a_reader_keeps_its_bounds_from_the_first_message_on(sent):
    for reader in (RowsIn(iter([data_frame(**sent)])), RowsIn(iter(()), read_data(data_frame(**sent)))):
        reader.bound(header=8, said=8)
        with pytest.raises(InvalidData, match="too long"):
            _ = reader.schema
