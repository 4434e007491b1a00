"""`readStream` of a table: each row that comes or goes is in one batch, the same when that is repeated."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.spark import BallistaDataSource

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), ("word", pa.string())])


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=2, executors=2) as made:
        yield made


def rows_of(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table(
        {"id": values, "v": [n / 4 for n in values], "word": [None if n % 3 else "w" for n in values]}, SCHEMA
    )


class Stream:
    """A stream over a table with a checkpoint of its own; each `run` goes on until there is nothing more."""

    def __init__(self, spark, cluster, table, folder, **options):
        url = "ballista://" + ",".join(cluster.addresses())
        self.options = {"url": url, "table": table, **options}
        self.spark, self.folder, self.fails = spark, folder, 0
        self.batches: dict[int, list] = {}

    def took(self, frame, number):
        rows = sorted(map(repr, frame.collect()))
        if number in self.batches:  # repeated: the same rows
            assert self.batches[number] == rows
        self.batches[number] = rows
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the batch was read, and what it was written to broke")

    def run(self):
        stream = self.spark.readStream.format("ballista").options(**self.options).load()
        writer = stream.writeStream.foreachBatch(self.took).option("checkpointLocation", str(self.folder))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def rows(self):
        return Counter(row for rows in self.batches.values() for row in rows)


@pytest.fixture
def stream(spark, cluster, tmp_path):
    spark.dataSource.register(BallistaDataSource)
    return lambda table, **options: Stream(spark, cluster, table, tmp_path / "checkpoint", **options)


def test_rows_that_come_are_in_one_batch_each_and_a_repeated_one_is_the_same(stream, cluster):
    cluster.create_table("came", schema=SCHEMA, partition_by=["bucket(4, id)"])
    one = stream("came")
    one.run()
    assert sum(one.rows().values()) == 0
    for number in range(4):
        for start in range(number * 200, number * 200 + 200, 50):
            cluster.ingest("came", rows_of(start, start + 50))
        one.fails = number % 2
        if one.fails:
            with pytest.raises(Exception, match="broke"):
                one.run()
        one.run()
    found = one.rows()
    assert len(found) == 800
    assert set(found.values()) == {1}
    one.run()
    assert one.rows() == found
    cluster.sql("update came set v = 0 where id = 5")
    with pytest.raises(Exception, match="changes=all"):
        one.run()


def test_rows_that_go_come_too_where_that_is_asked_for(stream, cluster):
    cluster.create_table("twoways", schema=SCHEMA, partition_by=["bucket(4, id)"], primary_key=["id"])
    cluster.ingest("twoways", rows_of(0, 300))
    one = stream("twoways", changes="all", startingFrom="now")
    one.run()
    assert sum(one.rows().values()) == 0
    cluster.sql("update twoways set word = 'u' where id < 10")
    cluster.sql("delete from twoways where id between 20 and 24")
    cluster.ingest("twoways", rows_of(300, 310))
    one.run()
    kinds = Counter("delete" if "'delete'" in row else "insert" for row in one.rows().elements())
    assert kinds == {"delete": 15, "insert": 20}
    assert sum("id=305," in row for row in one.rows()) == 1


def test_what_cannot_be_is_refused_by_name(stream, spark, cluster):
    cluster.create_table("plain", schema=SCHEMA, partition_by=["bucket(2, id)"])
    for options, said in (
        ({"changes": "some"}, "inserts or all"),
        ({"startingFrom": "yesterday"}, "begin or now"),
        ({"columns": "id"}, "without the option 'columns'"),
        ({"consistency": "odd"}, "snapshot or decided"),
    ):
        with pytest.raises(Exception, match=said):
            stream("plain", **options).run()
    url = "ballista://" + cluster.addresses()[0]
    with pytest.raises(Exception, match="are for readStream"):
        spark.read.format("ballista").options(url=url, table="plain", changes="all").load().collect()


def test_a_table_that_was_altered_ends_the_stream_with_a_word(stream, cluster):
    cluster.create_table("altered", schema=SCHEMA, partition_by=["bucket(2, id)"])
    cluster.ingest("altered", rows_of(0, 10))
    one = stream("altered")
    one.run()
    cluster.sql("alter table altered add column more bigint")
    cluster.sql("insert into altered values (50, 1.0, 'x', 3)")
    with pytest.raises(Exception, match="altered"):
        one.run()
