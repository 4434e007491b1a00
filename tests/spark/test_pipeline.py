"""The pipeline on a real Spark: which rows land where, and what a run that fails leaves behind."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.classic import dataframe as classic

from ballista_py.errors import ConfigError, ObjectMissing, SchemaMismatch, TryLater, UnsupportedExpression
from ballista_py.partitions.bucket import bucket
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark import layout
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore

pytestmark = pytest.mark.spark

NAMES = ["b", None, "a", "", "null", "é/ü~ %2F", "a"]


def all_keys(store) -> list[str]:
    return [entry.key for entry in store.list("snapshots/")]


def check_buckets(table, column: str, buckets: int, found) -> pa.Table:
    """Every row lies in the partition of its bucket; returns all rows."""
    parts = []
    for (value,), rows in found:
        assert set(bucket(buckets, rows[column]).to_pylist()) <= {value}
        parts.append(rows)
    return pa.concat_tables(parts)


def test_every_row_lands_in_the_partition_of_its_bucket_once(parquet, declare, pipeline, partitions):
    ids = pa.array(range(-2_000, 3_000), pa.int64())
    source = parquet("a.parquet", ("id",), id=ids, text=pc.cast(ids, pa.string()))
    table = declare(source, "bucket(16, id)")
    report = pipeline.materialize(table)
    assert list(report.partitions) == [(number,) for number in range(16)]
    rows = check_buckets(table, "id", 16, partitions.all(table, report.partitions))
    assert sorted(rows["id"].to_pylist()) == ids.to_pylist()
    assert all(
        str(id_) == text for id_, text in zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True)
    )
    assert report.rows == 5_000
    assert {written.files for written in report.partitions.values()} == {1}


def test_tasks_that_write_several_partitions_put_every_row_where_it_belongs(
    parquet, declare, pipeline, partitions, monkeypatch
):
    monkeypatch.setattr(layout, "MAX_DIRECT_TASKS", 8)
    source = parquet("a.parquet", id=pa.array([*range(500), None], pa.int32()))
    table = declare(source, "bucket(40, id)")
    report = pipeline.materialize(table, sort_by=["id"])
    assert len(report.partitions) == 41
    rows = check_buckets(table, "id", 40, partitions.all(table, report.partitions))
    assert rows.num_rows == report.rows == 501
    assert all(pc.all(pc.equal(part["id"], part.sort_by("id")["id"])).as_py() is not False
               for _, part in partitions.all(table, report.partitions))  # fmt: skip
    assert {written.files for written in report.partitions.values()} <= {0, 1}


def test_static_partitions_without_rows_have_an_empty_manifest(parquet, declare, pipeline, partitions):
    source = parquet("a.parquet", ("id",), id=pa.array([7], pa.int64()))
    table = declare(source, "bucket(12, id)")
    report = pipeline.materialize(table)
    (home,) = bucket(12, pa.array([7])).to_pylist()
    for number in range(12):
        manifest = partitions.manifest(table, (number,))
        assert (manifest.rows, len(manifest.files)) == ((1, 1) if number == home else (0, 0))
    assert report.partitions[(home,)].rows == 1


def test_an_empty_source_gives_empty_partitions(spark, declare, pipeline, partitions):
    frame = spark.range(0)
    table = declare(frame, "bucket(3, id)")
    assert pipeline.materialize(table, source=frame).rows == 0
    assert [partitions.manifest(table, (number,)).files for number in range(3)] == [(), (), ()]
    by_value = declare(frame, "id", name="by_value")
    assert pipeline.materialize(by_value, source=frame).partitions == {}


def test_nulls_have_a_partition_of_their_own_where_the_column_may_be_null(parquet, declare, pipeline, partitions):
    table = declare(parquet("a.parquet", name=pa.array(NAMES)), "bucket(4, name)")
    report = pipeline.materialize(table)
    assert list(report.partitions) == [(0,), (1,), (2,), (3,), (None,)]
    rows = check_buckets(table, "name", 4, partitions.all(table, report.partitions))
    assert rows.num_rows == len(NAMES)
    assert partitions.rows(table, (None,))["name"].to_pylist() == [None]


def test_two_static_keys_give_the_cartesian_product(parquet, declare, pipeline, partitions):
    source = parquet("a.parquet", ("id",), id=pa.array(range(100), pa.int16()), name=pa.array(["x", None] * 50))
    table = declare(source, "bucket(3, id)", {"half": "bucket(2, name)"})
    report = pipeline.materialize(table)
    assert list(report.partitions) == table.spec.static_values()
    for (of_id, of_name), rows in partitions.all(table, report.partitions):
        assert set(bucket(3, rows["id"]).to_pylist()) <= {of_id}
        assert set(bucket(2, rows["name"]).to_pylist()) <= {of_name}
    assert report.rows == 100


def test_a_replicated_table_is_one_partition_named_whole(parquet, declare, pipeline, partitions, store):
    table = declare(parquet("a.parquet", id=pa.array(range(10))))
    report = pipeline.materialize(table)
    assert list(report.partitions) == [()]
    assert sorted(partitions.rows(table, ())["id"].to_pylist()) == list(range(10))
    assert "snapshots/events/whole/manifest.json" in all_keys(store)


def test_other_keys_are_discovered_with_typed_values(parquet, declare, pipeline, partitions):
    days = [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1969, 12, 31), None, None, dt.date(1, 1, 1)]
    source = parquet("a.parquet", name=pa.array(NAMES), day=pa.array(days), n=pa.array(range(7), pa.int8()))
    table = declare(source, "name", {"day": "day"})
    values = pipeline.discover(table)
    report = pipeline.materialize(table)
    assert list(report.partitions) == values
    assert set(values) == set(zip(NAMES, days, strict=True))
    assert len(PartitionMap.build("events", table.spec, values)) == 7
    for value, rows in partitions.all(table, values):
        assert {tuple(row.values()) for row in rows.select(["name", "day"]).to_pylist()} == {value}
    assert report.rows == 7


@pytest.mark.parametrize(
    "values",
    [
        pa.array([Decimal("1.50"), Decimal("-0.01"), None], pa.decimal128(20, 2)),
        pa.array([0.0, -0.0, float("nan"), 1.5, None]),
        pa.array([True, False, None]),
        pa.array([b"\x00\xff", b"", None]),
        pa.array([-1, 0, 253_402_300_799_999_999, None], pa.timestamp("us")),
        pa.array([-1, 0, None], pa.timestamp("us", "UTC")),
    ],
    ids=lambda values: str(values.type),
)
def test_keys_of_every_type_are_those_that_python_finds(parquet, declare, pipeline, partitions, values):
    table = declare(parquet("a.parquet", key=values), "key")
    report = pipeline.materialize(table)
    (evaluated,) = table.spec.evaluate(pa.record_batch([values], ["key"]))
    expected = {table.spec.path((value,)) for value in evaluated.to_pylist()}
    assert {table.spec.path(value) for value in report.partitions} == expected
    assert report.rows == len(values)


def test_running_again_replaces_and_never_adds(parquet, declare, pipeline, partitions):
    source = parquet("a.parquet", ("id",), id=pa.array(range(50)))
    table = declare(source, "bucket(4, id)")
    first = pipeline.materialize(table)
    again = pipeline.materialize(table)
    assert first.run_id != again.run_id
    assert first.partitions == again.partitions
    for _, rows in partitions.all(table, again.partitions):
        assert len(set(rows["id"].to_pylist())) == rows.num_rows
    parquet("a.parquet", ("id",), id=pa.array(range(40, 45)))
    assert pipeline.materialize(table).rows == 5
    assert sum(rows.num_rows for _, rows in partitions.all(table, again.partitions)) == 5


def test_a_token_that_was_applied_changes_nothing_when_sent_again(parquet, declare, pipeline, partitions):
    table = declare(parquet("a.parquet", ("id",), id=pa.array([1, 2, 3])), "bucket(2, id)")
    pipeline.materialize(table, token="load-1")
    before = [partitions.manifest(table, (number,)) for number in range(2)]
    pipeline.materialize(table, token="load-1")
    assert [partitions.manifest(table, (number,)) for number in range(2)] == before


def test_a_value_that_vanished_from_the_source_vanishes_from_the_table(parquet, declare, pipeline, partitions):
    table = declare(parquet("a.parquet", region=pa.array(["eu", "us"])), "region")
    pipeline.materialize(table)
    parquet("a.parquet", region=pa.array(["us", "us"]))
    assert list(pipeline.materialize(table).partitions) == [("us",)]
    assert partitions.manifest(table, ("eu",)).rows == 0
    assert partitions.manifest(table, ("us",)).rows == 2


def test_rows_are_sorted_within_a_partition_when_asked(parquet, declare, pipeline, partitions):
    table = declare(parquet("a.parquet", ("id",), id=pa.array(range(1_000, 0, -1))), "bucket(2, id)")
    report = pipeline.materialize(table, sort_by=["id"])
    for _, rows in partitions.all(table, report.partitions):
        assert rows["id"].to_pylist() == sorted(rows["id"].to_pylist())


def test_a_state_location_may_have_spaces_percent_signs_and_unicode_in_its_path(spark, parquet, declare, tmp_path):
    store = LocalStore(str(tmp_path / "my état %20" / "state"))
    table = declare(parquet("a b.parquet", ("id",), id=pa.array(range(10))), "bucket(2, id)")
    report = SparkPipeline(spark, store).materialize(table)
    assert report.rows == 10
    assert sum(key.endswith(".parquet") for key in all_keys(store)) == 2


def test_a_failed_run_leaves_the_old_rows_and_no_files(
    parquet, declare, pipeline, partitions, store, spark, tmp_path
):
    table = declare(parquet("a.parquet", ("id",), id=pa.array(range(50))), "bucket(4, id)")
    report = pipeline.materialize(table)
    before = all_keys(store)
    broken = spark.range(1_000).selectExpr("if(id = 999, raise_error('torn page'), id) as id")
    with pytest.raises(ConfigError, match=r"table 'events': Spark could not .* DataFrame: torn page$"):
        pipeline.materialize(table, source=broken)
    assert all_keys(store) == before
    assert sum(rows.num_rows for _, rows in partitions.all(table, report.partitions)) == 50


def test_a_null_where_the_table_forbids_it_is_refused_and_nothing_changes(
    parquet, declare, pipeline, partitions, store
):
    table = declare(parquet("a.parquet", ("id", "n"), id=pa.array([1, 2]), n=pa.array([1, 2])), "bucket(2, id)")
    pipeline.materialize(table)
    before = all_keys(store)
    for ids, numbers in (([1, None], [1, 2]), ([1, 2], [None, 2])):
        nulls = parquet("b.parquet", id=pa.array(ids), n=pa.array(numbers))
        with pytest.raises(SchemaMismatch, match=r"null.*nothing was changed"):
            pipeline.materialize(table, source=nulls)
    assert all_keys(store) == before


def test_a_source_without_the_tables_columns_is_refused_by_name(parquet, declare, pipeline):
    table = declare(parquet("a.parquet", id=pa.array([1])), "bucket(2, id)")
    with pytest.raises(SchemaMismatch, match=r"table 'events': source '.*/b.parquet' has no 'id'"):
        pipeline.materialize(table, source=parquet("b.parquet", other=pa.array([1])))
    with pytest.raises(SchemaMismatch, match=r"column 'id' is string in source .* declares int64"):
        pipeline.materialize(table, source=parquet("c.parquet", id=pa.array(["x"])))


def test_a_managed_table_has_nothing_to_materialize(pipeline):
    schema = pa.schema([pa.field("id", pa.int64())])
    table = TableSpec(name="events", schema=schema, spec=PartitionSpec.parse(["bucket(2, id)"], schema))
    with pytest.raises(ConfigError, match="table 'events' has no source"):
        pipeline.materialize(table)


def test_too_many_distinct_values_are_refused(spark, store, declare):
    frame = spark.range(20)
    table = declare(frame, "id")
    small = SparkPipeline(spark, store, max_partitions=10)
    with pytest.raises(UnsupportedExpression, match=r"more than 10 distinct values: partition by bucket"):
        small.discover(table, source=frame)


def test_a_store_that_is_no_folder_gets_copies_of_the_files(spark, parquet, declare):
    store = MemoryStore()
    table = declare(parquet("a.parquet", ("id",), id=pa.array(range(20))), "bucket(4, id)")
    with ThreadPoolExecutor(4) as threads:
        report = SparkPipeline(spark, store, run_all=threads.map).materialize(table)
    files = [key for key in all_keys(store) if key.endswith(".parquet")]
    assert len(files) == sum(written.files for written in report.partitions.values())
    assert all(key.startswith(f"snapshots/events/data/{report.run_id}/") for key in files)
    assert sum(store.get(key).data[:4] == b"PAR1" for key in files) == len(files)


def test_progress_only_grows_and_ends_complete(spark, declare, pipeline):
    frame = spark.range(0, 2_000_000, 1, 6)
    seen: list[tuple[int, int]] = []
    pipeline.materialize(
        declare(frame, "bucket(8, id)"), source=frame, progress=lambda done, total: seen.append((done, total))
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    assert any(0 < done <= 14 for done, _ in seen)  # six tasks that split, eight that write


@pytest.mark.parametrize("timeout_ms", [1, 1_500])  # before Spark has begun, and while it works
def test_a_discovery_that_takes_too_long_is_cancelled(spark, store, declare, timeout_ms):
    from pyspark.sql.functions import udf

    slow = udf(lambda value: time.sleep(30) or value, "long")
    frame = spark.range(0, 2, 1, 1).select(slow("id").alias("id"))
    table = declare(frame, "id")
    hasty = SparkPipeline(spark, store, spawn=_spawn, discovery_timeout_ms=timeout_ms)
    with pytest.raises(TryLater, match=rf"partitions of table 'events' took longer than {timeout_ms / 1e3:g} s"):
        hasty.discover(table, source=frame)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def _spawn(target) -> None:
    import threading

    threading.Thread(target=target, daemon=True).start()


KILLED = """
import sys
from pyspark.sql import functions as sf
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.session import embedded_session
from ballista_py.state.stores.local import LocalStore

