"""Bounds on what an HTTP port holds for whoever reaches it, and a good client that is answered meanwhile."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress
from urllib.request import urlopen

import pytest

from ballista_py.node.http.connections import HttpLimits
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.certificates import CertificateFolder

IDLE = 1_000
LIMITS = HttpLimits(connections=8, connections_per_address=8)


def files():
    return len(os.listdir("/proc/self/fd"))


def ask(port):
    with urlopen(f"http://127.0.0.1:{port}/a", timeout=60) as reply:
        return json.load(reply)


@pytest.fixture
def hold():
    return threading.Event()


@pytest.fixture
def port(hold, serve):
    def slow():
        hold.wait(60)
        return {"slow": 1}

    yield serve({"/a": lambda: {"a": 1}, "/slow": slow}, limits=LIMITS)
    hold.set()


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def test_a_thousand_silent_connections_leave_the_port_its_files_and_its_clients(port):
    before = files()
    with ExitStack() as stack:
        for number in range(IDLE):
            stack.enter_context(socket.create_connection(("127.0.0.1", port.port), timeout=60))
            if number % 100 == 0:
                assert ask(port.port) == {"a": 1}
        assert ask(port.port) == {"a": 1}
        wait_until(lambda: files() <= before + IDLE + LIMITS.connections + 8)
        assert len(port.connections) <= LIMITS.connections


def test_silent_handshakes_are_bounded_too(tmp_path, serve):
    folder = CertificateFolder(tmp_path / "tls", SystemRuntime())
    folder.init()
    folder.add("n1", "executor")
    made = serve({"/a": dict}, limits=LIMITS, tls=folder.tls("n1"))
    before = files()
    with ExitStack() as stack:
        for _ in range(200):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=60))
            link.sendall(b"\x16\x03\x01")
        wait_until(lambda: files() <= before + 200 + LIMITS.connections + 8)
        assert len(made.connections) <= LIMITS.connections
    wait_until(lambda: not len(made.connections))


def test_an_answer_under_way_is_not_cut_for_a_newcomer_and_beyond_the_bound_nobody_is_let_in(port, hold):
    with ExitStack() as stack:
        asking = []
        for _ in range(LIMITS.connections):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", port.port), timeout=60))
            link.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            asking.append(link)
        wait_until(lambda: sum(one.answering for one in port.connections.all()) == LIMITS.connections)
        with socket.create_connection(("127.0.0.1", port.port), timeout=60) as late:
            assert late.recv(100) == b""
        hold.set()
        for link in asking:
            assert b"slow" in b"".join(iter(lambda link=link: link.recv(1_000), b""))


def test_a_client_that_sends_a_byte_now_and_then_is_cut_when_its_time_is_over(serve):
    made = serve({"/a": dict}, limits=HttpLimits(request_ms=300))
    cut = False
    with socket.create_connection(("127.0.0.1", made.port), timeout=60) as link:
        link.sendall(b"GET /a HTTP/1.0\r\n")
        try:
            for _ in range(1_500):  # fewer bytes than a request may have
                link.sendall(b"x: y\r\n")
                time.sleep(0.01)
        except OSError:
            cut = True
        assert cut


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /a HTTP/1.1\r\nHost: h\r\n" + b"x: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\n" + b"x: y\r\n" * 4_000 + b"\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\n"
        + b"\r\n".join(b"%d: y" % n for n in range(90))
        + b"\r\n"
        + b"z" * 16_384,
    ],
)
def test_a_request_beyond_its_bound_is_refused_without_what_it_says(port, request_):
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as link:
        answer = b""
        with suppress(ConnectionError):  # the port does not wait for the rest of the request
            link.sendall(request_)
        with suppress(ConnectionError):
            while piece := link.recv(1_000):
                answer += piece
    assert not answer or b" 431 " in answer.splitlines()[0]
    assert b"yyyy" not in answer
    assert ask(port.port) == {"a": 1}


def test_what_the_library_refuses_is_json_without_what_the_client_wrote(port):
    for request in (
        b"POST /secret HTTP/1.0\r\n\r\n",
        b"<script> x\r\n\r\n",
        b"GET /a HTTP/9.9\r\n\r\n",
        b"GET /a HTTP/1.1\r\n\r\n",
        b"GET /secret%00<script> HTTP/1.0\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port.port), timeout=60) as link:
            link.sendall(request)
            answer = b"".join(iter(lambda: link.recv(1_000), b""))
        assert b"script" not in answer
        assert b"secret" not in answer
        assert b'"error"' in answer


AHEAD = b"GET /a HTTP/1.1\r\nHost: h\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        (b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"POST /a HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n", 400),
        (AHEAD + b"Host: i\r\n", 400),
        *((AHEAD + name + b": a\r\n" + name.upper() + b": a\r\n", 400) for name in (b"Authorization", b"Origin")),
        (AHEAD + b"Content-Type: text/plain\r\nContent-Type: application/json\r\n", 400),
        (AHEAD + b"traceparent: a\r\ntraceparent: b\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n", 505),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(port, head, status):
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as link:
        link.sendall(head + b"\r\n0\r\n\r\n" + AHEAD + b"\r\n")
        answer = b""
        with suppress(ConnectionError):
            while piece := link.recv(1_000):
                answer += piece
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert ask(port.port) == {"a": 1}


@pytest.mark.parametrize(
    "line", [b"HEAD /a HTTP/1.2", b"HEAD /a HTTP/9.9", b"CONNECT /a HTTP/1.2", b"GET /a HTTP/1.2"]
)
def test_another_version_is_refused_whatever_is_asked_by_it(port, line, caplog):
    """The answer to a HEAD has no body, and h11 refuses to send one."""
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as link:
        link.sendall(line + b"\r\nHost: h\r\n\r\n")
        answer = b"".join(iter(lambda: link.recv(1_000), b""))
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert ask(port.port) == {"a": 1}
    assert not [record for record in caplog.records if record.exc_info]


def test_a_header_that_is_a_list_may_come_in_parts(port):
    with socket.create_connection(("127.0.0.1", port.port), timeout=60) as link:
        link.sendall(AHEAD + b"Accept: text/csv\r\nAccept: application/json\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: link.recv(1_000), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
