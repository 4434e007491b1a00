"""Nodes are restarted one after the other, while clients ask and write: nobody sees an error."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError
from ballista_py.transport.client.client import connect

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


class Clients:
    """A writer, a reader that repeats and one that does not; what they saw."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.errors: Counter[str] = Counter()
        self.said: list[str] = []
        self.wrong: list[str] = []
        self.written, self.sent, self.asked = 0, 0, Counter()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=run) for run in (self.write, self.read, self.read_once)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(120)

    def write(self) -> None:
        with connect(self.url) as client:
            while not self.over.is_set():
                rows = pa.table({"id": range(self.written, self.written + 10)}, schema=SCHEMA)
                self.sent += 10
                try:
                    assert client.ingest("t", rows) == 10
                except BallistaError as error:
                    self.wrong.append(f"a write: {error.code}: {error.message}")
                    return
                self.written += 10

    def read(self) -> None:
        with connect(self.url, retry_reads=True) as client:
            while not self.over.is_set():
                try:
                    self.ask(client, "repeats")
                except BallistaError as error:
                    self.wrong.append(f"a reader that repeats: {error.code}: {error.message}")

    def read_once(self) -> None:
        with connect(self.url) as client:
            while not self.over.is_set():
                try:
                    self.ask(client, "asks once")
                except BallistaError as error:
                    self.errors[error.code] += 1
                    self.said.append(f"{error.code}: {error.message}")

    def ask(self, client, who: str) -> None:
        least = self.written
        (found,) = client.sql("select count(*) as n, count(distinct id) as d from t").to_pylist()
        self.asked[who] += 1
        if not (least <= found["n"] <= self.sent and found["n"] == found["d"]):
            self.wrong.append(f"{found} where {least} to {self.sent} can be there")


@pytest.mark.long
@pytest.mark.parametrize(("replicas", "addresses"), [(1, 2), (2, 2), (1, 1)])
def test_nobody_sees_a_restart_of_every_node_in_turn(replicas, addresses):
    options = {"replicas": str(replicas), "partition-assignment-interval": "500"}
    with LocalCluster(schedulers=2, executors=3, ttl_ms=2_000, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
        clients = Clients("ballista://" + ",".join(cluster.addresses()[-addresses:]))
        try:
            for node in cluster.node_ids:
                cluster._nodes.process(node).terminate()
                cluster._nodes.process(node).join(60)
                cluster.start(node)
        finally:
            clients.stop()
        print(replicas, dict(clients.asked), dict(clients.errors), clients.written)
        assert clients.wrong == []
        assert not clients.errors, clients.said
        with cluster.client() as client:
            found = client.sql("select count(*) as n, count(distinct id) as d from t").to_pylist()
        assert found == [{"n": clients.written, "d": clients.written}]


def test_nobody_sees_a_scheduler_and_an_executor_go_and_what_they_had_is_elsewhere():
    """With the default intervals; both come to their end by themselves, long before their time is over."""
    with LocalCluster(schedulers=2, executors=2, ttl_ms=20_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
        clients = Clients("ballista://" + ",".join(cluster.addresses()))
        try:
            for node in ("executor-1", "scheduler-1"):
                process = cluster._nodes.process(node)
                process.terminate()
                process.join(120)
                assert process.returncode == 0
                assert "drained" in process.log_path.read_text()
        finally:
            clients.stop()
        assert clients.wrong == []
        assert not clients.errors, clients.said
        with cluster.client() as client:
            held = {one["node_id"]: one["partitions"] for one in client.members() if one["role"] == "executor"}
            found = client.sql("select count(*) as n, count(distinct id) as d from t").to_pylist()
        assert held == {"executor-2": 6}
        assert found == [{"n": clients.written, "d": clients.written}]


def test_a_client_with_one_address_is_never_left_alone_while_schedulers_are_restarted_in_turn():
    """The address it has is that of the one that stops next, and nobody else was listed when it came."""
    with LocalCluster(schedulers=2, executors=1, ttl_ms=2_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"])
        stop(cluster, "scheduler-1")
        wait_until(
            lambda: [one["node_id"] for one in cluster.members() if one["role"] == "scheduler"] == ["scheduler-2"]
        )
        clients = Clients(f"ballista://{cluster.addresses()[0]}")
        try:
            wait_until(lambda: len(clients.asked) == 2 and clients.written)
            cluster.start("scheduler-1")
            stop(cluster, "scheduler-2")
            answered = clients.asked.total()
            wait_until(lambda: clients.asked.total() > answered + 10)
        finally:
            clients.stop()
        assert clients.wrong == []
        assert not clients.errors, clients.said
        with cluster.client() as client:
            found = client.sql("select count(*) as n, count(distinct id) as d from t").to_pylist()
        assert found == [{"n": clients.written, "d": clients.written}]


def stop(cluster: LocalCluster, node: str) -> None:
    """As a host does it: a signal, and then it waits until the node has ended by itself."""
    process = cluster._nodes.process(node)
    process.terminate()
    process.join(60)
    assert process.returncode == 0


def wait_until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_second_signal_stops_a_node_that_nobody_relieves():
    with LocalCluster(
        schedulers=1, executors=1, ttl_ms=20_000, node_options={"drain-timeout-ms": "10m"}
    ) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"])
        process = cluster._nodes.process("executor-1")
        process.terminate()
        deadline = time.monotonic() + 60
        while "draining" not in process.log_path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert cluster.sql("select count(*) as n from t").to_pylist() == [{"n": 0}]  # it serves on
        process.interrupt()
        process.join(60)
        assert process.returncode == 0
        assert "drain_ended" in process.log_path.read_text()
