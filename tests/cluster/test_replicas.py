"""Partitions that two executors hold: what was acknowledged is read, whoever is asked and whichever copy answers."""

import json
from urllib.request import urlopen

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def test_replicas_give_what_was_acknowledged_before_and_explain_says_how_old_it_may_be():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=2_000, node_options={"replicas": "2"}) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        assert "2 at replicas, at most 0 ms old" in cluster.explain("select count(*) from t")
        expected = 0
        for turn in range(6):
            ids = list(range(turn * 10, turn * 10 + 10))
            rows = pa.table([ids, [1] * 10], schema=SCHEMA)
            expected += cluster.ingest("t", rows, atomic=turn % 2 == 1)
            for address in cluster.addresses():
                with connect(address) as client:
                    assert client.sql("select sum(v) as n from t")["n"].to_pylist() == [expected]
        cluster.sql("update t set v = 2 where id < 30")
        assert cluster.sql("select sum(v) as n from t")["n"].to_pylist() == [90]
        with urlopen(f"{cluster.status_url('executor-1')}/status") as answer:
            assert 0 <= json.load(answer)["replica_ages_ms"]["t"] < 60_000
        with urlopen(f"{cluster.status_url('scheduler-1')}/status") as answer:
            status = json.load(answer)
        assert (status["replicas"], status["max_replica_lag_ms"]) == (2, 0)
        with urlopen(cluster.status_url("executor-1", metrics=True)) as answer:
            text = answer.read().decode()
        assert 'executor_replica_age_ms{table="t"}' in text
        assert 'executor_load_bytes_total{state="loaded"}' in text
        cluster.kill("executor-2")
        assert cluster.sql("select sum(v) as n from t")["n"].to_pylist() == [90]
        assert cluster.ingest("t", pa.table([[100, 101], [5, 5]], schema=SCHEMA)) == 2
        assert cluster.sql("select sum(v) as n from t")["n"].to_pylist() == [100]
