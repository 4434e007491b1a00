"""A node's configuration: one file, flags over it, and errors that name the field."""

import pytest
from attrs import fields

from ballista_py.errors import ConfigError
from ballista_py.node.cli_node import OPTIONS
from ballista_py.node.config import NodeConfig, load_config

NEEDED = {
    "role": "scheduler",
    "node_id": "s1",
    "state_location": "memory://x",
    "allow_insecure_connections": True,
}
MTLS = {
    "node_mtls_ca_certificate_file": "ca.pem",
    "node_mtls_certificate_file": "node.pem",
    "node_mtls_key_file": "node.key",
}


def test_flags_stand_over_the_file_and_the_file_over_the_defaults(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text(
        "role: scheduler\nnode-id: from-file\nstate_location: memory://x\nttl_ms: 5000\nflight-port: 0\n"
        "allow_insecure_connections: true\n"
    )
    config = load_config(str(path), {"node_id": "from-flag", "ttl_ms": None})
    assert (config.node_id, config.ttl_ms, config.flight_port, config.skew_ms) == ("from-flag", 5_000, 0, 5_000)


def test_the_defaults_are_those_that_the_field_knows():
    config = load_config(None, NEEDED)
    assert (config.flight_port, config.control_port, config.data_port) == (50051, 50052, 50053)
    assert config.partition_assignment_interval == 30_000
    assert config.max_partition_assignments_per_interval == 100


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"ttl_ms": -1}, "ttl_ms"),
        ({"ttl_ms": "soon"}, "ttl_ms"),
        ({"role": "boss"}, "role"),
        ({"flight_port": 70_000}, "flight_port"),
        ({"node_id": "a/b"}, "node_id"),
        ({"node_id": ""}, "node_id"),
        ({"state_location": None}, "state_location"),
        ({"role": "executor"}, "scheduler_address"),
        ({"allow_insecure_connections": False}, "node_mtls_ca_certificate_file"),
        ({"node_mtls_key_file": "key.pem"}, "node_mtls_ca_certificate_file"),
        ({"flight_tls_certificate_file": "a.pem"}, "flight_tls_key_file"),
        ({"max_calls_per_client": 0}, "max_calls_per_client"),
        ({"max_partitions_per_executor": 0}, "max_partitions_per_executor"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 17}, "replicas"),
        ({"tttl_ms": 1}, "tttl_ms"),
    ],
)
def test_an_error_is_one_line_that_names_the_field(wrong, named):
    values = {name: value for name, value in {**NEEDED, **wrong}.items() if value is not None}
    with pytest.raises(ConfigError, match=named) as raised:
        load_config(None, values)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("text", "said"), [("- a\n", "mapping"), ("a: [", "not YAML"), (None, "cannot be read")])
def test_a_file_that_is_no_configuration_is_named(tmp_path, text, said):
    path = tmp_path / "node.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        load_config(str(path), {})
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_certificates_a_node_starts_only_on_request():
    assert isinstance(load_config(None, NEEDED), NodeConfig)
    with pytest.raises(ConfigError, match="--allow-insecure-connections"):
        load_config(None, {**NEEDED, "allow_insecure_connections": False})


def test_clients_are_shown_the_nodes_certificate_or_one_of_their_own():
    config = load_config(None, {**NEEDED, "allow_insecure_connections": False, **MTLS})
    assert config.flight_tls() == config.node_tls()
    public = {"flight_tls_certificate_file": "public.pem", "flight_tls_key_file": "public.key"}
    assert load_config(None, {**NEEDED, **MTLS, **public}).flight_tls().certificate_file == "public.pem"
    assert load_config(None, NEEDED).flight_tls() is None


def test_every_field_is_an_option_but_those_that_hold_names_and_values():
    assert {field.name for field in fields(NodeConfig)} - OPTIONS.keys() == {"store_options", "labels"}
