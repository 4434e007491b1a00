"""Rows on their way to a node: complete by their end marker or not there, and never further ahead than the window."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from attrs import define, field

from ballista_py.errors import InvalidData, NotOwner, TransportError, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.flight.writes import WINDOW_BATCHES, Tally

SCHEMA = pa.schema([("n", pa.int64())])
COMMAND = {"kind": "ingest", "table": "t"}


@define
class Table:
    """Takes rows in, and keeps those of a stream once it was complete."""

    verbs = ()

    kept: list[int] = field(factory=list)
    taken: int = 0
    errors: list[Exception] = field(factory=list)
    open: threading.Event = field(factory=threading.Event)  # cleared: no batch is taken in
    refuse_at: int | None = None

    def write(self, command, rows, context):
        found = []
        try:
            for batch in rows:
                while not self.open.wait(0.01) and not context.cancelled():
                    pass
                if self.taken == self.refuse_at:
                    raise NotOwner("executor e1 owns partition 3 no more", partitions=[3])
                self.taken += 1
                found += batch["n"].to_pylist()
        except Exception as error:
            self.errors.append(error)
            raise
        self.kept += found
        return {"affected": len(found)}


@pytest.fixture
def table():
    made = Table()
    made.open.set()
    yield made
    made.open.set()


def batch(first, rows=10):
    return pa.record_batch([range(first, first + rows)], schema=SCHEMA)


def send(stream, batches):
    for number in range(batches):
        stream.write(batch(number * 10))


def test_rows_are_there_once_their_marker_has_come_and_not_before(serve, table, pool, kit):
    stream = pool.open_write(serve(table).address, COMMAND, SCHEMA)
    for number in range(20):
        stream.write(batch(number * 10))
    kit.wait_until(lambda: table.taken == 20)
    assert table.kept == []
    assert stream.finish() == {"affected": 200}
    assert table.kept == list(range(200))


def test_every_batch_is_acknowledged(serve, table):
    client = flight.connect(f"grpc://{serve(table).address}")
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(to_json(COMMAND)))
    writer.begin(SCHEMA)
    for number in range(3):
        writer.write_batch(batch(number * 10))
        assert from_json(reader.read_chunk().app_metadata.to_pybytes()) == {"ack": (number + 1) * 10}
    tally = Tally()
    for number in range(3):
        tally.add(batch(number * 10))
    writer.write_metadata(to_json({"end": tally.to_json()}))
    assert from_json(reader.read_chunk().app_metadata.to_pybytes()) == {"result": {"affected": 30}}
    writer.close()


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (None, "without their end marker"),
        ({"rows": 29}, "not those that were sent"),
        ({"checksum": 7}, "not those that were sent"),
        ({"rows": 0, "checksum": 0}, "not those that were sent"),
    ],
)
def test_a_stream_without_its_marker_or_with_a_wrong_one_is_discarded_and_reported(serve, table, marker, said):
    client = flight.connect(f"grpc://{serve(table).address}")
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(to_json(COMMAND)))
    writer.begin(SCHEMA)
    tally = Tally()
    for number in range(3):
        tally.add(batch(number * 10))
        writer.write_batch(batch(number * 10))
    if marker is not None:
        writer.write_metadata(to_json({"end": {**tally.to_json(), **marker}}))
    writer.done_writing()
    with pytest.raises(flight.FlightError, match=said):
        list(reader)
    assert table.kept == []
    assert isinstance(table.errors[0], TransportError)


CLIENT = """
import sys, time
import pyarrow as pa
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.client import FlightPool
schema = pa.schema([("n", pa.int64())])
stream = FlightPool(SystemRuntime()).open_write(sys.argv[1], {"kind": "ingest", "table": "t"}, schema)
stream.write(pa.record_batch([[1, 2, 3]], schema=schema))
print("sent", flush=True)
time.sleep(60)
"""


def test_what_a_client_sent_before_it_was_killed_is_discarded(serve, table, kit):
    served = serve(table)
    child = subprocess.Popen([sys.executable, "-c", CLIENT, served.address], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"sent\n"
    kit.wait_until(lambda: table.taken == 1)
    child.kill()
    child.wait()
    kit.wait_until(lambda: table.errors)
    assert "without their end marker" in str(table.errors[0])
    assert table.kept == []
    kit.wait_until(lambda: not served.server.open_calls())


def test_a_stream_that_is_given_up_is_discarded(serve, table, pool, kit):
    stream = pool.open_write(serve(table).address, COMMAND, SCHEMA)
    stream.write(batch(0))
    kit.wait_until(lambda: table.taken == 1)
    stream.abort()
    kit.wait_until(lambda: table.errors)
    assert table.kept == []


def test_a_receiver_that_takes_nothing_in_holds_the_sender_back_at_the_window(serve, table, pool, kit):
    """So neither side holds more of a stream than `WINDOW_BATCHES` and the two that are being sent and taken."""
    table.open.clear()
    stream = pool.open_write(serve(table).address, COMMAND, SCHEMA)
    sent = []

    def send():
        for number in range(100):
            stream.write(batch(number * 10))
            sent.append(number)

    sender = threading.Thread(target=send)
    sender.start()
    kit.wait_until(lambda: len(sent) == WINDOW_BATCHES)
    time.sleep(0.5)
    assert len(sent) == WINDOW_BATCHES
    table.open.set()
    sender.join(60)
    assert stream.finish() == {"affected": 1_000}


def test_one_slow_receiver_does_not_hold_back_a_stream_to_another(serve, table, pool):
    table.open.clear()
    slow = pool.open_write(serve(table).address, COMMAND, SCHEMA)
    slow.write(batch(0))
    other = Table()
    other.open.set()
    fast = pool.open_write(serve(other).address, COMMAND, SCHEMA)
    for number in range(50):
        fast.write(batch(number * 10))
    assert fast.finish() == {"affected": 500}
    table.open.set()
    assert slow.finish() == {"affected": 10}


def test_an_error_of_the_receiver_reaches_the_sender_as_it_is_and_stops_it(serve, table, pool):
    table.refuse_at = 3
    stream = pool.open_write(serve(table).address, COMMAND, SCHEMA)
    with pytest.raises(NotOwner) as raised:
        send(stream, 1_000)
    assert raised.value.details == {"partitions": [3]}
    stream.abort()
    assert table.kept == []


def test_a_sender_that_stands_still_is_cut_off_with_a_reason_and_its_rows_are_discarded(serve, table, pool, kit):
    served = serve(table, idle_ms=300)
    stream = pool.open_write(served.address, COMMAND, SCHEMA)
    stream.write(batch(0))
    kit.wait_until(lambda: table.errors)
    assert "nothing of it was sent for 0.3 s" in str(table.errors[0])
    with pytest.raises(TransportError):
        stream.finish()
    stream.abort()
    assert table.kept == []
    kit.wait_until(lambda: not served.server.open_calls())


def test_a_node_that_shuts_down_under_a_write_says_so_and_keeps_nothing(serve, table, pool):
    served = serve(table)
    stream = pool.open_write(served.address, COMMAND, SCHEMA)
    stream.write(batch(0))
    served.stop()
    with pytest.raises((TryLater, TransportError)):
        stream.finish()
    stream.abort()
    assert table.kept == []


def test_a_write_to_nobody_is_one_clear_error():
    with FlightPool(SystemRuntime()) as pool, pytest.raises(TransportError, match="cannot be reached"):
        pool.open_write("127.0.0.1:1", COMMAND, SCHEMA).finish()


def test_a_large_batch_travels_in_pieces_and_a_row_that_no_node_takes_is_refused_here(serve, table, pool):
    served = serve(table)
    wide = pa.record_batch({"n": range(150), "c": ["x" * (1 << 20)] * 150})
    stream = pool.open_write(served.address, COMMAND, wide.schema)
    stream.write(wide)
    stream.finish()
    assert table.kept == list(range(150))
    assert table.taken >= 4
    stream = pool.open_write(served.address, COMMAND, wide.schema)
    with pytest.raises(InvalidData, match="one row takes more than 128 MiB"):
        stream.write(pa.record_batch({"n": [1], "c": ["x" * (129 << 20)]}))
    stream.abort()
