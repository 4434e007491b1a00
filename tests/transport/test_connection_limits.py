"""Bounds on what a port of gRPC holds for whoever reaches it: connections, threads, bytes."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack, suppress

import grpc
import pyarrow.flight as flight
import pytest

from ballista_py.errors import BallistaError, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.security.callers import Clients, Refusals, Refused
from ballista_py.transport.security.connection_guard import Calls, ConnectionLimits, too_many
from ballista_py.transport.sockets import Connection, accepted, address_group

LIMITS = ConnectionLimits(connections=60, per_address=40)
IDLE = 1_000


def threads():
    return len(os.listdir("/proc/self/task"))


def open_many(stack, port, number):
    """As many connections that say nothing; those that were refused or cut are closed, too."""
    for _ in range(number):
        stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))


def test_a_thousand_silent_connections_leave_a_port_its_threads_its_files_and_its_clients(
    serve, pool, kit, caplog
):
    served = serve(connections=LIMITS)
    assert pool.call(served.address, "echo", {})
    before = threads()
    with ExitStack() as stack:
        open_many(stack, served.server.port, IDLE)
        kit.wait_until(lambda: len(accepted(served.server.port)) <= LIMITS.per_address)
        assert threads() < before + 50
        for _ in range(20):
            assert pool.call(served.address, "echo", {"a": 1})["body"] == {"a": 1}
        assert len(accepted(served.server.port)) <= LIMITS.per_address
    assert "connections were cut, of 1 addresses" in caplog.text


def test_a_stream_under_way_is_not_cut_for_connections_that_come_later(serve, pool, kit):
    served = serve(connections=LIMITS)
    stream = pool.open_stream(served.address, {"batches": 30, "rows": 1, "pause_s": 0.05})
    batches = stream.batches()
    next(batches)
    with ExitStack() as stack:
        open_many(stack, served.server.port, 200)
        kit.wait_until(lambda: len(accepted(served.server.port)) <= LIMITS.per_address)
        assert sum(batch.num_rows for batch in batches) == 29


def test_the_control_port_has_bounds_too_and_its_executors_stay(kit):
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    workers, loop = ThreadPoolExecutor(4), asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    server = ControlServer("127.0.0.1:0", "s1", None, workers, connections=LIMITS)
    port = asyncio.run_coroutine_threadsafe(server.start(), loop).result(30).port
    running = asyncio.run_coroutine_threadsafe(server.run(), loop)
    over = threading.Event()
    with ExitStack() as stack, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = channel.stream_stream("/ballista_py.control.v1.Control/ControlStream")(iter(over.wait, True))
        kit.wait_until(lambda: server._service.calls().busy)
        before = threads()
        open_many(stack, port, IDLE)
        kit.wait_until(lambda: len(accepted(port)) <= LIMITS.per_address)
        assert threads() < before + 50
        assert stream.is_active()
        over.set()
        stream.cancel()
    running.cancel()
    workers.shutdown(wait=False)


def test_calls_that_say_nothing_have_a_bound_and_are_cut_off_when_they_crowd_the_port(serve, pool, kit):
    served = serve(max_calls=16)
    codes = []
    over = threading.Event()
    before = threads()
    with ExitStack() as stack:
        calls = []
        for _ in range(4):
            channel = stack.enter_context(
                grpc.insecure_channel(served.address, [("grpc.use_local_subchannel_pool", 1)])
            )
            begin = channel.stream_stream("/arrow.flight.protocol.FlightService/DoExchange")
            for _ in range(20):  # the client of this test has a thread for each as well
                calls.append(begin(iter(over.wait, True)))
                calls[-1].add_done_callback(lambda call: codes.append(call.code()))
        kit.wait_until(lambda: len(codes) >= 80 - 2 * 16)
        assert set(codes) == {grpc.StatusCode.UNAVAILABLE}
        assert threads() < before + 80 + 2 * 16 + 30
        known = served.server._calls.known()
        assert known.crowded
        over.set()
        for call in calls:
            call.cancel()
    kit.wait_until(lambda: not served.server._calls.known().crowded)
    assert pool.call(served.address, "echo", {})["name"] == "echo"


class Nobody:
    """Tokens of nobody."""

    def verify(self, token):
        raise Unauthenticated("the token is not valid")


def test_a_message_without_an_end_is_not_kept_for_who_has_no_token(serve, kit):
    limits = ConnectionLimits(unheard_bytes=4 << 20)
    served = serve(callers=Clients(Nobody()), connections=limits)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    # The largest windows that there are, a request without a token, and then its message, frame after frame.
    names = {":method": "POST", ":scheme": "http", ":path": "/arrow.flight.protocol.FlightService/DoAction"}
    names |= {":authority": "a", "content-type": "application/grpc", "te": "trailers"}
    block = b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in names.items()
    )
    begin = preface + len(block).to_bytes(3, "big") + bytes([1, 4, 0, 0, 0, 1]) + block
    piece = (16 << 10).to_bytes(3, "big") + bytes([0, 0, 0, 0, 0, 1]) + bytes(16 << 10)
    first = (
        (16 << 10).to_bytes(3, "big") + bytes([0, 0, 0, 0, 0, 1]) + b"\x00\x7f\xff\xff\xff" + bytes((16 << 10) - 5)
    )
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=60) as link:
        link.sendall(begin + first)
        sent = 0
        with suppress(OSError):
            while sent < 4 << 30:
                link.sendall(piece)
                sent += len(piece)
        assert sent < 4 << 30
    kit.wait_until(lambda: not accepted(served.server.port))


def test_who_is_heard_may_send_as_much_as_he_likes(serve, kit):
    limits = ConnectionLimits(unheard_bytes=1 << 20)
    served = serve(connections=limits)
    with flight.connect(f"grpc://{served.address}") as client:
        for _ in range(40):
            body = b'{"a": "' + b"x" * (200 << 10) + b'"}'
            assert list(client.do_action(flight.Action("echo", body)))


def test_a_port_that_cuts_goes_on_when_the_peer_has_gone_meanwhile(serve, pool):
    served = serve(connections=ConnectionLimits(connections=2, per_address=2))
    for _ in range(30):
        with ExitStack() as stack:
            open_many(stack, served.server.port, 10)
    with suppress(BallistaError):
        pool.call(served.address, "echo", {})
    assert pool.call(served.address, "echo", {})


def one(number, host="10.0.0.1", silent_ms=0, received=1_000):
    return Connection(host, number, silent_ms, received)


def test_what_is_cut_is_what_serves_nobody():
    limits = ConnectionLimits(connections=4, per_address=3, unheard_bytes=10_000)
    busy = {("10.0.0.1", 9)}
    assert too_many([one(1), one(2), one(3)], Calls(), limits, {}) == []
    late = [one(1, silent_ms=5), one(2, silent_ms=50), one(3, received=0), one(9, silent_ms=90)]
    assert too_many(late, Calls(busy=busy), limits, {}) == [("10.0.0.1", 3)]
    many = [one(n, host=f"10.0.0.{n}", silent_ms=n) for n in range(1, 8)]
    assert [port for _, port in too_many(many, Calls(), limits, {})] == [5, 6, 7]
    assert [port for _, port in too_many(many, Calls(), limits, {("10.0.0.7", 7): 900})] == [4, 5, 6]
    assert too_many([one(1, silent_ms=60_000, received=20)], Calls(), limits, {}) == [("10.0.0.1", 1)]
    silent = [one(1, silent_ms=60_000), one(9, silent_ms=60_000)]
    assert too_many(silent, Calls(busy=busy), limits, {}) == []
    assert too_many(silent, Calls(busy=busy, crowded=True), limits, {}) == [("10.0.0.1", 1)]
    greedy = [one(1, received=10_500), one(2, received=10_500), one(9, received=10_500)]
    assert too_many(greedy, Calls(busy=busy), limits, {("10.0.0.1", 1): 1, ("10.0.0.1", 2): 9_000}) == [
        ("10.0.0.1", 1)
    ]


def test_of_an_address_that_offended_strangers_may_have_little():
    limits = ConnectionLimits(suspect_connections=2, suspect_bytes=500, stranger_bytes=5_000)
    busy, offender = {("10.0.0.1", 9)}, ("10.0.0.1", 8)
    strangers = [one(1, received=400), one(2, received=300), one(3, received=200), one(4, received=600)]
    known = [one(9, received=10_000), one(5, received=10_000), one(7, host="10.0.0.2", received=4_000)]
    heard = {("10.0.0.1", 5): 9_000, ("10.0.0.1", 9): 1}
    everybody = [*strangers, *known]
    assert too_many(everybody, Calls(busy=busy), limits, heard) == []
    gone = too_many(everybody, Calls(busy=busy), limits, heard, {"10.0.0.1"})
    assert [port for _, port in gone] == [1, 4]
    refused = Refused(offenders=frozenset([offender]))
    calls = Calls(busy={*busy, offender}, refused=refused)
    assert too_many([*known, one(8)], calls, limits, heard) == [offender]
    assert too_many([one(1, received=6_000)], Calls(), limits, {}) == [("10.0.0.1", 1)]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_one_machine_counts_as_one_address(first, second, same):
    assert (address_group(first) == address_group(second)) is same


def test_many_refused_calls_are_a_line_a_second(kit, caplog):
    clock = kit.HandClock()
    refusals = Refusals(clock)
    for number in range(500):
        clock.now_ms += 10
        refusals.note(f"ipv4:10.0.0.{number % 2}:{number}", "the token is not valid")
    clock.now_ms += 2_000
    refusals.tick()
    refusals.note("ipv4:10.0.0.1:7", "another reason")
    said = [record.getMessage() for record in caplog.records]
    assert "a call was refused, from ipv4:10.0.0.0:0: the token is not valid" in said
    assert sum("more calls were refused; the last was a call from ipv4:10.0.0." in line for line in said) in (5, 6)
    assert said[-1] == "a call was refused, from ipv4:10.0.0.1:7: another reason"
    assert len(said) < 14
    assert refusals.take() == Refused(by_address={"10.0.0.0": 250, "10.0.0.1": 251})
    assert refusals.take() == Refused()


def test_limits_of_a_node_come_from_its_configuration():
    from ballista_py.node.config import NodeConfig

    config = NodeConfig(
        role="scheduler",
        node_id="s",
        state_location="file:///tmp/x",
        allow_insecure_connections=True,
        max_connections=7,
        max_connections_per_address=3,
    )
    assert config.connection_limits() == ConnectionLimits(connections=7, per_address=3)
    assert SystemRuntime()
