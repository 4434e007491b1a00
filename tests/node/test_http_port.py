"""The HTTP port answers a few paths, and survives whatever else comes."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from ballista_py.errors import ConfigError, TryLater
from ballista_py.node.http_port import HttpPort, json_reply


@pytest.fixture
def port():
    def busy():
        raise TryLater("starting")

    def crash():
        raise RuntimeError("secret in /root/key")

    made = HttpPort("127.0.0.1", 0, {"/a": lambda: json_reply({"a": 1}), "/busy": busy, "/crash": crash})
    yield made.port
    made.close()


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path)
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_paths_are_answered_and_errors_tell_nothing_of_the_node(port):
    assert ask(port, "/a?x=1") == (200, b'{\n  "a": 1\n}')
    assert ask(port, "/busy")[0] == 503
    assert json.loads(ask(port, "/busy")[1])["error"] == "starting"
    status, body = ask(port, "/crash")
    assert status == 500
    assert b"secret" not in body
    assert ask(port, "/b")[0] == 404
    assert ask(port, "/a", "POST")[0] == 501


@pytest.mark.parametrize(
    "junk", [b"", b"\0" * 100, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01" + bytes(200), b"G" * 70_000]
)
def test_garbage_is_refused_and_the_port_goes_on(port, junk):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.sendall(junk)
    assert ask(port, "/a")[0] == 200


def test_a_client_that_says_nothing_holds_up_nobody(port):
    with socket.create_connection(("127.0.0.1", port)):
        assert ask(port, "/a")[0] == 200


def test_a_port_in_use_is_a_config_error_that_names_it(port):
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        HttpPort("127.0.0.1", port, {})
