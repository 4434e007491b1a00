"""A node's configuration: one file, flags over it, and errors that name the field."""

import pytest
import yaml
from attrs import fields
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ballista_py.errors import ConfigError
from ballista_py.node.cli.node_words import OPTIONS
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
        ({"tttl_ms": 1}, "did you mean 'ttl_ms'"),
        ({"allow_insecure_connections": "true"}, "allow_insecure_connections"),
        ({"log_level": "LOUD"}, "log_level: 'LOUD' is none of DEBUG, INFO, WARNING, ERROR"),
        ({"log_level": "WARN"}, "did you mean WARNING"),
        ({"ttl_ms": "99999999999h"}, "ttl_ms: '99999999999h' is longer than a hundred years"),
        ({"state_location": "s3://key:hunter2hunter2@b/x"}, "state_location: the URL names a user or a password"),
        ({"state_location": "s3://key@b/x"}, "leave them out, and give store_options"),
        ({"ttl_ms": "nan"}, "ttl_ms"),
        ({"ttl_ms": float("inf")}, "ttl_ms"),
        ({"ttl_ms": "30 days"}, "ttl_ms: '30 days' is no time"),
        ({"ttl_ms": True}, "ttl_ms"),
        ({"capacity": "1e400"}, "capacity"),
        ({"max_merge_bytes": 2.5}, "max_merge_bytes: '2.5' is no whole number"),
        ({"max_merge_bytes": 10**400}, "max_merge_bytes"),
        ({"threads": 0}, "threads"),
        ({"memory_limit": "lots"}, "memory_limit"),
        ({"scheduler_address": "a:1"}, "scheduler_address: .* takes a list"),
        ({"labels": ["a"]}, "labels"),
        ({"labels": {"rack": {"row": "1"}}}, "labels"),
        ({"flight_tokens_file": "a\nb"}, "flight_tokens_file"),
        ({"role": object()}, "no value of a configuration"),
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


def written(tmp_path, text: str | bytes):
    path = tmp_path / "node.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


BASE = "role: scheduler\nnode_id: s1\nstate_location: memory://x\nallow_insecure_connections: true\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE.replace("true", '"no"'), ":4:29: allow_insecure_connections: 'no' is neither true nor false"),
        (BASE.replace("true", "no"), ":4:29: allow_insecure_connections: 'no' is neither"),
        (BASE.replace("true", '"true"'), "without quotes"),
        (BASE.replace("true", "1"), "allow_insecure_connections"),
        (BASE.replace("true", "[]"), "allow_insecure_connections"),
        (BASE + "ttl_ms: soon\n", ":5:9: ttl_ms: 'soon' is no time"),
        (BASE + "ttl_ms: .inf\n", ":5:9: ttl_ms"),
        (BASE + "ttl_ms: -5\n", ":5:9: ttl_ms"),
        (BASE + "flight_port: 0x10\n", "flight_port: '0x10' is no whole number"),
        (BASE + 'flight_port: "80"\n', "flight_port"),
        (BASE + "flight_port: 70000\n", ":5:14: flight_port"),
        (BASE + "flight_port: " + "9" * 5_000, "flight_port"),
        (BASE + "ttl-ms: 1\nttl_ms: 2\n", "ttl_ms: is given twice; the first is at .*:5:1"),
        (BASE + "ttl_ms: 1\nttl_ms: 2\n", "given twice"),
        (BASE + "ttl_sm: 1\n", ":5:9: unknown field 'ttl_sm'; did you mean 'ttl_ms'"),
        (BASE + "labels: {rack: 1, rack: 2}\n", "given twice"),
        (BASE + "labels: {rack: }\n", "labels"),
        (BASE + "log_level: LOUD\n", ":5:12: log_level"),
        (BASE + "node_id2: !!python/object/apply:os.system [ls]\n", "a tag"),
        (BASE + "? [a]\n: b\n", "a name was expected"),
        (BASE + "---\n" + BASE, "second document"),
        (BASE + BOMB, ":5:4: an anchor or alias"),
        (BASE + "store_options: " + "[" * 5_000 + "]" * 5_000, "levels"),
        (BASE + "store_options: " + "{a: " * 5_000 + "}" * 5_000, "levels"),
        (BASE + "store_options: {password: [hunter2, 1], other: *x}\n", "alias"),
        ("[" * 5_000, "levels|not YAML"),
        (BASE.encode() + b"labels: {rack: \xff}\n", ":5: byte .* is not UTF-8"),
        (BASE.encode("utf-16"), "not UTF-8"),
        (BASE + "labels: {a: '\x07'}", "not YAML"),
        ("x" * (2 << 20), "larger than"),
        ("'role'", "mapping of field to value"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_place_and_the_way_out(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as raised:
        load_config(path, {})
    assert str(raised.value).startswith(path)
    assert "\n" not in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("30s", 30_000), ("'5m'", 300_000), ("1h", 3_600_000), ("5000", 5_000), ("1.5s", 1_500)],
)
def test_times_are_milliseconds_or_have_a_unit(tmp_path, text, ms):
    assert load_config(written(tmp_path, f"{BASE}ttl_ms: {text}\n"), {}).ttl_ms == ms
    flag = text.strip("'")
    assert load_config(None, {**NEEDED, "partition_discovery_interval": flag}).partition_discovery_interval == ms


