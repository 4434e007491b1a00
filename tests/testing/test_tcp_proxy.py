"""The proxy does to a link what its mood says, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from functools import partial

import pytest

from ballista_py.testing.faults.tcp_proxy import THROTTLED_BYTES_PER_S, TcpProxy


def spawn(run):
    threading.Thread(target=run, daemon=True).start()


@pytest.fixture
def echo():
    """A server that says everything again."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(link):
        with link:
            while data := link.recv(65536):
                link.sendall(data)

    def accept():
        try:
            while True:
                link, _ = listener.accept()
                spawn(partial(serve, link))
        except OSError:
            return

    spawn(accept)
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


@pytest.fixture
def proxy(echo):
    with TcpProxy(echo, spawn) as made:
        yield made


def connect(proxy):
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def said(link, data):
    link.sendall(data)
    got = b""
    while len(got) < len(data):
        piece = link.recv(65536)
        if not piece:
            raise ConnectionResetError
        got += piece
    return got


def test_bytes_pass_as_they_are(proxy):
    with connect(proxy) as link:
        data = bytes(range(256)) * 4_000
        assert said(link, data) == data
    assert proxy.opened == 1


def test_a_cut_ends_connections_and_lets_no_other_live_until_it_heals(proxy):
    with connect(proxy) as link:
        assert said(link, b"a") == b"a"
        proxy.mood = "cut"
        time.sleep(0.2)
        with pytest.raises(OSError):
            said(link, b"a")
    with pytest.raises(OSError), connect(proxy) as link:
        said(link, b"a")
    proxy.mood = "pass"
    with connect(proxy) as link:
        assert said(link, b"b") == b"b"


def test_a_stall_keeps_connections_and_loses_nothing(proxy):
    with connect(proxy) as link:
        assert said(link, b"a") == b"a"
        proxy.mood = "stall"
        link.sendall(b"later")
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            link.recv(10)
        proxy.mood = "pass"
        link.settimeout(5)
        assert link.recv(10) == b"later"


def test_a_throttled_link_is_slow_and_whole(proxy):
    with connect(proxy) as link:
        proxy.mood = "throttle"
        data = b"x" * (THROTTLED_BYTES_PER_S // 10)
        started = time.monotonic()
        assert said(link, data) == data
        assert time.monotonic() - started > 0.15
