"""`ballista-py node` is read by two: plainly, for a node that runs, and by the framework that says what is wrong."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import ballista_py.node.process
from ballista_py.node.cli.app import app
from ballista_py.node.cli.node_words import OPTIONS, NodeCall, field_types, flag, read_plainly, value_type

START = ["node", "--role", "executor", "--node-id", "e-1", "--scheduler-address", "127.0.0.1:1"]
START = [*START, "--state-location", "memory://x", "--allow-insecure-connections"]
VALUES = {
    "role": "executor",
    "engine": "polars",
    "log_level": "DEBUG",
    "log_format": "json",
    "cache_format": "vortex",
    "store_option": "a=b",
    "otlp_metrics_table": "figures",
    "memory_limit": "4GB",
    "otlp_endpoint": "http://127.0.0.1:4317",
    "spark_master": "spark://127.0.0.1:7077",
}
FILES = {"config", "app"}
TOGETHER = [name for name in OPTIONS if name.startswith(("node_mtls_", "flight_tls_")) and "removed" not in name]


def by_framework(words, monkeypatch):
    """The node that the framework of the command line would start; None if it refuses."""
    asked = []
    monkeypatch.setattr(
        ballista_py.node.process,
        "run_node",
        lambda config, parent_pid=None: asked.append(NodeCall(config, parent_pid)),
    )
    CliRunner().invoke(app, words)
    return asked[0] if asked else None


def test_words_that_are_right_are_read_alike_by_both(monkeypatch, tmp_path):
    (tmp_path / "node.yaml").write_text("ttl_ms: 5000\n")
    for more in (
        [],
        ["--ttl-ms", "9s", "--ttl-ms=12s"],
        ["--scheduler-address=b:2", "--parent-pid", "17"],
        ["--store-option", "region=eu", "--store-option", "anon=true", "--memory-limit", "25%"],
        ["--config", str(tmp_path / "node.yaml"), "--open-metrics"],
        ["--data-dir", str(tmp_path), "--threads", "2"],
    ):
        plain = read_plainly([*START, *more])
        assert plain is not None, more
        assert plain == by_framework([*START, *more], monkeypatch), more


def test_what_is_not_plainly_right_is_left_to_the_framework():
    for more in (
        ["--help"],
        ["-h"],
        ["--no-such-thing", "1"],
        ["--ttl-ms"],
        ["--ttl-ms", "soon"],
        ["--ttl-ms", "--open-metrics"],
        ["--open-metrics=true"],
        ["--parent-pid", "x"],
        ["--store-options", "a=b"],
        ["--config", "/no/such/file.yaml"],
        ["--", "x"],
        ["word"],
    ):
        assert read_plainly([*START, *more], {}) is None, more
    assert read_plainly(["nod", *START[1:]], {}) is None
    assert read_plainly([], {}) is None
    assert read_plainly(START, {"_BALLISTA_PY_COMPLETE": "complete_bash"}) is None


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in TOGETHER])
def test_each_option_is_known_to_the_plain_reader(name, monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("threads: 2\n")
    (tmp_path / "app.yaml").write_text("version: v1\nname: x\nrevision: 1\n")
    value = str(tmp_path / f"{name}.yaml") if name in FILES else VALUES.get(name, "1")
    words = [*START, flag(name), *([] if value_type(field_types().get(name, str)) is bool else [value])]
    words += ["--role", "scheduler"] if name == "app" else []
    words += ["--state-location", f"file://{tmp_path}"] if name == "spark_master" else []  # workers find no memory
    plain = read_plainly(words, {})
    assert plain is not None
    assert plain == by_framework(words, monkeypatch)


def test_options_that_need_each_other_are_known_together(monkeypatch):
    words = [*START, *(word for name in TOGETHER for word in (flag(name), "a.pem"))]
    assert read_plainly(words, {}) is not None
    assert read_plainly(words, {}) == by_framework(words, monkeypatch)
