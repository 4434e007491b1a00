"""An executor's copies of data files outlive it; what was damaged meanwhile is fetched again."""

import shutil

import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
ROWS = pa.table({"id": list(range(400)), "name": [f"n{i}" for i in range(400)]}, schema=SCHEMA)


def test_a_restarted_executor_finds_its_copies_and_fetches_only_what_was_damaged():
    with LocalCluster(schedulers=1, executors=1, ttl_ms=1_000, node_options={"cache-format": "vortex"}) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        cluster.ingest("t", ROWS)

        def restarted():
            cluster.kill("executor-1")
            shutil.rmtree(cluster.data_dir("executor-1") / "engine")  # with its rows it would ask for no copy
            cluster.start("executor-1")
            cluster.wait_until_loaded("t")
            assert cluster.sql("select sum(id) as total from t")["total"].to_pylist() == [sum(range(400))]
            return cluster.shown("executor-1")["cache"]

        restarted()  # whatever the ingest made, now every file has a copy
        cache = restarted()
        assert (cache["fetched"], cache["damaged"]) == (0, 0)
        assert cache["reused"] == cache["files"] == 4
        first, *_ = sorted((cluster.data_dir("executor-1") / "files").glob("*.vortex.*"))
        first.write_bytes(first.read_bytes()[:-1] + b"?")
        cache = restarted()
        assert (cache["reused"], cache["fetched"], cache["damaged"]) == (3, 1, 1)