spark = embedded_session(master="local[2]", memory="512m")
slow = sf.udf(lambda value: __import__("time").sleep(0.02) or value, "long")
frame = spark.range(0, 10_000, 1, 2).select(slow("id").alias("id"))
pipeline = SparkPipeline(spark, LocalStore(sys.argv[1]))
schema = pipeline.describe("events", frame)
table = TableSpec(name="events", schema=schema, spec=PartitionSpec.parse(["bucket(2, id)"], schema))
print("writing", flush=True)
pipeline.materialize(table, source=frame)
"""


def test_a_killed_run_leaves_the_old_rows_readable_and_none_of_its_own(
    spark, declare, pipeline, partitions, store, tmp_path
):
    frame = spark.range(10)
    table = declare(frame, "bucket(2, id)")
    report = pipeline.materialize(table, source=frame)
    before = [partitions.manifest(table, value) for value in report.partitions]
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "state")], stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"writing\n"
    time.sleep(1.5)
    assert child.poll() is None
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert [partitions.manifest(table, value) for value in report.partitions] == before
    assert sum(rows.num_rows for _, rows in partitions.all(table, report.partitions)) == 10


def test_a_table_that_was_never_written_has_no_manifest(declare, parquet, partitions):
    table = declare(parquet("a.parquet", id=pa.array([1])), "bucket(2, id)", name="unwritten")
    with pytest.raises(ObjectMissing):
        partitions.manifest(table, (0,))


def test_files_hold_exactly_what_the_table_declares(spark, declare, pipeline, partitions, tmp_path: Path):
    """Read by DuckDB: names, types and values are those of the table's schema."""
    duckdb = pytest.importorskip("duckdb")
    frame = spark.sql(
        """select cast(1 as tinyint) i8, cast(2 as smallint) i16, 3 i32, 4L i64, float(1.5) f, 2.5d d, true b,
        cast(1.25 as decimal(7, 2)) small, cast(-123.456 as decimal(38, 3)) big, 'é' s, x'00ff' bytes,
        date'1960-02-29' day, timestamp'1960-01-01 00:00:00.000001' zoned,
        timestamp_ntz'9999-12-31 23:59:59' plain, array(1, null) list,
        named_struct('a', 1, 'b', array('x')) struct, map('k', 1.5d) map, cast(null as int) n,
        1 as `Mixed Case.dot`"""
    )
    table = declare(frame)
    pipeline.materialize(table, source=frame)
    (file,) = partitions.manifest(table, ()).files
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    found = connection.sql(f"from '{tmp_path}/state/{file.path}'").to_arrow_table()
    assert found.schema.names == table.schema.names
    assert found.schema.types == table.schema.types
    assert found.to_pylist() == frame.toArrow().to_pylist()
    assert file.columns["i8"].max == "1"
    assert file.columns["big"].min == "-123.456"
    assert file.columns["n"].null_count == 1


