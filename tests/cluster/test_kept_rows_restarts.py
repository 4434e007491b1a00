"""An executor that starts again has its rows already: stopped or killed, while rows come and go, and never others."""

import os
import signal
import time

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.duckdb.kept_tables import KEEP_MS
from ballista_py.errors import TransportError

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
NODE = "executor-1"


def rows(first, last):
    return pa.table({"id": range(first, last), "name": [f"n{i}" for i in range(first, last)]}, schema=SCHEMA)


@pytest.fixture
def cluster():
    with LocalCluster(schedulers=1, executors=1, ttl_ms=1_000) as made:
        made.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        made.ingest("t", rows(0, 400))
        yield made


def stop(cluster):
    """End the executor as an orchestrator does; it waits for nobody to take its partitions."""
    pid = cluster.pid(NODE)
    for _ in range(2):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
    until = time.monotonic() + 20
    while not cluster.log(NODE).rstrip().endswith(" stopped"):
        assert time.monotonic() < until
        time.sleep(0.05)
    cluster.kill(NODE)


def again(cluster):
    cluster.start(NODE)
    cluster.wait_until_loaded("t")
    until = time.monotonic() + 20
    while True:
        try:
            return cluster.shown(NODE)["hydration"]
        except TransportError:  # where another one holds all, it may not have said its port yet
            assert time.monotonic() < until
            time.sleep(0.1)


def numbers(cluster, what="count(*) as n, sum(id) as total"):
    return list(cluster.sql(f"select {what} from t").to_pylist()[0].values())


def test_an_executor_that_was_stopped_loads_nothing_when_it_starts_again(cluster):
    for _ in range(2):
        stop(cluster)
        found = again(cluster)
        assert (found["files_kept"], found["files_loaded"]) == (4, 0)
        assert numbers(cluster) == [400, sum(range(400))]


def test_one_that_was_killed_loads_what_it_had_not_packed(cluster):
    time.sleep(KEEP_MS / 1_000 + 2)
    cluster.ingest("t", rows(400, 401))
    cluster.kill(NODE)
    found = again(cluster)
    assert found["files_kept"] >= 3
    assert found["files_kept"] + found["files_loaded"] == 5
    assert numbers(cluster) == [401, sum(range(401))]


def test_what_changed_before_it_was_stopped_is_as_it_was_changed(cluster):
    cluster.sql("delete from t where id % 7 = 3")
    cluster.sql("update t set name = 'x' where id % 11 = 3")
    cluster.sql("alter table t add column more int default 5")
    wanted = numbers(cluster, "count(*), sum(id), max(name), sum(more), count(distinct name)")
    stop(cluster)
    assert again(cluster)["files_kept"] >= 4
    assert numbers(cluster, "count(*), sum(id), max(name), sum(more), count(distinct name)") == wanted


def test_rows_of_a_table_that_was_made_anew_meanwhile_are_not_those_of_the_former_one(cluster):
    stop(cluster)
    cluster.drop_table("t")
    cluster.start(NODE)
    cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
    assert numbers(cluster, "count(*)") == [0]
    cluster.ingest("t", rows(7, 9))
    assert numbers(cluster) == [2, 15]


def test_damage_that_was_done_meanwhile_is_served_to_nobody(cluster):
    stop(cluster)
    (kept,) = (cluster.data_dir(NODE) / "engine").glob("held*.duckdb")
    data = bytearray(kept.read_bytes())
    for place in range(3 << 12, len(data), 4_096):
        data[place] ^= 1
    kept.write_bytes(data)
    assert again(cluster)["files_loaded"] == 4
    assert numbers(cluster) == [400, sum(range(400))]
    assert cluster.log(NODE).count("kept_rows_not_used") == 1


def test_an_executor_that_handed_its_partitions_over_has_their_rows_when_they_come_back():
    with LocalCluster(schedulers=1, executors=2, ttl_ms=1_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(8, id)"])
        cluster.ingest("t", rows(0, 400))
        os.kill(cluster.pid(NODE), signal.SIGTERM)
        until = time.monotonic() + 30
        while not cluster.log(NODE).rstrip().endswith(" stopped"):
            assert numbers(cluster) == [400, sum(range(400))]
            assert time.monotonic() < until
        assert " drained" in cluster.log(NODE)
        cluster.kill(NODE)
        found = again(cluster)
        cluster.kill("executor-2")
        while found["hydrated"] < 8:
            found = cluster.shown(NODE)["hydration"]
            assert time.monotonic() < until + 60
        assert found["files_kept"] >= 4
        assert numbers(cluster) == [400, sum(range(400))]


def test_two_executors_of_one_folder_are_refused_by_name(cluster):
    (kept,) = (cluster.data_dir(NODE) / "engine").glob("held.lock")
    assert kept.read_text() == str(cluster.pid(NODE))
