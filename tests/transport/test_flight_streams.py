"""The data port: streams are complete or fail, errors keep their class, and work stops when nobody reads."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ballista_py.errors import (
    BallistaError,
    ConfigError,
    NotOwner,
    SqlError,
    TransportError,
    TryLater,
    WrongCluster,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.transport import endpoints
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.server import FlightServer, StreamResult
from ballista_py.transport.security.callers import Anyone, OfOneCluster


def read(stream):
    return pa.Table.from_batches(list(stream), schema=stream.schema)


def test_a_stream_brings_every_batch_and_the_trailer(kit, serve, pool):
    served = serve()
    stream = pool.open_stream(served.address, {"batches": 5, "rows": 1000})
    table = read(stream)
    assert table.schema == kit.NUMBERS
    assert table["n"].to_pylist() == list(range(5000))
    assert stream.trailer == {"touched": 5}


def test_an_empty_stream_still_has_its_schema_and_trailer(kit, serve, pool):
    stream = pool.open_stream(serve().address, {"batches": 0})
    assert stream.schema == kit.NUMBERS
    assert list(stream) == []
    assert stream.trailer == {"touched": 0}


def test_the_trailer_is_not_to_be_had_before_the_end(serve, pool):
    stream = pool.open_stream(serve().address, {"batches": 3})
    batches = stream.batches()
    next(batches)
    with pytest.raises(TransportError, match="not been read to its end"):
        _ = stream.trailer


def test_dictionaries_nested_values_and_names_survive(kit, serve, pool):
    schema = pa.schema(
        [
            pa.field("D", pa.dictionary(pa.int32(), pa.string())),
            pa.field("l", pa.list_(pa.struct([("a", pa.decimal128(20, 3))]))),
            pa.field("D", pa.timestamp("us", "UTC"), nullable=False),
        ]
    )

    def batch(words):
        columns = [
            pa.array(words).dictionary_encode(),
            pa.array([[], None, [{"a": None}]], schema.field(1).type),
            pa.array([0, 1, 2], schema.field(2).type),
        ]
        return pa.record_batch(columns, schema=schema)

    batches = [batch(["x", None, "y"]), batch(["z", "zz", "y"])]

    class Dictionaries(kit.Numbers):
        def stream(self, command, context):
            return StreamResult(schema=schema, batches=iter(batches))

    stream = pool.open_stream(serve(Dictionaries()).address, {})
    got = list(stream)
    assert stream.schema == schema
    assert [b.columns[0].to_pylist() for b in got] == [["x", None, "y"], ["z", "zz", "y"]]
    assert [b.columns[1:] for b in got] == [b.columns[1:] for b in batches]


def test_a_refused_command_raises_the_error_of_the_node_before_any_batch(serve, pool):
    stream = pool.open_stream(serve().address, {"refuse": True})
    with pytest.raises(NotOwner) as caught:
        _ = stream.schema
    assert caught.value.message == "executor e1 does not own partition 3 of table 't'"
    assert caught.value.details == {"partitions": [3]}


def test_an_error_in_mid_stream_reaches_the_reader_with_its_class_and_details(serve, pool):
    stream = pool.open_stream(serve().address, {"batches": 9, "fail_at": 4})
    got = []
    with pytest.raises(SqlError, match="division by zero") as caught:
        got.extend(stream)
    assert len(got) <= 4
    assert caught.value.details == {"line": 1, "column": 8}


def test_a_batch_of_another_schema_ends_the_stream_with_an_error(serve, pool):
    with pytest.raises(BallistaError, match="internal error"):
        list(pool.open_stream(serve().address, {"batches": 2, "odd_at": 1}))


def test_a_long_error_is_shortened_and_arrives(kit, serve, pool):
    class Long(kit.Numbers):
        def stream(self, command, context):
            raise SqlError("ä" * 50_000, text="b" * 50_000)

    with pytest.raises(SqlError, match=r"ä…$"):
        list(pool.open_stream(serve(Long()).address, {}))


def test_questions_are_answered_and_refused_like_streams(serve, pool):
    served = serve()
    assert pool.call(served.address, "echo", {"a": [1, None]}) == {"name": "echo", "body": {"a": [1, None]}}
    with pytest.raises(NotOwner, match="no"):
        pool.call(served.address, "refuse", {})


def test_a_question_that_takes_too_long_raises_in_time(serve, pool):
    served = serve()
    with pytest.raises(TransportError, match="did not answer in time"):
        pool.call(served.address, "wait", {"s": 600}, timeout_ms=200)
    served.handler.cancelled.set()
    served.handler.cancelled.set()


@pytest.mark.parametrize("command", [{"crash": True}, {"batches": 3, "crash_at": 1}, {"batches": 3, "odd_at": 1}])
def test_no_traceback_path_or_secret_of_a_server_is_on_the_wire(kit, serve, command):
    with kit.Wiretap(serve().address) as tap, FlightPool(SystemRuntime()) as pool:
        with pytest.raises(BallistaError, match="internal error"):
            list(pool.open_stream(tap.address, command))
        with pytest.raises(BallistaError, match="internal error"):
            pool.call(tap.address, "crash", {})
        raw = flight.FlightClient(f"grpc://{tap.address}")
        for call in (
            lambda: list(raw.list_flights()),
            lambda: list(raw.list_actions()),
            lambda: raw.do_get(flight.Ticket(b"{}")),
            lambda: raw.get_flight_info(flight.FlightDescriptor.for_path("a")),
            lambda: raw.get_schema(flight.FlightDescriptor.for_path("a")),
            lambda: raw.do_put(flight.FlightDescriptor.for_path("a"), kit.NUMBERS)[0].close(),
        ):
            with pytest.raises((flight.FlightError, OSError), match="only the commands"):
                call()
        seen = bytes(tap.seen)
    assert b"internal error" in seen
    for word in (b"Traceback", b"secret", b"/root", b".py", b"line "):
        assert word not in seen


def test_garbage_is_refused_without_harm(serve, pool):
    served = serve()
    for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 50):
        with socket.create_connection(("127.0.0.1", served.server.port)) as link:
            link.sendall(junk)
    raw = flight.FlightClient(f"grpc://{served.address}")
    for command in (b"", b"\xff", b"[1]", b"{"):
        with pytest.raises(flight.FlightError, match="not a JSON object"):
            raw.do_exchange(flight.FlightDescriptor.for_command(command))[1].read_chunk()
    assert pool.call(served.address, "echo", {})["name"] == "echo"


def test_cancelling_a_stream_stops_the_work_behind_it(kit, serve, pool):
    served = serve()
    stream = pool.open_stream(served.address, {"batches": 10**6, "pause_s": 60})
    _ = stream.schema
    stream.cancel()
    assert served.handler.cancelled.wait(30)
    kit.wait_until(lambda: served.server.open_calls() == 0)


def test_cancelling_works_while_the_node_still_thinks_and_a_reader_waits(serve, pool):
    served = serve()
    stream = pool.open_stream(served.address, {"think": True})
    threading.Timer(0.2, stream.cancel).start()
    with pytest.raises(TransportError, match="cancelled"):
        _ = stream.schema
    assert served.handler.cancelled.wait(30)


def test_dropping_a_stream_unread_stops_the_work_behind_it(kit, serve, pool):
    served = serve()
    stream = pool.open_stream(served.address, {"batches": 10**6, "pause_s": 60})
    kit.wait_until(lambda: served.server.open_calls() == 1)
    del stream
    assert served.handler.cancelled.wait(30)
    kit.wait_until(lambda: served.server.open_calls() == 0)


@pytest.mark.parametrize("pause_s", [0, 60])
def test_a_killed_client_stops_the_work_it_asked_for(kit, serve, pause_s):
    served = serve()
    script = (
        "import sys; from ballista_py.runtime import SystemRuntime\n"
        "from ballista_py.transport.flight.client import FlightPool\n"
        f"stream = FlightPool(SystemRuntime()).open_stream('{served.address}', "
        f"{{'batches': 10**6, 'rows': 60000, 'pause_s': {pause_s}}})\n"
        "stream.schema; print('open', flush=True); sys.stdin.read()"
    )
    client = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout.readline() == b"open\n"
    client.kill()
    client.communicate()
    assert served.handler.cancelled.wait(30)
    kit.wait_until(lambda: served.server.open_calls() == 0)


def test_a_killed_server_fails_the_stream_and_a_new_one_at_its_port_is_reached_again(pool):
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from conftest import *\n"
        "from ballista_py.runtime import SystemRuntime\n"
        "from ballista_py.transport.flight.server import FlightServer\n"
        "access = Access('test', EveryVerb())\n"
        "server = FlightServer('127.0.0.1:' + sys.argv[2], Numbers(), SystemRuntime(), access=access, spawn=spawn)\n"
        "print(server.port, flush=True); time.sleep(60)"
    )

    def start(port):
        command = [sys.executable, "-c", script, __file__.rpartition("/")[0], str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        return process, int(process.stdout.readline())

    process, port = start(0)
    address = f"127.0.0.1:{port}"
    batches = pool.open_stream(address, {"batches": 10**6, "rows": 10_000}).batches()
    next(batches)
    process.kill()
    process.communicate()
    with pytest.raises(TransportError, match="broke") as caught:
        for _ in batches:
            pass
    assert caught.value.details["peer"] == address
    with pytest.raises(TransportError, match="cannot be reached"):
        pool.call(address, "echo", {})
    process, _ = start(port)
    assert pool.call(address, "echo", {})["name"] == "echo"
    process.kill()
    process.communicate()


def test_a_reader_that_stands_still_holds_back_the_server(kit, serve, pool):
    served = serve()
    batches = pool.open_stream(served.address, {"batches": 10_000, "rows": 60_000}).batches()
    next(batches)
    assert kit.still(lambda: served.handler.sent[""]) < 100


def test_a_stream_that_nobody_reads_for_too_long_is_ended_with_a_reason(serve, pool):
    served = serve(idle_ms=300)
    batches = pool.open_stream(served.address, {"batches": 10_000, "rows": 60_000}).batches()
    next(batches)
    assert served.handler.cancelled.wait(30)
    with pytest.raises(TransportError, match=r"nothing of it was read for 0\.3 s"):
        for _ in batches:
            pass


def test_one_call_too_many_is_told_to_try_later_and_succeeds_later(kit, serve, pool):
    served = serve(max_calls=2)
    streams = [pool.open_stream(served.address, {"batches": 1, "pause_s": 60}) for _ in range(2)]
    assert [stream.schema for stream in streams] == [kit.NUMBERS, kit.NUMBERS]
    with pytest.raises(TryLater, match="answers 2 calls already"):
        _ = pool.open_stream(served.address, {}).schema
    for stream in streams:
        stream.cancel()
    kit.wait_until(lambda: served.server.open_calls() == 0)
    assert list(pool.open_stream(served.address, {})) == []


def test_shutdown_ends_open_streams_with_try_later(kit, serve, pool):
    served = serve()
    batches = pool.open_stream(served.address, {"batches": 100, "pause_s": 60}).batches()
    # Before the call has come to the server, nobody there can tell it why it ends.
    kit.wait_until(lambda: served.server.open_calls() == 1)
    kit.spawn(served.stop)
    with pytest.raises(TryLater, match="shutting down"):
        next(batches)
    kit.wait_until(lambda: served.stopped)


def test_shutdown_cuts_off_clients_that_do_not_read(kit, serve, pool):
    served = serve()
    stream = pool.open_stream(served.address, {"batches": 10_000, "rows": 60_000})
    batches = stream.batches()
    next(batches)
    time.sleep(0.2)
    served.stopped = True
    assert served.server.shutdown(kit.spawn, 4_000)
    with pytest.raises(TransportError):
        for _ in batches:
            pass


def test_shutdown_says_so_when_a_handler_does_not_stop_in_time(kit, serve, pool):
    class Deaf(kit.Numbers):
        def stream(self, command, context):
            time.sleep(1.5)
            return super().stream(command, context)

    served = serve(Deaf())
    stream = pool.open_stream(served.address, {})
    kit.wait_until(lambda: served.server.open_calls() == 1)
    served.stopped = True
    assert not served.server.shutdown(kit.spawn, 300)
    with pytest.raises(TransportError):
        list(stream)


def test_a_port_in_use_or_a_foreign_address_is_a_config_error_that_names_it(kit, serve):
    taken = serve().address
    access = kit.Access("test", kit.EveryVerb())
    for address in (taken, "203.0.113.7:0"):
        with pytest.raises(ConfigError, match=f"cannot listen on {address}"):
            FlightServer(address, kit.Numbers(), SystemRuntime(), access=access, spawn=kit.spawn)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:70000", "http://host:1", "a/b:1"])
def test_what_is_no_address_is_a_config_error(text, pool):
    with pytest.raises(ConfigError, match="is not an address"):
        pool.call(text, "echo", {})


def test_an_address_that_never_answers_fails_within_the_connect_timeout(pool, monkeypatch):
    monkeypatch.setattr(endpoints, "CONNECT_TIMEOUT_MS", 300)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(TransportError):
            list(pool.open_stream(address, {}))
        assert time.monotonic() - started < 15


def test_a_thousand_streams_leave_no_thread_or_file_behind(serve, pool):
    import os

    import psutil

    served = serve()
    process = psutil.Process(os.getpid())

    def round_trip():
        stream = pool.open_stream(served.address, {"batches": 2})
        assert sum(b.num_rows for b in stream) == 20

    for _ in range(50):
        round_trip()
    threads, files, memory = process.num_threads(), process.num_fds(), process.memory_info().rss
    for _ in range(1000):
        round_trip()
    assert process.num_threads() <= threads + 3
    assert process.num_fds() <= files + 3
    assert process.memory_info().rss < memory + (20 << 20)


@pytest.mark.parametrize(
    ("trailer", "reason"), [(None, "broke off after 20 rows"), (19, "lost rows: 19 were sent")]
)
def test_a_stream_that_ends_without_its_right_trailer_is_no_answer(kit, pool, trailer, reason):
    class Short(flight.FlightServerBase):
        def do_exchange(self, context, descriptor, reader, writer):
            writer.begin(kit.NUMBERS)
            writer.write_batch(kit.numbers(0, 20))
            if trailer is not None:
                writer.write_metadata(b'{"rows": %d}' % trailer)

    with Short(("127.0.0.1", 0)) as server, pytest.raises(TransportError, match=reason):
        list(pool.open_stream(f"127.0.0.1:{server.port}", {}))


def test_a_node_that_is_none_of_ours_is_an_error_in_one_line(pool):
    class Foreign(flight.FlightServerBase):
        pass

    with Foreign(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.port}"
        for ask in (lambda: pool.call(address, "echo", {}), lambda: list(pool.open_stream(address, {}))):
            with pytest.raises(TransportError, match="is it a data port of ballista_py") as caught:
                ask()
            assert "\n" not in caught.value.message


def test_a_call_of_another_cluster_is_refused_and_one_that_names_none_is_answered(serve):
    served = serve(callers=OfOneCluster(Anyone(), "one"))
    for cluster_id in ("", "one"):
        with FlightPool(SystemRuntime(), cluster_id=cluster_id) as pool:
            assert pool.call(served.address, "ping", {})["name"] == "ping"
    with FlightPool(SystemRuntime(), cluster_id="another") as pool:
        with pytest.raises(WrongCluster, match="another cluster"):
            pool.call(served.address, "ping", {})
        with pytest.raises(WrongCluster):
            list(pool.open_stream(served.address, {"batches": 1}).batches())
        with pytest.raises(WrongCluster):
            pool.ask(served.address, {"kind": "execute"})
