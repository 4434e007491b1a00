"""What executors ask for and what a cluster tells of itself, on a whole cluster."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time

import pytest

from ballista_py import LocalCluster, connect, open_store
from ballista_py.errors import BallistaError, ConfigError, SchedulerLost, SqlError, TransportError
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.grpc import rpc
from ballista_py.transport.endpoints import open_control

pytestmark = pytest.mark.cluster
COUNT = "select count(*) as n from orders"


@pytest.fixture(scope="module")
def state(tpch_state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("surface") / "state"
    shutil.copytree(tpch_state, folder)
    return folder.as_uri()


@pytest.fixture(scope="module")
def lazy(state):
    """A cluster that moves one partition a minute, unless it is asked to do better."""
    options = {"partition-assignment-interval": "60000", "max-partition-assignments-per-interval": "1"}
    with LocalCluster(
        schedulers=2, executors=2, state_location=state, ttl_ms=2_000, node_options=options
    ) as cluster:
        cluster.wait_until_loaded(timeout_ms=60_000)
        yield cluster


def count(cluster):
    return cluster.sql(COUNT).to_pylist()[0]["n"]


def test_executors_that_start_get_their_share_at_once(lazy, duck):
    assert count(lazy) == duck.sql(COUNT).to_arrow_table().to_pylist()[0]["n"]


def test_metrics_and_tasks_of_all_nodes_are_gathered_by_one_scheduler(lazy):
    assert count(lazy) > 0
    address = f"127.0.0.1:{lazy.ports['scheduler-1']['control']}"

    async def ask():
        async with open_control(address) as channel:
            stub = rpc.ControlStub(channel)
            metrics = await stub.GetMetrics(pb.GetMetricsRequest(include_executors=True), timeout=60)
            tasks = await stub.GetTaskHistory(pb.GetTaskHistoryRequest(limit=100), timeout=60)
            definition = await stub.GetAppDefinition(pb.GetAppDefinitionRequest(), timeout=60)
            return metrics.reports, tasks.tasks, definition

    reports, tasks, definition = asyncio.run(ask())
    assert {report.node_id for report in reports} == {"scheduler-1", "executor-1", "executor-2"}
    assert all(b"node_lease_remaining_ms" in report.metrics_text for report in reports)
    legs = [task for task in tasks if task.kind == "leg" and task.outcome == "done"]
    assert legs
    assert {leg.node_id for leg in legs} <= {"executor-1", "executor-2"}
    assert len(definition.tables_json) == 8


def test_to_start_a_cluster_starts_what_is_stopped_of_it_and_nothing_twice(lazy):
    before = {node: lazy.pid(node) for node in lazy.node_ids}
    lazy.start()
    assert {node: lazy.pid(node) for node in lazy.node_ids} == before
    with pytest.raises(ConfigError, match="node 'executor-1' is running already"):
        lazy.start("executor-1")
    lazy.kill("executor-2")
    lazy.start()
    assert {node for node in lazy.node_ids if lazy.pid(node) != before[node]} == {"executor-2"}


def test_a_cluster_that_was_stopped_says_so_when_it_is_started(tmp_path):
    cluster = LocalCluster(1, 1, (tmp_path / "state").as_uri())
    cluster.stop()
    for node in (None, "executor-1"):
        with pytest.raises(TransportError, match="was stopped: make another one"):
            cluster.start(node)


def test_a_client_sees_what_ran_and_what_it_cancelled(lazy):
    with lazy.client() as client:
        with client.stream("select a.* from lineitem a, lineitem b") as stream:
            next(iter(stream))
        client.sql("select 17 as answer")

        def outcomes():
            return {task["text"]: task["outcome"] for task in client.tasks()}

        until = time.monotonic() + 10
        while "running" in outcomes().values() and time.monotonic() < until:
            time.sleep(0.05)
        assert outcomes()["select a.* from lineitem a, lineitem b"] != "running"
        assert outcomes()["select 17 as answer"] == "done"
        with pytest.raises(SqlError):
            client.sql("select nonsense from orders")
        assert outcomes()["select nonsense from orders"] == "planning.sql"


def test_data_that_was_renewed_behind_the_clusters_back_shows_after_a_refresh(lazy, state, wait_until):
    store = open_store(state)
    table = ObjectState(store, CLUSTER_KEY, ClusterDocument).read().document.tables["orders"]
    before = count(lazy)
    storage = PartitionStorage(store, table.folder, table.spec.path((0,)))
    manifest = storage.read().document
    rows = manifest.rows
    assert rows > 0
    storage.commit(remove=[file.path for file in manifest.files], epoch=manifest.epoch, token="emptied")
    with lazy.client() as client:
        assert client.refresh("orders") == 2
        with pytest.raises(SqlError, match="nothing_here"):
            client.refresh("nothing_here")
    wait_until(lambda: count(lazy) == before - rows)


@pytest.mark.long
def test_a_stopped_scheduler_is_lost_for_a_running_query_and_reads_go_to_the_other(lazy):
    first, second = lazy.addresses()
    running = connect(first)
    stream = running.stream("select a.* from lineitem a, lineitem b")
    batches = iter(stream)
    next(batches)
    os.kill(lazy.pid("scheduler-1"), signal.SIGSTOP)
    try:
        with connect(f"{first},{second}", retry_reads=True) as client:
            assert client.sql("select 1 as one").to_pylist() == [{"one": 1}]
        with pytest.raises(SchedulerLost):
            for _ in batches:
                pass
    finally:
        os.kill(lazy.pid("scheduler-1"), signal.SIGCONT)
    until = time.monotonic() + 30
    while True:
        try:
            with connect(first) as client:
                assert client.sql(COUNT).num_rows == 1
            return
        except BallistaError:
            assert time.monotonic() < until
            time.sleep(0.2)
