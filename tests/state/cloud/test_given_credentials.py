"""Endpoints and credentials come by argument, file, flag and variables of the SDKs, as docs/guide-stores.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ballista_py.errors import BallistaError, ConfigError
from ballista_py.node.config import load_config
from ballista_py.node.local.cluster import LocalCluster
from ballista_py.state.stores.store import open_store

GUIDE = (Path(__file__).parents[3] / "docs" / "guide-stores.md").read_text()
NEEDED = {"role": "scheduler", "node_id": "s", "allow_insecure_connections": True}
OURS = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST")
EXAMPLES = {
    "s3": r"```yaml\n(state_location: s3://.*?)```",
    "gcs": r"```yaml\n(state_location: gs://.*?)```",
    "azure": r"```yaml\n(state_location: abfs://.*?)```",
}
AZURE_LINE = r"DefaultEndpointsProtocol=https;.*"


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch, tmp_path):
    """No credentials in the environment, nor in files of the user."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def at_server(text: str, endpoint) -> str:
    """The example with the places and keys of the test's server instead of its own."""
    text = re.sub(r"my-(bucket|container)", "bucket", text)
    text = re.sub(r"https://\w+\.example\.com", endpoint.url(), text)
    text = re.sub(AZURE_LINE, endpoint.connection(), text)
    text = text.replace("/etc/keys/service-account.json", "anon")
    return text.replace("my-access-key", "testing").replace("my-secret-key", "s3cr3t-of-s3")


def works(store, key):
    store.create(key, b"1")
    return store.get(key).data == b"1"


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure"], indirect=True)
def test_the_example_of_the_guide_opens_the_store(endpoint, prefix, tmp_path):
    (example,) = re.findall(EXAMPLES[endpoint.kind], GUIDE, re.DOTALL)
    file = tmp_path / "node.yaml"
    file.write_text(at_server(example, endpoint))
    config = load_config(str(file), NEEDED)
    assert works(open_store(config.state_location, **config.store_options), f"{prefix}/a")


VARIABLES = {
    "s3": lambda at: {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-s3", "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": at.url(),
    },
    "gcs": lambda at: {"STORAGE_EMULATOR_HOST": at.url()},
    "azure": lambda at: {"AZURE_STORAGE_CONNECTION_STRING": at.connection()},
}  # fmt: skip
SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "abfs"}


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure"], indirect=True)
def test_the_variables_of_the_sdk_are_enough(endpoint, prefix, monkeypatch):
    for name, value in VARIABLES[endpoint.kind](endpoint).items():
        monkeypatch.setenv(name, value)
    if endpoint.kind == "gcs":  # the emulator knows no credentials
        assert works(open_store(f"gs://bucket/{prefix}", token="anon"), "a")
    else:
        assert works(open_store(f"{SCHEMES[endpoint.kind]}://bucket/{prefix}"), "a")


def test_the_region_of_newer_sdks_is_read(monkeypatch, s3_server):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    options = {"endpoint_url": s3_server.url(), "key": "k", "secret": "s"}
    assert open_store("s3://bucket", **options)._fs.client_kwargs["region_name"] == "eu-central-1"
    assert open_store("s3://bucket", **options, region="us-east-1")._fs.client_kwargs["region_name"] == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    assert "region_name" not in open_store("s3://bucket", **options)._fs.client_kwargs  # its SDK reads that one


def test_no_credentials_is_one_line_that_says_how_to_give_some(s3_server, azure_server):
    found = open_store("s3://bucket/p", endpoint_url=s3_server.url(), region="us-east-1")
    for call in (lambda: found.get("a"), lambda: found.create("a", b"1"), lambda: list(found.list(""))):
        with pytest.raises(BallistaError) as raised:
            call()
        assert "no credentials" in str(raised.value)
        assert "AWS_ACCESS_KEY_ID" in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="AZURE_STORAGE_CONNECTION_STRING"):
        open_store("abfs://bucket/p")
    blob = f"BlobEndpoint={azure_server.url()}/devstoreaccount1;AccountName=devstoreaccount1"
    with pytest.raises(BallistaError, match="AZURE_STORAGE_CONNECTION_STRING"):
        open_store("abfs://bucket/p", connection_string=blob).create("a", b"1")


def test_flags_go_over_the_file_and_read_variables(tmp_path):
    file = tmp_path / "node.yaml"
    file.write_text("state_location: s3://b/p\nstore_options: {key: a, secret: b}\n")
    config = load_config(str(file), {**NEEDED, "store_options": {"secret": "c", "anon": True}})
    assert config.store_options == {"key": "a", "secret": "c", "anon": True}


def test_a_node_takes_options_as_flags_and_shows_none_of_them(s3_server):
    flags = ["endpoint_url=http://127.0.0.1:1", "key=testing", "secret=@HIDDEN", "region=us-east-1"]
    node = ["node", "--role", "scheduler", "--node-id", "s", "--allow-insecure-connections"]
    words = [word for flag in flags for word in ("--store-option", flag)]
    command = [sys.executable, "-m", "ballista_py.node", *node, "--state-location", "s3://bucket/p", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HIDDEN": "hunter2hunter2"})
    assert done.returncode == 1
    assert "could not be reached" in done.stderr  # by these options, and not by those of the environment
    assert "hunter2" not in done.stderr


@pytest.mark.whole
@pytest.mark.cluster
@pytest.mark.parametrize("endpoint", ["s3"], indirect=True)
def test_the_cluster_of_the_guide_runs_on_the_store(endpoint, capsys):
    (example,) = re.findall(r"```python\n(from ballista_py import LocalCluster\n.*?)```", GUIDE, re.DOTALL)
    exec(at_server(example, endpoint), {})
    assert "[{'m': 2}]" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="config file already"):
        LocalCluster(
            1, 0, "s3://bucket/p", store_options={"key": "k", "secret": "s"}, node_options={"config": "x"}
        )
