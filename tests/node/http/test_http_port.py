"""The HTTP port answers a few paths, and survives whatever else comes."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from contextlib import suppress

import pytest
from cryptography import x509

from ballista_py.errors import ConfigError, TransportError, TryLater
from ballista_py.node.local.status_reader import read_status
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.security.access import Access
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.security.tokens import StaticTokens


@pytest.fixture
def port(serve):
    def busy():
        raise TryLater("starting")

    def torn():
        raise ConfigError("TLS: /etc/pki/node.pem cannot be read")

    def crash():
        raise RuntimeError("secret in /root/key")

    return serve({"/a": lambda: {"a": 1}, "/busy": busy, "/crash": crash, "/torn": torn}).port


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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
    assert json.loads(ask(port, "/torn")[1])["error"] == "TLS: a file of the node cannot be read"
    assert ask(port, "/b")[0] == 404
    assert ask(port, "/a", "POST")[0] == 405


@pytest.mark.parametrize(
    "junk", [b"", b"\0" * 100, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01" + bytes(200), b"G" * 70_000]
)
def test_garbage_is_refused_and_the_port_goes_on(port, junk):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(junk)
    assert ask(port, "/a")[0] == 200


@pytest.mark.parametrize("asked", [b"GET /a\r\n\r\n", b"nonsense\r\n\r\n"])
def test_whatever_is_answered_has_a_status(port, asked):
    """HTTP/0.9 had none, and an error of it looked like a page."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(asked)
        assert link.recv(1 << 16).startswith(b"HTTP/1.")


def test_a_client_that_says_nothing_holds_up_nobody(port):
    with socket.create_connection(("127.0.0.1", port)):
        assert ask(port, "/a")[0] == 200


def test_a_port_in_use_is_a_config_error_that_names_it(port, serve):
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        serve({}, port=port)


@pytest.fixture
def authority(tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    made.add("n1", "executor")
    return made


@pytest.fixture
def guarded(authority, tmp_path, serve):
    """A port with TLS that asks for a token but at `/open`."""
    tokens = tmp_path / "tokens"
    tokens.write_text("ada a-token-of-some-length\n")
    made = serve(
        {path: lambda: {"a": 1} for path in ("/open", "/shut")},
        Access("test", {"GET /open": ["anyone"], "GET /shut": ["client"]}),
        tls=authority.tls("n1"),
        verifier=StaticTokens(str(tokens), SystemRuntime()),
    )
    return f"https://127.0.0.1:{made.port}"


def test_over_tls_a_path_is_shown_to_whoever_has_a_token_or_needs_none(guarded, authority):
    trust = Tls(ca_file=str(authority.ca_file))
    assert read_status(f"{guarded}/open", trust) == read_status(
        f"{guarded}/shut", trust, Secret("a-token-of-some-length")
    )
    for token in (None, Secret("another-token-of-nobody"), Secret("")):
        with pytest.raises(TransportError, match="401"):
            read_status(f"{guarded}/shut", trust, token)


def test_who_speaks_plainly_or_not_at_all_holds_up_nobody_and_the_reason_is_logged(guarded, authority, caplog):
    caplog.set_level("INFO")
    trust = Tls(ca_file=str(authority.ca_file))
    port = int(guarded.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
            plain.sendall(b"GET /open HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"200" not in plain.recv(1_000)
        assert read_status(f"{guarded}/open", trust)
        silent.sendall(b"\x16\x03\x01")
    assert "HTTP_REQUEST" in caplog.text


def test_many_handshakes_that_fail_are_a_few_lines_of_the_log(guarded, authority, caplog):
    caplog.set_level("INFO")
    port = int(guarded.rpartition(":")[2])
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as plain, suppress(OSError):
            plain.sendall(b"GET /open HTTP/1.1\r\n\r\n")
            plain.recv(100)
    assert 0 < len(caplog.records) < 50


def test_a_renewed_certificate_counts_for_the_next_connection_and_half_of_one_does_not(guarded, authority):
    def serial():
        port = int(guarded.rpartition(":")[2])
        pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(authority.ca_file))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    before = serial()
    renewed = authority.add("n1", "executor")
    assert f"{serial():x}" == renewed.serial != f"{before:x}"
    key = authority.folder / "nodes" / "n1" / "key.pem"
    key.write_text("nonsense")
    assert f"{serial():x}" == renewed.serial