def test_texts_are_taken_as_they_are_written_and_options_of_the_store_by_their_look(tmp_path):
    text = (
        BASE.replace("s1", "007") + "labels: {rack: 1_0, zone: no}\nscheduler_address: []\nthreads: null\n"
        "store_options: {anon: true, retries: 3, wait: 0.5, name: 'true', none: ~, more: {a: [1, b]}}\n"
    )
    config = load_config(written(tmp_path, "\ufeff" + text), {"log_level": "debug"})
    assert (config.node_id, config.labels, config.threads, config.log_level) == (
        "007", {"rack": "1_0", "zone": "no"}, None, "DEBUG",
    )  # fmt: skip
    assert config.store_options == {
        "anon": True, "retries": 3, "wait": 0.5, "name": "true", "none": None, "more": {"a": [1, "b"]},
    }  # fmt: skip


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=5), st.dates(),
    st.sampled_from(["30s", "no", "LOUD", "1e9", "25%", "executor", "a:1", "~", "0x10", "&a", "*a", "!x", "? x", "["]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)
NAMES = st.one_of(st.sampled_from([field.name for field in fields(NodeConfig)]), st.text(max_size=12))
FILES = st.one_of(
    st.dictionaries(NAMES, VALUES, max_size=4).map(lambda found: yaml.safe_dump({**NEEDED, **found}).encode()),
    st.lists(st.tuples(NAMES, st.text(max_size=20)), max_size=3).map(
        lambda lines: (BASE + "".join(f"{name}: {value}\n" for name, value in lines)).encode(
            "utf-8", "surrogatepass"
        )
    ),
    st.binary(max_size=80),
    st.tuples(st.integers(0, len(BASE)), st.binary(max_size=4)).map(
        lambda at: BASE.encode()[: at[0]] + at[1] + BASE.encode()[at[0] :]
    ),
)


def outcome(path, overrides) -> NodeConfig | str:
    """The configuration, or the words with which it is refused."""
    try:
        return load_config(path, overrides)
    except ConfigError as error:
        return str(error)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES)
def test_any_file_is_a_configuration_or_one_line(tmp_path, data):
    found = outcome(written(tmp_path, data), {})
    if isinstance(found, str):
        assert found.isprintable()
        assert len(found) < 1_500
    else:
        assert found.allow_insecure_connections is True or found.node_tls() is not None


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=3))
def test_any_flags_are_a_configuration_or_one_line(flags):
    found = outcome(None, {**NEEDED, **flags})
    assert isinstance(found, NodeConfig) or found.isprintable()


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
    assert {field.name for field in fields(NodeConfig)} - OPTIONS.keys() == {
        "store_options",
        "labels",
        "spark_conf",
        "spark_remote",  # whoever lists processes would see its token
    }


