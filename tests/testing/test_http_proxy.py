"""The proxy passes HTTP on unharmed, and spoils exactly the replies it is told to."""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from ballista_py.testing import Chance, HttpProxy, ReplyFaults


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, bytes]]] = []

    def do_PUT(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        Echo.seen.append((self.path, data))
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def do_POST(self) -> None:  # a reply that ends with its connection
        self.protocol_version = "HTTP/1.0"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"until the end")

    def log_message(self, *arguments) -> None:
        pass


@pytest.fixture
def server():
    Echo.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(server):
    def spawn(run):
        threading.Thread(target=run, daemon=True).start()

    with HttpProxy("127.0.0.1", server.server_port, ReplyFaults(), seed=5, spawn=spawn) as proxy:
        yield proxy


def ask(connection, method="PUT", body=b"hello", **headers) -> bytes:
    connection.request(method, "/path?x=%20y", body, headers)
    return connection.getresponse().read()


def connect(proxy):
    return http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)


def test_requests_and_replies_pass_unharmed_over_one_connection(proxy):
    connection = connect(proxy)
    assert ask(connection) == b"hello"
    connection_socket = connection.sock
    assert ask(connection, body=b"x" * 300_000) == b"x" * 300_000
    assert ask(connection, body=iter([b"in ", b"chunks"])) == b"in chunks"
    assert ask(connection, Expect="100-continue") == b"hello"
    assert ask(connection, "HEAD", None) == b""
    assert ask(connection, "DELETE", None) == b""
    assert ask(connection, "POST", None) == b"until the end"
    assert ask(connection) == b"hello"
    assert connection.sock is connection_socket
    assert Echo.seen[0] == ("/path?x=%20y", b"hello")
    assert proxy.counts == {"passed": 8}


def test_a_dropped_reply_is_that_of_a_request_that_was_carried_out(proxy):
    proxy.faults = ReplyFaults(dropped=1.0)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(connect(proxy))
    assert Echo.seen == [("/path?x=%20y", b"hello")]


def test_a_truncated_reply_ends_early(proxy):
    proxy.faults = ReplyFaults(truncated=1.0)
    for _ in range(5):
        with pytest.raises((http.client.HTTPException, ConnectionResetError)):
            ask(connect(proxy), body=b"x" * 10_000)


def test_a_delayed_reply_comes_late_and_whole(proxy):
    proxy.faults = ReplyFaults(delayed=1.0, delay_ms=150.0)
    before = time.monotonic()
    assert ask(connect(proxy)) == b"hello"
    assert time.monotonic() - before >= 0.14


def test_a_resent_request_reaches_the_server_twice(proxy):
    proxy.faults = ReplyFaults(resent=1.0)
    assert ask(connect(proxy)) == b"hello"
    assert len(Echo.seen) == 2


def test_a_duplicated_reply_is_the_last_on_its_connection(proxy):
    proxy.faults = ReplyFaults(duplicated=1.0)
    connection = connect(proxy)
    connection.connect()
    raw = connection.sock
    raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
    received = b""
    while part := raw.recv(65536):
        received += part
    assert received.count(b"HTTP/1.1 200") == 2
    assert len(Echo.seen) == 1


def test_only_the_named_methods_are_spoilt(server):
    def spawn(run):
        threading.Thread(target=run, daemon=True).start()

    faults, only = ReplyFaults(dropped=1.0), frozenset({"PUT"})
    with HttpProxy("127.0.0.1", server.server_port, faults, seed=5, spawn=spawn, only=only) as proxy:
        assert ask(connect(proxy), "GET", b"read") == b"read"
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            ask(connect(proxy))


def test_one_seed_gives_one_sequence_of_faults(server):
    def course(seed: int) -> list[str | None]:
        chance, faults = Chance(seed), ReplyFaults(dropped=0.2, truncated=0.2, delayed=0.2)
        return [faults.of(chance.random()) for _ in range(200)]

    assert course(3) == course(3) != course(4)
    assert 20 < course(3).count("dropped") < 60
