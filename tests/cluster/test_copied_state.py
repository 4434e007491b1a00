"""A state location is copied under a living cluster, and the copy is served beside it."""

from __future__ import annotations

import shutil
import threading

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import BallistaError, WrongCluster

pytestmark = pytest.mark.cluster
TTL_MS = 1_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
ANOTHER = "belongs to another cluster"


def rows(first, count):
    return pa.table({"id": range(first, first + count)}, schema=SCHEMA)


def count(client):
    return client.sql("select count(*) as n, count(distinct id) as ids from t").to_pylist()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A cluster, and one of a copy of its state; the copy has fewer nodes, so it names some that live elsewhere."""
    folder = tmp_path_factory.mktemp("copied")
    state, copied = folder / "state", folder / "copied"
    with LocalCluster(schedulers=2, executors=2, state_location=state.as_uri(), ttl_ms=TTL_MS) as first:
        first.create_table("t", schema=SCHEMA, partition_by=["bucket(8, id)"])
        first.ingest("t", rows(0, 100))
        # What is being written by those who live there is not there to be copied a moment later.
        shutil.copytree(state, copied, ignore=shutil.ignore_patterns("temporary"))
        first.ingest("t", rows(100, 50))
        second = LocalCluster(schedulers=1, executors=1, state_location=copied.as_uri(), ttl_ms=TTL_MS)
        yield first, second
        second.stop()


def test_nodes_of_a_copy_never_talk_to_those_of_the_cluster_that_it_was_copied_from(both):
    first, second = both
    over, answers = threading.Event(), []

    def ask():
        """From the first moment on, when the copy still lists nodes that live in the other cluster."""
        while not over.is_set():
            try:
                with connect(f"127.0.0.1:{second.ports['scheduler-1']['flight']}") as client:
                    answers.append(count(client))
            except BallistaError:
                over.wait(0.02)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        second.start()
        second.wait_until_loaded("t", timeout_ms=60_000)
    finally:
        over.set()
        asking.join(30)
    second.ingest("t", rows(1_000, 7))
    assert all(answer == [{"n": 100, "ids": 100}] for answer in answers)
    with second.client() as client:
        assert count(client) == [{"n": 107, "ids": 107}]
    with first.client() as client:
        assert count(client) == [{"n": 150, "ids": 150}]
        assert len(client.members()) == 4
    assert {row["node_id"] for row in second.members()} == {"scheduler-1", "executor-1"}
    logs = "".join(cluster.log(node_id) for cluster in both for node_id in cluster.node_ids)
    assert ANOTHER in logs


def test_a_client_of_a_cluster_asks_nobody_of_another(both):
    """The last test: it ends the first cluster."""
    first, second = both
    # A query may be on its way to a scheduler before the connection is known to be dead, so it is asked again.
    with connect(f"{first.addresses()[0]},{second.addresses()[0]}", retry_reads=True) as client:
        first.kill("scheduler-1")
        first.kill("scheduler-2")
        with pytest.raises(WrongCluster, match=ANOTHER):
            count(client)
