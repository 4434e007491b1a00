"""Tables with everything in them that goes wrong elsewhere, from every kind of source."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark import layout
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.watermark import Watermark
from ballista_py.state.ownership.partition_store import PartitionStore

pytestmark = pytest.mark.spark

NASTY = """
    select id,
        element_at(array('eu', null, '', 'null', 'é/ü~ %2F', 'giant', 'EU', ' eu', '\\t\\n', '.', '..', 'a=b'),
                   cast(if(id % 10 < 7, 6, 1 + id % 12) as int)) as region,
        if(id % 5 = 0, null, cast(id * 1.01 as decimal(38, 9))) as big,
        cast(-id as decimal(9, 2)) as small,
        if(id % 3 = 0, null, named_struct('a', nullif(id, 8), 'b', if(id = 4, null, array(null, concat('日本', id)))))
            as nested,
        map('k', id, 'none', null) as pairs,
        if(id % 7 = 0, null, date_add(date'0001-01-01', cast(id % 4 * 900000 as int))) as day,
        if(id % 11 = 0, double('NaN'), if(id % 2 = 0, -0.0d, id / 3)) as ratio,
        cast(repeat('x', cast(id % 50 as int)) as binary) as bytes,
        cast(null as string) as nothing
    from range(0, 1200, 1, 3)
"""


def counted(table: pa.Table) -> Counter:
    return Counter(map(repr, table.to_pylist()))


def check_places(table: TableSpec, report, partitions) -> pa.Table:
    """Every row lies in the partition that Python's own evaluation gives it; returns all rows."""
    parts = []
    for value in report.partitions:
        rows = partitions.rows(table, value)
        parts.append(rows)
        for batch in rows.to_batches():
            keys = [column.to_pylist() for column in table.spec.evaluate(batch)]
            assert {table.spec.path(key) for key in zip(*keys, strict=True)} <= {table.spec.path(value)}
    return pa.concat_tables(parts)


@pytest.mark.parametrize(
    "keys",
    [
        ["bucket(5, region)"],
        ["region"],
        ["year(day)", "id < 600"],
        ["bucket(3, big)", "bucket(2, bytes)"],
    ],
    ids=str,
)
def test_every_row_of_a_nasty_table_lies_in_its_partition_unchanged(spark, declare, pipeline, partitions, keys):
    frame = spark.sql(NASTY)
    table = declare(frame, *keys)
    report = pipeline.materialize(table, source=frame, sort_by=["id"])
    found = check_places(table, report, partitions)
    assert report.rows == found.num_rows == 1_200
    assert counted(found) == counted(pa.table(frame.toArrow().columns, schema=table.schema))


def test_a_giant_key_is_reported_with_its_size(spark, declare, pipeline):
    frame = spark.sql(NASTY)
    report = pipeline.materialize(declare(frame, "region"), source=frame)
    (giant, *_) = report.skewed(factor=2.0, min_bytes=0)  # small files are mostly footer
    assert giant.value == ("giant",)
    assert giant.rows == report.partitions[("giant",)].rows > 800
    assert giant.bytes == report.partitions[("giant",)].bytes > 0
    assert report.skewed(factor=100.0, min_bytes=0) == ()


