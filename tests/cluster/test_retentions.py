"""Old rows are taken away by the schedulers, as often as a table declares; whole processes, no Spark."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.refresh import Refresh, Retention

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seen_at", pa.timestamp("us"))])
pytestmark = pytest.mark.cluster
OLD = "delete from {} where seen_at < now() - interval 30 day"


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=2, executors=1) as cluster:
        yield cluster


def eventually(holds):
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def rows(first: int, days: int, count: int = 4) -> pa.Table:
    at = datetime(2020, 1, 1) if days > 1_000 else datetime.now() - timedelta(days=days)
    return pa.table({"id": range(first, first + count), "seen_at": [at] * count}, schema=SCHEMA)


def ids(cluster, table):
    return sorted(cluster.sql(f"select id from {table}")["id"].to_pylist())


def row_of(cluster, table):
    return next(row for row in cluster.tables() if row["table"] == table)


def test_a_table_forgets_what_its_retention_says_and_shows_that_it_did(cluster):
    with cluster.client() as client:
        retention = Retention(sql=OLD.format("kept"), every="1s")
        client.create_table("kept", None, ["bucket(4, id)"], schema=SCHEMA, retention=retention)
    cluster.ingest("kept", rows(0, days=2_000))
    cluster.ingest("kept", rows(100, days=1))
    eventually(lambda: ids(cluster, "kept") == [100, 101, 102, 103])
    eventually(lambda: row_of(cluster, "kept")["retention"]["last_rows"] is not None)
    shown = row_of(cluster, "kept")
    assert shown["refresh"] is None
    assert (shown["retention"]["every"], shown["retention"]["last_error"]) == ("1s", None)
    (seen,) = cluster.sql(
        "select retention_every, retention_error, refresh_mode from runtime.tables where table_name = 'kept'"
    ).to_pylist()
    assert seen == {"retention_every": "1s", "retention_error": None, "refresh_mode": None}


def test_sql_declares_a_retention_and_alters_how_often_it_runs(cluster):
    text = OLD.format("made")
    cluster.sql(
        "create table made (id bigint not null, seen_at timestamp) partitioned by (bucket(2, id)) "
        f"with (retention_sql = '{text}', retention_check_interval = '1h')"
    )
    cluster.ingest("made", rows(0, days=2_000))
    assert row_of(cluster, "made")["retention"]["every"] == "1h"
    assert ids(cluster, "made") == [0, 1, 2, 3]  # the first run is an hour from now
    cluster.sql("alter table made set (retention_check_interval = '1s')")
    eventually(lambda: ids(cluster, "made") == [])
    with pytest.raises(SqlError, match="has a retention, which names it, so it cannot be renamed"):
        cluster.sql("alter table made rename to other")
    with pytest.raises(SqlError, match="retention of table 'made' names column 'seen_at'"):
        cluster.sql("alter table made drop column seen_at")


@pytest.mark.parametrize(
    ("retention", "problem"),
    [
        ("delete from other where id = 1", "deletes from 'other'"),
        ("delete from wrong", "deletes every row"),
        ("update wrong set id = 1", "is no DELETE of its own rows"),
        ("delete from wrong where id in (select 1)", "is no DELETE of its own rows"),
        ("delete from wrong where id = 1; drop table kept", "more than one statement"),
        ("delete from wrong where nothing = 1", "names 'nothing'"),
        ("delete from wrong where id > (select count(*) from read_csv('/etc/passwd'))", "DELETE"),
    ],
)
def test_a_retention_that_is_no_delete_of_its_own_rows_is_refused(cluster, retention, problem):
    with pytest.raises((ConfigError, SqlError), match=re.escape(problem)), cluster.client() as client:
        client.create_table("wrong", None, ["bucket(2, id)"], schema=SCHEMA, retention=Retention(sql=retention))
    assert "wrong" not in {row["table"] for row in cluster.tables()}


def test_a_refresh_is_of_tables_with_a_source_and_by_a_way_that_there_is(cluster):
    with cluster.client() as client:
        with pytest.raises(ConfigError, match="has no source that it could be refreshed from"):
            client.create_table("wrong", None, ["bucket(2, id)"], schema=SCHEMA, refresh=Refresh(every="5m"))
        with pytest.raises(SqlError, match="there is no table 'nothing'"):
            client.refresh("nothing", "full")
        client.create_table("managed", None, ["bucket(2, id)"], schema=SCHEMA)
        with pytest.raises(ConfigError, match="has no source that it could be refreshed from"):
            client.refresh("managed", "full")
        assert client.refresh("managed") == 1


def test_a_retention_that_never_ends_keeps_no_other_from_its_turn_and_ends_with_its_table(cluster):
    endless = "delete from {} where levenshtein(repeat(s, 3000), repeat(reverse(s), 3000)) < 0"
    for number in range(3):
        name = f"endless{number}"
        cluster.sql(
            f"create table {name} (id bigint not null, s varchar) partitioned by (bucket(2, id)) with "
            f"(retention_sql = '{endless.format(name)}', retention_check_interval = '1s')"
        )
        cluster.sql(f"insert into {name} select i, 'text' || i from range(20000) r(i)")
    eventually(lambda: running_retentions(cluster))
    with cluster.client() as client:
        retention = Retention(sql=OLD.format("beside"), every="1s")
        client.create_table("beside", None, ["bucket(4, id)"], schema=SCHEMA, retention=retention)
    cluster.ingest("beside", rows(0, days=2_000))
    eventually(lambda: ids(cluster, "beside") == [])
    for number in range(3):
        cluster.sql(f"drop table endless{number}")
    eventually(lambda: not [task for task in running_retentions(cluster) if "endless" in task])


def running_retentions(cluster):
    found = "select input from runtime.task_history where task = 'retention' and end_time is null"
    return cluster.sql(found)["input"].to_pylist()


def test_a_scheduler_that_dies_leaves_retentions_to_the_others(cluster):
    with cluster.client() as client:
        retention = Retention(sql=OLD.format("dying"), every="1s")
        client.create_table("dying", None, ["bucket(2, id)"], schema=SCHEMA, retention=retention)
    eventually(lambda: row_of(cluster, "dying")["retention"]["slot"] >= 1)
    cluster.kill("scheduler-1")  # which comes first
    try:
        cluster.ingest("dying", rows(0, days=2_000))
        eventually(lambda: ids(cluster, "dying") == [])
    finally:
        cluster.start("scheduler-1")
