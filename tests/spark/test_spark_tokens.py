"""The format `ballista` on a cluster that asks who somebody is: reads, writes, streams, and nobody without a token."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.spark import BallistaDataSource

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
TOKEN = "somebody-0123456789abcdef"
COUNT = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"somebody {TOKEN}\n")
    with LocalCluster(
        schedulers=1, executors=2, token=TOKEN, node_options={"flight-tokens-file": str(tokens)}
    ) as made:
        for table in ("t", "written", "streamed"):
            made.create_table(table, schema=SCHEMA, partition_by=["bucket(4, id)"])
        made.ingest("t", pa.table({"id": range(COUNT), "v": [f"v{n}" for n in range(COUNT)]}, SCHEMA))
        yield made


@pytest.fixture
def who(spark, cluster):
    spark.dataSource.register(BallistaDataSource)
    return {"url": "ballista://" + cluster.addresses()[0], "token": TOKEN}


def count_of(cluster, table: str) -> int:
    with cluster.client() as client:
        return client.sql(f"select count(distinct id) as n from {table}").to_pylist()[0]["n"]


@pytest.mark.parametrize("push", ["full", "none"])
def test_rows_come_to_who_has_a_token(spark, who, push):
    frame = spark.read.format("ballista").options(**who, table="t", push=push).load()
    assert sorted(row.id for row in frame.collect()) == list(range(COUNT))


def test_rows_are_written_by_who_has_a_token(spark, cluster, who):
    frame = spark.createDataFrame([(n, f"w{n}") for n in range(100)], "id bigint not null, v string")
    frame.repartition(3).write.format("ballista").options(**who, table="written").mode("append").save()
    assert count_of(cluster, "written") == 100


def test_streams_read_and_write_with_a_token(spark, cluster, who, tmp_path):
    frame = spark.readStream.format("ballista").options(**who, table="t").load()
    query = (
        frame.writeStream.format("ballista")
        .options(**who, table="streamed", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert count_of(cluster, "streamed") == COUNT


def test_without_a_token_nothing_is_read(spark, who):
    with pytest.raises(Exception, match="token"):
        spark.read.format("ballista").option("url", who["url"]).option("table", "t").load()


def test_a_path_and_no_columns_are_refused(spark, who):
    with pytest.raises(Exception, match="reads no path"):
        spark.read.format("ballista").options(**who, table="t").load("t")
    with pytest.raises(Exception, match="names no column"):
        spark.read.format("ballista").options(**who, table="t", columns="").load()
    with pytest.raises(Exception, match="more than a condition"):
        spark.read.format("ballista").options(**who, table="t", filter="true) or (true").load()