def test_a_value_of_a_source_that_is_data_rather_than_a_name_makes_no_partition(parquet, declare, pipeline, store):
    source = parquet("a.parquet", name=pa.array(["a", "b" * 1_025]))
    table = declare(source, "name")
    for find in (pipeline.materialize, lambda table: pipeline.extend(table, lambda _value: False)):
        with pytest.raises(SchemaMismatch, match="partition value of 1,025 bytes in 'name', more than 1,024"):
            find(table)
    assert all_keys(store) == []


def test_sparks_driver_collects_no_large_values_before_they_are_measured(spark, declare, pipeline, monkeypatch):
    monkeypatch.setattr(layout, "MAX_LARGE_VALUES_BYTES", 1_000_000)
    values = spark.range(200).selectExpr("concat(id, repeat('x', 20000)) as name", "id % 3 as other")
    table = declare(values, "name", "other")
    collected, collect = [], classic.DataFrame.toArrow

    def measured(rows):
        collected.append(collect(rows))
        return collected[-1]

    monkeypatch.setattr(classic.DataFrame, "toArrow", measured)
    with pytest.raises(UnsupportedExpression, match=r"values of up to 20,003 bytes, more than 49 of them"):
        pipeline.discover(table, source=values)
    assert max(found.nbytes for found in collected) < 1_200_000


def test_values_that_were_named_before_there_was_a_limit_are_found_whole(spark, declare, pipeline):
    values = spark.createDataFrame([("a",), (None,), ("b" * 2_000,), ("b" * 1_999 + "c",), ("a",)], "name string")
    found = pipeline.discover(declare(values, "name"), source=values)
    assert sorted(found, key=str) == [("a",), ("b" * 2_000,), ("b" * 1_999 + "c",), (None,)]
