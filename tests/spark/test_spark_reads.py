"""The format `ballista` in Spark: the rows that the cluster gives, in parallel, of one instant; over Connect, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.spark import BallistaDataSource

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.float64()),
        ("word", pa.string()),
        ("at", pa.timestamp("us")),
    ]
)
COUNT = 5_000


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=2) as made:
        made.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        made.ingest("t", rows_of(0, COUNT))
        yield made


def rows_of(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    rows = {
        "id": values,
        "v": [None if n % 9 == 0 else float("nan") if n % 8 == 0 else n / 4 for n in values],
        "word": [None if n % 7 == 0 else f"it's {n % 5}" for n in values],
        "at": [n * 1_000_000 for n in values],
    }
    return pa.table(rows, SCHEMA)


@pytest.fixture
def load(spark, cluster):
    spark.dataSource.register(BallistaDataSource)

    def load(**options):
        reader = spark.read.format("ballista").option("url", "ballista://" + cluster.addresses()[0])
        return reader.options(**options).load()

    return load


@pytest.mark.parametrize("push", ["full", "none"])
def test_a_table_comes_whole_with_its_types_and_values(load, cluster, push):
    frame = load(table="t", push=push, targetBytes="20000")
    assert frame.schema.simpleString() == "struct<id:bigint,v:double,word:string,at:timestamp_ntz>"
    found = frame.toArrow().sort_by("id")
    wanted = cluster.sql("select * from t order by id")
    assert list(map(repr, found.to_pylist())) == list(map(repr, wanted.to_pylist()))
    assert frame.rdd.getNumPartitions() > 1


def test_columns_and_a_filter_are_decided_by_the_cluster(load):
    frame = load(table="t", columns="word, id", filter="word = 'it''s 3' and id < 100 -- few")
    assert frame.columns == ["word", "id"]
    assert {row["id"] for row in frame.collect()} == {n for n in range(100) if n % 5 == 3 and n % 7}


@pytest.mark.parametrize(
    "query",
    [
        "select word, count(*) as n, sum(id) as s from t group by word",
        "select count(*) as n from t",
        "select id, word from t where id > 4990",
        "select id from t order by id desc limit 3",
    ],
)
def test_a_query_gives_the_answer_of_the_cluster(load, cluster, query):
    found = [tuple(row) for row in load(query=query).collect()]
    assert sorted(map(repr, found)) == sorted(repr(tuple(row.values())) for row in cluster.sql(query).to_pylist())


def test_one_dataframe_shows_one_instant_however_often_it_is_used(load, cluster):
    cluster.create_table("moving", schema=SCHEMA, partition_by=["bucket(4, id)"])
    cluster.ingest("moving", rows_of(0, 1_000))
    frame = load(table="moving")
    assert frame.count() == 1_000
    cluster.sql("delete from moving where id % 2 = 0")
    cluster.ingest("moving", rows_of(1_000, 1_100))
    assert load(table="moving").count() == 600


CONDITIONS = [
    "id = 17", "id > 4990", "id between 10 and 20", "id in (1, 2, 3)", "word = \"it's 3\"", "word like \"it's%\"",
    "word like '%3'", "word like '%s 2%'", "word is null", "word is not null", "v is null", "v > 1000.5", "v = 'NaN'",
    "v >= 'NaN'", "v < 0.5", "not (word = \"it's 3\")", "word <=> null", "word <=> \"it's 1\"", "id > 10 and v < 3",
    "id < 3 or id > 4998", "at < timestamp_ntz'1970-01-01 00:00:10'", "v in (0.25, 0.5)", "upper(word) = \"IT'S 1\"",
]  # fmt: skip


def test_filters_that_are_pushed_let_through_what_spark_would(spark, load):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        whole = load(table="t")
        for condition in CONDITIONS:  # each a dataframe of its own: what was pushed stays with it, in Spark 4.3
            pushed = {row["id"] for row in load(table="t", push="filters").where(condition).select("id").collect()}
            assert pushed == {row["id"] for row in whole.where(condition).select("id").collect()}, condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_without_being_told_nothing_is_pushed_that_stays_with_the_dataframe(spark, load):
    """Spark 4.3 applies filters that were pushed once to every later use of the dataframe."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(table="t")
        assert [frame.where("id < 10").count(), frame.count(), frame.where("id < 20").count()] == [10, COUNT, 20]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs one of the options 'table' and 'query'"),
        ({"table": "t", "query": "select 1"}, "needs one of the options"),
        ({"table": "nowhere"}, "Table 'nowhere' does not exist"),
        ({"table": "t", "colums": "id"}, "no option 'colums'"),
        ({"table": "t", "push": "some"}, "full, filters, none, not 'some'"),
        ({"table": "t", "maxPartitions": "0"}, "a number from 1 on"),
        ({"table": "t", "lease": "an hour"}, "'lease' is a number from 1 on, not 'an hour'"),
        ({"table": "t", "consistency": "none"}, "snapshot or decided"),
        ({"query": "select * from t", "columns": "id"}, "write them into the query"),
        ({"query": "select id, v, Id from t"}, "two columns are called 'id'"),
    ],
)
def test_what_is_wrong_is_said_by_name(load, options, said):
    with pytest.raises(Exception, match=said):
        load(**options).count()


def test_over_spark_connect_it_is_the_same(connect_url, cluster):
    pytest.importorskip("grpc_status", reason="Spark Connect needs the extra 'connect'")
    script = str(Path(__file__).with_name("connect_reads.py"))
    command = [sys.executable, script, connect_url, "ballista://" + cluster.addresses()[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.splitlines()[-1] == f"{COUNT} 1250"