def test_spark_is_given_settings_with_secrets_and_jars(tmp_path):
    secrets, path = tmp_path / "secrets", tmp_path / "node.yaml"
    secrets.write_text("bucket hunter2\n")
    path.write_text(
        "spark:\n  conf: {spark.hadoop.fs.s3a.secret.key: '${secrets:bucket}', spark.jars: /a.jar}\n"
        "  jars: [/b.jar]\n"
    )
    config = load_config(str(path), {**NEEDED, "secrets_file": str(secrets)})
    assert config.spark_settings().options() == {
        "spark.hadoop.fs.s3a.secret.key": "hunter2",
        "spark.jars": "/a.jar,/b.jar",
    }
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("spark", "problem"),
    [
        ("{driver: x}", "unknown field 'driver'; known are conf, jars, master, remote"),
        ("{master: local}", r"node.yaml:1:17: spark: master: 'local' is no standalone cluster"),
        ("{master: [a]}", "spark_master: .* takes a text"),
        ("{remote: 'sc://h/token'}", r"node.yaml:1:17: spark: remote: it is no server of Spark Connect"),
        ("{remote: 'sc://h:1', master: 'spark://h:1'}", "two places: keep one"),
        ("{conf: {spark.master: yarn}}", r"node.yaml:1:15: spark: conf: 'spark.master' does not stand there"),
        ("{master: 'spark://h:1'}", "memory://, which only this process sees"),
        ("[a]", "takes a mapping, as {conf"),
        ("{jars: a}", "takes a list"),
    ],
)
def test_spark_is_given_nothing_that_is_not_understood(tmp_path, spark, problem):
    path = tmp_path / "node.yaml"
    path.write_text(f"spark: {spark}\n")
    with pytest.raises(ConfigError, match=problem):
        load_config(str(path), NEEDED)


def test_a_spark_elsewhere_is_told_where_its_driver_is_and_how_tasks_open_the_store(tmp_path):
    secrets, path = tmp_path / "secrets", tmp_path / "node.yaml"
    secrets.write_text("key hunter2\ntoken hunter3\n")
    path.write_text(
        "store_options: {secret: hunter2}\nnode_bind_address: 0.0.0.0\nnode_advertise_address: n1\n"
        "spark: {master: 'spark://h:7077', conf: {spark.cores.max: '4'}}\n"
    )
    flags = {**NEEDED, "state_location": "s3://b/p", "secrets_file": str(secrets)}
    found = load_config(str(path), flags).spark_settings()
    assert (found.master, found.remote, found.is_elsewhere) == ("spark://h:7077", None, True)
    assert found.options() == {
        "spark.driver.host": "n1",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.cores.max": "4",
    }
    assert found.needed_tasks().payload() == ("s3://b/p", '{"secret":"hunter2"}')
    path.write_text("spark: {remote: 'sc://h:15002/;token=${secrets:token}'}\n")
    config = load_config(str(path), flags)
    assert config.spark_settings().remote == "sc://h:15002/;token=hunter3"
    assert "hunter" not in f"{config!r} {found!r} {config.spark_settings()!r}"


def test_a_spark_of_the_node_needs_no_store_for_tasks():
    assert load_config(None, NEEDED).spark_settings().needed_tasks() is None


def test_a_token_of_a_server_is_in_no_error(tmp_path):
    path = tmp_path / "node.yaml"
    for remote in ('"sc://h/;token=hunter2\\a"', "'sc://h/;token hunter2'", "'sc://hunter2@h'"):
        path.write_text(f"spark: {{remote: {remote}}}\n")
        with pytest.raises(ConfigError) as raised:
            load_config(str(path), {**NEEDED, "state_location": "s3://b/p"})
        assert "hunter2" not in str(raised.value)
