"""A node that is stopped is noticed; one that only takes long is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from ballista_py.errors import SchedulerLost, TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.faults.tcp_proxy import TcpProxy
from ballista_py.transport.client.client import Client
from ballista_py.transport.flight.client import FlightPool

SILENCE_MS = 2_500
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
import conftest
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.server import FlightServer
server = FlightServer(
    "127.0.0.1:0", conftest.Numbers(), SystemRuntime(), spawn=conftest.spawn, alive_ms=int(sys.argv[2]),
    access=conftest.Access("test", conftest.EveryVerb())
)
served = conftest.Served(server, None)
conftest.spawn(served.tick_for_ever)
print(served.server.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def alive_ms():
    return 300


@pytest.fixture
def node(alive_ms):
    """A data port in a process of its own."""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(alive_ms)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.address = f"127.0.0.1:{int(child.stdout.readline())}"
    yield child
    child.send_signal(signal.SIGCONT)
    child.kill()
    child.wait()


@pytest.fixture
def impatient():
    with FlightPool(SystemRuntime(), silence_ms=SILENCE_MS) as made:
        yield made


def rows(stream):
    return pa.Table.from_batches(stream.batches()).num_rows


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    "command", [{"think": True}, {"batches": 100, "pause_s": 0.2}, {"batches": 3, "pause_s": 30}]
)
def test_a_node_that_is_stopped_amid_an_answer_is_lost_and_not_waited_for(node, impatient, command):
    stream = impatient.open_stream(node.address, command)
    time.sleep(0.3)
    os.kill(node.pid, signal.SIGSTOP)
    with pytest.raises(TransportError):
        rows(stream)


@pytest.mark.turn(3)
@pytest.mark.parametrize("alive_ms", [3_600_000])
def test_a_node_that_said_nothing_for_many_pings_and_is_stopped_then_is_not_waited_for_a_minute(node):
    """After two pings without an answer of the call gRPC puts the next one off by a minute unless it is told not to."""
    with FlightPool(SystemRuntime(), silence_ms=900) as impatient:
        stream = impatient.open_stream(node.address, {"think": True})
        time.sleep(3)
        os.kill(node.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        with pytest.raises(TransportError):
            rows(stream)
    assert time.monotonic() - stopped < 30


@pytest.mark.turn(3)
def test_a_stopped_node_is_not_reached_either(node, impatient):
    os.kill(node.pid, signal.SIGSTOP)
    with pytest.raises(TransportError):
        impatient.call(node.address, "members", {})


@pytest.mark.turn(3)
def test_a_query_whose_scheduler_is_stopped_says_so_and_a_read_goes_to_another(node, impatient, serve):
    other = serve()
    os.kill(node.pid, signal.SIGSTOP)
    client = Client([node.address, other.address], impatient, retry_reads=True)
    assert client.sql("select 1").num_rows == 0
    os.kill(node.pid, signal.SIGCONT)
    stream = Client([node.address], impatient, retry_reads=False).stream("select 1")
    assert stream.schema.names == ["n", "x"]


def test_a_stream_under_way_whose_scheduler_is_stopped_raises_scheduler_lost(node, impatient, monkeypatch):
    monkeypatch.setattr(
        "ballista_py.transport.client.client.sql_command",
        lambda *_: {"kind": "sql", "batches": 100, "pause_s": 0.2},
    )
    stream = Client([node.address], impatient, retry_reads=False).stream("select 1")
    batches = iter(stream)
    next(batches)
    os.kill(node.pid, signal.SIGSTOP)
    with pytest.raises(SchedulerLost):
        list(batches)


@pytest.mark.turn(3)
def test_long_thinking_and_long_pauses_are_waited_for_without_end(serve, impatient):
    served = serve(alive_ms=200)
    paused = impatient.open_stream(served.address, {"batches": 2, "rows": 10, "pause_s": 1.5 * SILENCE_MS / 1e3})
    thinking = impatient.open_stream(served.address, {"think": True, "batches": 1})
    assert rows(paused) == 20
    thinking.cancel()


@pytest.mark.turn(3)
def test_a_reader_that_reads_nothing_for_a_while_loses_nothing(serve, impatient):
    served = serve(alive_ms=200)
    batches = impatient.open_stream(served.address, {"batches": 400, "rows": 10_000}).batches()
    next(batches)
    time.sleep(2 * SILENCE_MS / 1e3)
    assert 10_000 + sum(batch.num_rows for batch in batches) == 4_000_000


@pytest.mark.turn(3)
def test_the_work_for_a_client_that_is_gone_without_a_word_is_stopped_and_its_thread_is_free_again(
    kit, serve, pool
):
    """Behind a link that passes nothing on nobody sees a client die: the pulses to it are not taken any more."""
    served = serve(alive_ms=50, idle_ms=300)
    with TcpProxy(served.address, kit.spawn) as proxy:
        stream = pool.open_stream(proxy.address, {"batches": 1, "pause_s": 3_600})
        assert stream.schema == kit.NUMBERS
        proxy.mood = "stall"
        assert served.handler.cancelled.wait(20)
        kit.wait_until(lambda: served.server.open_calls() == 0, 20)
        with pytest.raises(TransportError):
            rows(stream)


FLOOD = {"batches": 10_000, "rows": 60_000}
IDLE_MS = 1_000


@pytest.fixture
def clock(kit):
    return kit.HandClock()


def test_a_connection_that_is_read_at_all_is_not_cut_because_of_one_stream_that_is_not(kit, serve, pool, clock):
    served = serve(clock=clock, idle_ms=IDLE_MS)
    sent = served.handler.sent
    unread = pool.open_stream(served.address, {**FLOOD, "name": "unread"}).batches()
    next(unread)
    read = pool.open_stream(served.address, {**FLOOD, "name": "read"}).batches()
    while clock.now_ms < 20 * IDLE_MS:  # long enough to cut a connection that is not read
        before = sent["read"]
        while sent["read"] == before:
            assert next(read).num_rows == 60_000
        clock.now_ms += IDLE_MS / 5
        served.server.tick()
    read.close()
    with pytest.raises(TransportError, match="nothing of it was read"):
        list(unread)


def test_a_connection_of_which_nothing_is_read_is_cut_in_the_end(kit, serve, pool, clock):
    served = serve(clock=clock, idle_ms=IDLE_MS)
    unread = pool.open_stream(served.address, FLOOD).batches()
    next(unread)
    while served.server.open_calls():
        clock.now_ms += IDLE_MS / 5
        served.server.tick()
        time.sleep(0.01)
    with pytest.raises(TransportError):
        list(unread)


def test_time_in_which_the_server_itself_stood_still_is_not_held_against_its_readers(kit, serve, pool, clock):
    served = serve(clock=clock, idle_ms=IDLE_MS)
    batches = pool.open_stream(served.address, {"batches": 200, "rows": 60_000}).batches()
    next(batches)
    assert kit.still(lambda: served.handler.sent[""]) < 200  # the server waits for its reader
    served.server.tick()
    clock.now_ms += 60 * IDLE_MS
    served.server.tick()
    assert sum(batch.num_rows for batch in batches) == 199 * 60_000
