"""What Compose would run is run without it: its service of certificates, nodes with their flags, its client."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ballista_py.node.local.processes import NodeProcess, ReservedPorts

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKEN = "a-token-of-thirty-two-characters"


class Compose:
    """The services of compose.yaml, with `folder` as their volumes, and free ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self.services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
        self.folder = folder
        self.certificates = folder / "certificates"
        self.certificates.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.program("ballista-py", f'exec {shlex.quote(sys.executable)} -m ballista_py.node "$@"')
        if os.getuid() != 0:
            self.program("chown", "exit 0")  # which only the container's root may do

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def placed(self, text: str, name: str = "", **others: str) -> str:
        """A text of the file as a container reads it, with this machine's places."""
        for there, here in {
            "$$HOSTNAME": name,
            "$$": "$",
            "/certificates": str(self.certificates),
            "s3://ballista/cluster": (self.folder / "state").as_uri(),
            "/var/lib/ballista": str(self.folder / f"data-{name}"),
            **others,
        }.items():
            text = text.replace(there, here)
        return text

    def make_certificates(self) -> None:
        service = self.services["certificates"]
        (text,) = service["command"]
        done = subprocess.run(
            [*service["entrypoint"], self.placed(text)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "CLIENT_TOKEN": TOKEN},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def node(self, name: str, ports: dict[str, int], **others: str) -> NodeProcess:
        """The node, started as its container would."""
        (text,) = self.services[name]["command"]
        words = shlex.split(self.placed(text, name, **others))
        assert words[:2] == ["exec", "ballista-py"]
        given = [word for port, number in ports.items() for word in (f"--{port}-port", str(number))]
        started = NodeProcess(
            name, [*words[2:], *given, "--ttl-ms", "4000", "--skew-ms", "500"], self.folder / f"{name}.log"
        )
        started.start()
        return started

    def is_healthy(self, name: str, http_port: int) -> bool:
        kind, _python, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        asked = [word.replace(":8090/", f":{http_port}/") for word in words]
        return subprocess.run([sys.executable, *asked], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def compose(tmp_path_factory):
    made = Compose(tmp_path_factory.mktemp("compose"))
    made.make_certificates()
    return made


def test_every_file_that_a_service_names_is_made_by_the_service_of_certificates(compose):
    named = set()
    for name in compose.services:
        text = compose.placed(yaml.safe_dump(compose.services[name], width=10_000), name)
        if name != "certificates":
            named |= set(re.findall(rf"{re.escape(str(compose.certificates))}/[^\s\"':]+", text))
    scraped = compose.placed((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    named |= set(re.findall(rf"{re.escape(str(compose.certificates))}/\S+", scraped))
    assert len(named) == 3 + 2 * 5  # authority, removed nodes and tokens; a pair for each node
    assert [file for file in named if not Path(file).is_file()] == []


def test_a_second_up_changes_nothing_but_the_tokens(compose):
    files = [path for path in compose.certificates.rglob("*") if path.is_file() and path.name != "tokens"]
    before = {path: path.read_bytes() for path in files}
    compose.make_certificates()
    assert {path: path.read_bytes() for path in files} == before
    assert (compose.certificates / "tokens").read_text() == f"client {TOKEN}\n"


@pytest.mark.cluster
def test_nodes_start_with_the_flags_and_files_of_the_file_and_its_client_is_answered(compose):
    reserved = ReservedPorts(8)
    flight, control, http, metrics, *of_executor = reserved.numbers()
    nodes = [compose.node("scheduler-1", {"flight": flight, "control": control, "http": http, "metrics": metrics})]
    ports = dict(zip(("data", "parts", "http", "metrics"), of_executor, strict=True))
    at = {"scheduler-1:50052": f"localhost:{control}", "scheduler-2:50052": f"127.0.0.1:{control}"}
    nodes.append(compose.node("executor-1", ports, **at))
    try:
        deadline = time.monotonic() + 90
        for node, port in zip(nodes, (http, ports["http"]), strict=True):
            while not compose.is_healthy(node.node_id, port):
                assert node.running, node.log_path.read_text()
                assert time.monotonic() < deadline, node.log_path.read_text()
                time.sleep(0.2)
        client = {
            key: compose.placed(value.replace("scheduler-1:50051", f"127.0.0.1:{flight}"))
            for key, value in compose.services["client"]["environment"].items()
        }
        asked = subprocess.run(
            [sys.executable, "-m", "ballista_py.node", "sql", "--json", "select 6 * 7 as n"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **client, "BALLISTA_TOKEN": TOKEN},
        )
        assert '"n": 42' in asked.stdout, asked.stderr
    finally:
        for node in nodes:
            node.kill()
        reserved.close()
