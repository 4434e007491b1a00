"""What the HTTP ports of a node show, and to whom, for every way to configure it."""

from __future__ import annotations

import json
from itertools import product

import pytest

from ballista_py.errors import ConfigError, TransportError
from ballista_py.node.config import NodeConfig
from ballista_py.node.http.ports import HttpPorts
from ballista_py.node.http.routes_node import NodeShows
from ballista_py.node.local.status_reader import read_status
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Tls

CLIENT, VIEWER, NOBODY = "client-token-0123456789", "viewer-token-0123456789", "wrong-token-0123456789"
PROBES = ("/health", "/ready")
GUARDED = ("/status", "/tasks", "/metrics")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("status")
    authority = CertificateFolder(made / "tls", SystemRuntime())
    authority.init()
    authority.add("n1", "executor")
    (made / "clients").write_text(f"ada {CLIENT}\n")
    (made / "viewers").write_text(f"prometheus {VIEWER}\n")
    return made


def config_of(folder, role, tls, given):
    files = CertificateFolder(folder / "tls", SystemRuntime()).tls("n1")
    proof = {
        "node_mtls_ca_certificate_file": str(files.ca_file),
        "node_mtls_certificate_file": str(files.certificate_file),
        "node_mtls_key_file": str(files.key_file),
    }
    return NodeConfig(
        role=role,
        node_id="n1",
        state_location="memory://x",
        http_port=0,
        metrics_port=0,
        scheduler_address=("localhost:1",),
        **(proof if tls else {"allow_insecure_connections": True}),
        **{name: str(folder / value) if name.endswith("file") else value for name, value in given.items()},
    )


def ports_of(config):
    shows = NodeShows(
        node_id=config.node_id,
        role=config.role,
        ready=lambda: True,
        status=lambda _client: {},
        tasks=lambda _client: [{"text": "secret"}],
    )
    return HttpPorts(config, lambda: b"x 1\n", SystemRuntime(), shows)


def seen(folder, role, tls, given, *tokens):
    """The paths that callers with these tokens are shown."""
    ports = ports_of(config_of(folder, role, tls, given))
    trust = Tls(ca_file=str(folder / "tls" / "ca.pem")) if tls else None
    found = {token: set() for token in tokens}
    try:
        for token, path in product(tokens, (*PROBES, *GUARDED)):
            port = ports.metrics.port if path == "/metrics" else ports.http.port
            url = f"http{'s' if tls else ''}://localhost:{port}{path}"
            try:
                read_status(url, trust, token and Secret(token))
            except TransportError as error:
                if "401" not in error.message:
                    raise
            else:
                found[token].add(path)
    finally:
        ports.close()
    return found


EVERYTHING, NOTHING = set(PROBES + GUARDED), set(PROBES)


@pytest.mark.parametrize(
    ("role", "given", "by_token"),
    [
        ("executor", {}, {None: NOTHING, CLIENT: NOTHING, VIEWER: NOTHING}),
        ("scheduler", {}, {None: NOTHING, CLIENT: NOTHING, VIEWER: NOTHING}),
        ("executor", {"open_metrics": True}, {None: NOTHING | {"/metrics"}, NOBODY: NOTHING | {"/metrics"}}),
        ("scheduler", {"status_tokens_file": "viewers"}, {None: NOTHING, CLIENT: NOTHING, VIEWER: EVERYTHING}),
        ("executor", {"flight_tokens_file": "clients"}, {None: NOTHING, CLIENT: EVERYTHING, VIEWER: NOTHING}),
        (
            "scheduler",
            {"flight_tokens_file": "clients", "status_tokens_file": "viewers"},
            {None: NOTHING, CLIENT: EVERYTHING, VIEWER: EVERYTHING, NOBODY: NOTHING},
        ),
    ],
)
def test_a_node_with_certificates_shows_more_than_that_it_is_up_to_nobody_whom_it_was_not_told_of(
    folder, role, given, by_token
):
    assert seen(folder, role, True, given, *by_token) == by_token


def test_a_node_without_certificates_and_tokens_hides_nothing(folder):
    assert seen(folder, "executor", False, {}, None) == {None: EVERYTHING}
    assert seen(folder, "executor", False, {"status_tokens_file": "viewers"}, None) == {None: NOTHING}


def test_a_node_that_was_told_of_nobody_says_in_its_log_what_to_give_it(folder, caplog):
    seen(folder, "executor", True, {}, None)
    assert "--status-tokens-file" in caplog.text


def test_a_node_that_answers_says_that_it_is_well(folder):
    ports = ports_of(config_of(folder, "executor", False, {}))
    try:
        shown = read_status(f"http://localhost:{ports.http.port}/health", None, None)
    finally:
        ports.close()
    assert json.loads(shown) == {"node_id": "n1", "role": "executor", "healthy": True}


def test_who_is_to_look_alone_has_no_token_of_a_client(folder, tmp_path):
    both = tmp_path / "both"
    both.write_text(f"prometheus {CLIENT}\n")
    with pytest.raises(ConfigError, match=r"the token of 'prometheus' stands in .*clients, too") as raised:
        seen(folder, "executor", True, {"flight_tokens_file": "clients", "status_tokens_file": str(both)}, None)
    assert CLIENT not in str(raised.value)
