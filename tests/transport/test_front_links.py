"""Connections to a front that end before anybody looked at them: none is left behind, whoever uses their port again."""

from __future__ import annotations

import socket
import struct
from types import SimpleNamespace

import pytest

from ballista_py.runtime import SystemRuntime
from ballista_py.transport.front.relay import Relay, RelayOptions
from ballista_py.transport.front.server_certificate import ServerCertificate

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def relay():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    options = RelayOptions(backend="/nowhere", port=port, settings={})
    certificate = SimpleNamespace(context=lambda: None)
    assert hasattr(ServerCertificate, "context")
    made = Relay([listener], certificate, options, SystemRuntime())
    yield made, port
    made.finish()
    listener.close()


def reset_from(source: int, port: int) -> int:
    """Connect from that port and reset the connection at once; from which port it was."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", source))
        client.connect(("127.0.0.1", port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return client.getsockname()[1]


def test_a_port_that_is_used_again_before_its_connection_was_looked_at_leaves_nothing_behind(relay):
    front, port = relay
    source = 0
    for _ in range(20):
        for _ in range(5):
            source = reset_from(source, port)
        front.tick()
        assert len(front) <= 1
        assert len(front._by_fd) == len(front) == sum(front._by_group.values())
    while len(front):
        front.tick()
    assert not front._by_fd
    assert not front._by_group
