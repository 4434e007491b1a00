"""While a statement thinks its reader is told so, in a way that changes no answer and that only the server can say."""

from __future__ import annotations

import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.testing.faults.tcp_proxy import TcpProxy
from ballista_py.transport.flight.keepalive import PULSE
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight_sql.ahead import Ahead, KeepAlive
from ballista_py.transport.flight_sql.messages import message, pack
from ballista_py.transport.flight_sql.service import AnswerPart, Description
from ballista_py.transport.flight_sql.statement import SqlStatement

WORDS = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
CODED = pa.schema([("d", pa.dictionary(pa.int32(), pa.string()))])


class Thinking:
    """Answers with two batches, and thinks before each and before the end."""

    def __init__(self, think_s=0.35, schema=WORDS, fail=False, batches=2):
        self.think_s, self.schema, self.fail, self.count = think_s, schema, fail, batches
        self.cancelled = threading.Event()
        self.made = 0

    def describe(self, statement):
        return Description(schema=self.schema, parameters=pa.schema([]))

    def returned(self, statement, token):
        return None

    def parts(self, statement):
        return [AnswerPart()]

    def run(self, statement, context):
        self.cancelled = threading.Event()
        return StreamResult(schema=self.schema, batches=self._batches(), cancel=self.cancelled.set)

    def _batches(self):
        for number in range(self.count):
            if self.cancelled.wait(self.think_s):
                return
            if self.fail:
                raise ValueError("secret in /root/key.py")
            self.made += 1
            if self.schema is CODED:
                yield pa.record_batch([pa.array([f"v{number}"]).dictionary_encode()], schema=CODED)
            else:
                yield pa.record_batch([[number], [f"s{number}"], [[number]]], schema=WORDS)
        self.cancelled.wait(self.think_s)


def reader(port):
    handle = SqlStatement(query="select 1").handle()
    return port.raw().do_get(flight.Ticket(pack(message("TicketStatementQuery", statement_handle=handle))))


def test_a_reader_hears_something_while_there_is_nothing_and_gets_every_row_once(serve):
    chunks = list(reader(serve(Thinking(), alive_ms=100)))
    silent = [chunk for chunk in chunks if chunk.app_metadata is not None]
    assert len(silent) >= 6
    assert all(chunk.data.num_rows == 0 and chunk.app_metadata.to_pybytes().strip() == PULSE for chunk in silent)
    spoken = [chunk.data for chunk in chunks if chunk.app_metadata is None]
    assert [batch.to_pylist() for batch in spoken] == [
        [{"n": 0, "s": "s0", "l": [0]}],
        [{"n": 1, "s": "s1", "l": [1]}],
    ]


def test_the_driver_gives_the_rows_and_nothing_of_what_kept_it_awake(serve):
    with (
        flightsql.connect(serve(Thinking(), alive_ms=50).url, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("select 1")
        assert cursor.fetchall() == [(0, "s0", [0]), (1, "s1", [1])]
        cursor.execute("select 1")
        assert cursor.fetch_arrow_table()["n"].to_pylist() == [0, 1]
        cursor.execute("select 1")
        assert cursor.fetch_polars()["s"].to_list() == ["s0", "s1"]


def test_an_answer_with_dictionaries_comes_as_ever(serve):
    table = reader(serve(Thinking(schema=CODED), alive_ms=50)).read_all()
    assert table["d"].to_pylist() == ["v0", "v1"]


def test_an_error_after_much_thinking_is_told_without_its_inside(serve):
    with pytest.raises((flight.FlightError, pa.ArrowException), match=r"internal error \(ValueError\)") as raised:
        reader(serve(Thinking(fail=True), alive_ms=50)).read_all()
    assert "secret" not in str(raised.value)


@pytest.mark.turn(3)
def test_a_reader_that_goes_away_while_nothing_is_there_stops_the_work_and_leaves_no_thread(serve):
    service = Thinking(think_s=60)
    port = serve(service, alive_ms=50)
    before = threading.active_count()
    stream = reader(port)
    stream.read_chunk()
    stream.cancel()
    assert service.cancelled.wait(30)
    until = time.monotonic() + 30
    while threading.active_count() > before or port.server.open_calls():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_no_more_than_two_batches_are_made_before_they_are_asked_for():
    made = []

    def batches():
        for number in range(100):
            made.append(number)
            yield pa.record_batch([[number]], names=["n"])

    ahead = Ahead(batches(), KeepAlive(runtime=SystemRuntime(), spawn=spawn, alive_ms=2_000))
    for number in range(3):
        there, batch = ahead.take()
        assert there
        assert batch["n"].to_pylist() == [number]
        time.sleep(0.05)
        assert len(made) <= number + 3
    ahead.close()
    time.sleep(0.05)
    assert len(made) <= 6


def spawn(run):
    threading.Thread(target=run, daemon=True).start()


def test_the_work_for_a_reader_that_is_gone_without_a_word_is_stopped(serve):
    """Behind a link that passes nothing on nobody sees a client die: the pulses to it are not taken any more."""
    thinking = Thinking(think_s=3_600)
    port = serve(thinking, alive_ms=50, idle_ms=300)
    with TcpProxy(f"127.0.0.1:{port.server.port}", lambda run: threading.Thread(target=run).start()) as proxy:
        client = flight.FlightClient(f"grpc://{proxy.address}")
        handle = SqlStatement(query="select 1").handle()
        stream = client.do_get(flight.Ticket(pack(message("TicketStatementQuery", statement_handle=handle))))
        assert stream.schema == WORDS
        proxy.mood = "stall"
        assert thinking.cancelled.wait(60)
        until = time.monotonic() + 60
        while port.server.open_calls():
            assert time.monotonic() < until
            time.sleep(0.05)
        stream.cancel()
