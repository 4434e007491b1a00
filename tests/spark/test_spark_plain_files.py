"""The format `ballista` in Spark reads plain files of a table server, in parallel, as they were when the job began."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.table_servers import serving

from ballista_py.spark import BallistaDataSource

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {"id": range(4_000), "v": [n % 10 for n in range(4_000)], "word": [f"w{n % 7}" for n in range(4_000)]}
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t").mkdir()
    for number in range(4):
        pq.write_table(ROWS.slice(number * 1_000, 1_000), tmp_path / "t" / f"{number}.parquet")
    time.sleep(0.06)
    return tmp_path


def test_spark_reads_plain_files_in_parallel(spark, folder):
    spark.dataSource.register(BallistaDataSource)
    with serving(folder) as server:
        reader = spark.read.format("ballista").option("url", server.url).option("targetBytes", "3000")
        for push in ("full", "none"):
            frame = reader.option("push", push).option("table", "t").load()
            assert frame.rdd.getNumPartitions() > 3
            assert frame.toArrow().sort_by("id").equals(ROWS)
        few = (
            reader.option("table", "t").option("columns", "word, id").option("filter", "id < 20 and v = 3").load()
        )
        assert [tuple(row) for row in few.orderBy("id").collect()] == [("w3", 3), ("w6", 13)]
        query = "select word, count(*) as n from t where id < 700 group by word"
        found = spark.read.format("ballista").option("url", server.url).option("query", query).load()
        assert {tuple(row) for row in found.collect()} == {(f"w{n}", 100) for n in range(7)}


def test_a_file_that_changed_since_fails_the_task_by_name(spark, folder):
    spark.dataSource.register(BallistaDataSource)
    with serving(folder) as server:
        frame = spark.read.format("ballista").option("url", server.url).option("table", "t").load()
        assert frame.count() == 4_000
        pq.write_table(ROWS.slice(0, 10), folder / "t" / "2.parquet")
        with pytest.raises(Exception, match="was changed or removed since the read job began"):
            frame.collect()