def many_keys(spark, declare, pipeline, partitions, count: int) -> None:
    frame = spark.range(0, 3 * count, 1, 2).selectExpr(f"id % {count} as k", "id")
    table = declare(frame, "k")
    report = pipeline.materialize(table, source=frame)
    assert sorted(report.partitions) == [(k,) for k in range(count)]
    assert {written.rows for written in report.partitions.values()} == {3}
    for k in (0, 1, count // 2, count - 1):
        assert sorted(partitions.rows(table, (k,))["id"].to_pylist()) == [k, k + count, k + 2 * count]
    frame = spark.range(0, 3 * count + 5, 1, 2).selectExpr(f"id % {count} as k", "id")
    assert pipeline.refresh(table, mode="append", source=frame, watermark=Watermark("id")).rows == 5


def test_more_keys_than_tasks(spark, declare, pipeline, partitions, monkeypatch):
    monkeypatch.setattr(layout, "MAX_DIRECT_TASKS", 8)
    many_keys(spark, declare, pipeline, partitions, 30)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_ten_thousand_keys(spark, declare, pipeline, partitions):
    many_keys(spark, declare, pipeline, partitions, 10_000)


@pytest.mark.parametrize("kind", ["csv", "json", "orc", "parquet", "jdbc", "dataframe"])
def test_every_kind_of_source_gives_the_same_table(spark, declare, pipeline, partitions, tmp_path, kind):
    frame = spark.sql(
        "select cast(id as int) as id, if(id % 4 = 0, null, concat('é', id)) as name, "
        "cast(id / 7 as decimal(12, 3)) as price, date_add(date'1969-12-30', cast(id as int)) as day from range(40)"
    )
    schema = "id int, name string, price decimal(12, 3), day date"
    path = str(tmp_path / "source")
    if kind == "dataframe":
        source = frame
    elif kind == "jdbc":
        # The Derby that comes with Spark; a database in memory.
        url = f"jdbc:derby:memory:{tmp_path.name};create=true"
        options = {"url": url, "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver", "dbtable": "events"}
        columns = frame.selectExpr("id as ID", "name as NAME", "price as PRICE", "day as DAY")
        columns.write.format("jdbc").options(**options).save()
        query = '(select ID as "id", NAME as "name", PRICE as "price", DAY as "day" from events) as given'
        source = {"format": "jdbc", **options, "dbtable": query}
    else:
        options = {"header": "true", "schema": schema} if kind == "csv" else {"schema": schema}
        frame.write.format(kind).option("header", "true").save(path)
        source = {"format": kind, "path": path, **options}
    table = declare(source, "bucket(3, name)")
    report = pipeline.materialize(table, source=source)
    found = check_places(table, report, partitions)
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [row.asDict() for row in frame.collect()]


def test_a_task_that_failed_and_was_tried_again_leaves_one_copy(spark, declare, pipeline, partitions, store):
    def once_broken(value):
        from pyspark import TaskContext

        context = TaskContext.get()
        if value == 999 and context is not None and context.attemptNumber() == 0:
            raise ValueError("this attempt ends half-way")
        return value

    frame = spark.range(0, 1_000, 1, 1).withColumn("v", sf.lit(1))
    table = declare(frame, "bucket(2, id)")
    stages = []

    def broken_writer(rows, *rest):
        stages.append(rows)
        return real(rows.select(sf.udf(once_broken, "long")("id").alias("id"), "v"), *rest)

    from ballista_py.spark import runs as module

    real = module.write_partitions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "write_partitions", broken_writer)
        report = pipeline.materialize(table, source=frame)
    assert len(stages) == 1
    assert report.rows == 1_000
    found = pa.concat_tables(part for _, part in partitions.all(table, report.partitions))
    assert sorted(found["id"].to_pylist()) == list(range(1_000))
    files = [entry.key for entry in store.list("snapshots/events/data/")]
    named = [f.path for value in report.partitions for f in partitions.manifest(table, value).files]
    assert sorted(files) == sorted(named)


def test_the_partitions_of_other_keys_are_never_mixed_in(spark, declare, pipeline, store):
    frame = spark.range(10)
    table = declare(frame, "bucket(4, id)")
    pipeline.materialize(table, source=frame)
    PartitionStore(store).create(PartitionMap.build("events", table.spec, table.spec.static_values()))
    other = declare(frame, "bucket(8, id)")
    for run in (pipeline.materialize, pipeline.refresh):
        with pytest.raises(
            UnsupportedExpression, match=r"'events': .*would move rows.*bucket\(8, id\) instead of"
        ):
            run(other, source=frame)
    assert pipeline.materialize(table, source=frame).rows == 10


def test_a_source_without_the_key_is_refused_when_the_table_is_declared(spark, declare):
    with pytest.raises(UnsupportedExpression, match="there is no column 'region'"):
        declare(spark.range(3), "bucket(4, region)")


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_tpch_at_scale_1_keeps_every_row(spark, store, declare, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    from ballista_py.node.demo.tpch_data import generate_tpch

    data = generate_tpch(tmp_path / "tpch", 1.0)
    pipeline = SparkPipeline(spark, store)
    for name, keys in {
        "lineitem": ["bucket(16, l_orderkey)"],
        "orders": ["year(o_orderdate)"],
        "customer": ["c_nationkey"],
        "part": ["bucket(4, p_brand)", "p_size"],
    }.items():
        source = str(data / f"{name}.parquet")
        schema = pipeline.describe(name, source)
        spec = PartitionSpec.parse(keys, schema)
        table = TableSpec(name=name, schema=schema, spec=spec, source={"path": source})
        report = pipeline.materialize(table)
        assert report.rows == pq.read_metadata(source).num_rows
        files = f"{tmp_path}/state/snapshots/{name}/data/{report.run_id}/**/*.parquet"
        with duckdb.connect() as connection:
            columns = ", ".join(f'"{column}"' for column in schema.names)
            ((differing,),) = connection.sql(
                f"select count(*) from ((select {columns} from '{source}' except all select {columns} from '{files}') "
                f"union all (select {columns} from '{files}' except all select {columns} from '{source}'))"
            ).fetchall()
        assert differing == 0
        assert pipeline.materialize(table).partitions == report.partitions
