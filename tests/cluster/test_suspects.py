"""With copies a killed or stopped executor is missed by nobody, though its lease runs on for half a minute."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TTL_MS = 30_000


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_every_query_is_answered_by_the_copies(wait_until, way):
    options = {"replicas": "2", "partition-assignment-interval": "500"}
    with LocalCluster(schedulers=1, executors=3, ttl_ms=TTL_MS, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
        with cluster.client() as client:
            client.ingest("t", pa.table({"id": range(60)}, schema=SCHEMA))
            wait_until(lambda: replicas(cluster) == 6)
            pid = cluster.pid("executor-1")
            os.kill(pid, way)
            try:
                for _ in range(5):
                    assert client.sql("select count(distinct id) as n from t").to_pylist() == [{"n": 60}]
                assert "executor-1" in {row["node_id"] for row in client.members()}  # its lease is not over
            finally:
                os.kill(pid, signal.SIGKILL) if way == signal.SIGSTOP else None


def replicas(cluster: LocalCluster) -> int:
    """How many partitions are held as replicas, over all executors."""
    held = [cluster.shown(node)["held"] for node in cluster.node_ids if node.startswith("executor")]
    return sum(len(table["active"]) for tables in held for table in tables) - 6
