"""What else may happen at a state location: a second cluster is started there, its server is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from load import SCHEMA, Clients, compare, counted, until
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import ConfigError
from ballista_py.node.local.processes import NodeProcess, ReservedPorts
from ballista_py.runtime import seeded_chance
from ballista_py.transport.client.client import connect

TTL_MS = 2_000
BUCKET = "bucket"
SERVER = Path(__file__).with_name("s3_server.py")
PYTHON = Path(sys.prefix) / "servers" / "bin" / "python"


def two_clusters(quick: bool) -> Outcome:
    """A second cluster is started at the location of the first: refused by name; of other names it is one cluster."""
    outcome, times = Outcome(), 1 if quick else 3
    with tempfile.TemporaryDirectory() as folder:
        location = (Path(folder) / "state").as_uri()
        with LocalCluster(2, 2, location, ttl_ms=TTL_MS) as first:
            first.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
            with Clients(first, outcome) as clients:
                until(clients.progressed())
                for _ in range(times):
                    _refused(outcome, location)
                if outcome.saw:
                    outcome.wrong.append("a refused cluster was noticed by clients of the first")
                until(clients.progressed())
                _joined(outcome, first, Path(folder))
                until(clients.progressed())
            compare(outcome, first, clients.written)
            members = {row["node_id"] for row in first.members()}
            if members != set(first.node_ids):
                outcome.wrong.append(f"members are {', '.join(sorted(members))}")
    outcome.size = f"{times} second clusters of 2 schedulers and 2 executors, and 2 nodes of other names"
    return outcome


def _refused(outcome: Outcome, location: str) -> None:
    second = LocalCluster(2, 2, location, ttl_ms=TTL_MS)
    try:
        second.start()
        outcome.wrong.append("a second cluster with the same names came up")
    except ConfigError as error:
        outcome.notes[:] = [f"refused: {error.message}"]
        if "already registered" not in error.message:
            outcome.wrong.append(f"not refused by name: {error.message}")
    finally:
        second.stop()


def _joined(outcome: Outcome, cluster: LocalCluster, folder: Path) -> None:
    """Nodes of other names join the cluster whose location they are given, answer for all of it, and leave."""
    reserved = ReservedPorts(3)
    flight, control, data = reserved.numbers()
    own = {"node-id": "scheduler-9", "flight-port": flight, "control-port": control}
    scheduler = _like(cluster, "scheduler-1", folder, own)
    executor = _like(cluster, "executor-1", folder, {"node-id": "executor-9", "data-port": data})
    try:
        scheduler.start()
        executor.start()
        with cluster.client() as client:
            wanted = {*cluster.node_ids, "scheduler-9", "executor-9"}
            until(lambda: {row["node_id"] for row in client.members()} == wanted)
        with connect(f"127.0.0.1:{flight}", retry_reads=True) as client:
            found, ids = counted(client)
        if found != ids or not found:
            outcome.wrong.append(f"a scheduler of another name counts {found} rows with {ids} ids")
    finally:
        for process in (executor, scheduler):
            process.terminate()
            process.join(60)
        reserved.close()
    until(lambda: {row["node_id"] for row in cluster.members()} == set(cluster.node_ids))


def _like(cluster: LocalCluster, node: str, folder: Path, own: dict[str, object]) -> NodeProcess:
    """A node as that one is, but for these options."""
    words = list(cluster._nodes.process(node).arguments)
    for name, value in {**own, "data-dir": folder / str(own["node-id"])}.items():
        words[words.index(f"--{name}") + 1] = str(value)
    return NodeProcess(str(own["node-id"]), words, folder / f"{own['node-id']}.log")


class S3Server:
    """localbucket, whose objects outlive it, as a process that can be killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        if not PYTHON.exists():
            raise ConfigError("the servers of the store tests are not installed: make .venv/.ready-dev")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = folder
        (folder / BUCKET).mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [str(PYTHON), str(SERVER), str(self.folder), str(self.port)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._listens)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def _listens(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise ConfigError("the S3 server did not start: is localbucket installed in .venv/servers?")
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def environment(variables: dict[str, str]):
    """With these variables set, for the nodes too."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def killed_s3(quick: bool) -> Outcome:
    """A persistent S3 server is killed amid writes and started again, again and again: no acknowledged row is lost."""
    outcome, times, chance = Outcome(), 2 if quick else 12, seeded_chance(4)
    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder) / "objects")
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        server.start()
        try:
            with environment(variables), LocalCluster(2, 2, f"s3://{BUCKET}/state", ttl_ms=5_000) as cluster:
                cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
                with Clients(cluster, outcome, store_fails=True) as clients:
                    for number in range(times):
                        until(clients.progressed())
                        time.sleep(chance.random())
                        server.kill()
                        time.sleep((0.2, 1.0, 8.0)[number % 3])  # the last one is longer than every lease
                        server.start()
                    until(clients.progressed())
                compare(outcome, cluster, clients.written)
        finally:
            server.kill()
    outcome.size = f"localbucket, {times} kills, away for up to {8 if times > 2 else 1} s"
    return outcome
