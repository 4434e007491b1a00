"""`bucket` inside Spark gives what `bucket` gives outside, for every type."""

from __future__ import annotations

import pytest

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.bucket import bucket as python_bucket
from ballista_py.spark.bucket import bucket, register_bucket

pytestmark = pytest.mark.spark

COLUMNS = {
    "i8": "cast(id - 100 as tinyint)",
    "i32": "cast(id * 7919 as int)",
    "i64": "id * 1000000007",
    "f32": "cast(id / 3 as float)",
    "f64": "if(id = 5, -0.0d, if(id = 6, double('NaN'), id / 3))",
    "b": "id % 2 = 0",
    "d": "date_add(date'1960-01-01', cast(id * 97 as int))",
    "ts": "timestamp_micros(id * 1234567891 - 5000000000)",
    "ntz": "cast(timestamp_micros(id * 1234567891) as timestamp_ntz)",
    "t": "time'12:00:00.000001'",
    "dec": "cast(id as decimal(10, 2))",
    "big": "cast(id * id as decimal(38, 3)) * -1",
    "s": "concat('é', cast(id as string))",
    "bin": "cast(cast(id as string) as binary)",
    "nothing": "cast(null as bigint)",
}


@pytest.fixture(scope="module")
def rows(spark):
    register_bucket(spark)
    with_nulls = [f"if(id = 9, null, {sql}) as {name}" for name, sql in COLUMNS.items() if name != "t"]
    # Spark casts nothing to TIME yet, not even null.
    frame = spark.range(200).selectExpr(*with_nulls, f"{COLUMNS['t']} as t", "array(id) as `a list`")
    frame.createOrReplaceTempView("values_of_every_type")
    return frame


@pytest.mark.parametrize("column", COLUMNS)
def test_the_native_column_the_sql_function_and_python_agree(spark, rows, column):
    native = rows.select(column, bucket(rows, 64, column).alias("native")).toArrow()
    in_sql = spark.sql(f"select bucket(64, {column}) as sql from values_of_every_type").toArrow()
    expected = python_bucket(64, native[column]).to_pylist()
    assert native["native"].to_pylist() == expected
    assert in_sql["sql"].to_pylist() == expected
    assert expected[9] is None or column == "t"


def test_the_partition_transform_of_that_name_still_works(spark, rows):
    plan = spark.sql("explain create table t (id bigint) using parquet partitioned by (bucket(4, id))").collect()
    assert "CreateDataSourceTable" in plan[0][0]


def test_unusable_arguments_are_refused_by_name(spark, rows):
    with pytest.raises(UnsupportedExpression, match="there is no column 'nope'"):
        bucket(rows, 4, "nope")
    with pytest.raises(UnsupportedExpression, match="1 to 1,000,000 buckets, not 0"):
        bucket(rows, 0, "i64")
    with pytest.raises(UnsupportedExpression, match=r"bucket does not take values of type \w+\[\]"):
        bucket(rows, 4, "a list")
    for sql, reason in {
        "bucket(i64, i64)": "one number of buckets for all rows",
        "bucket(0, i64)": "1 to 1,000,000 buckets",
        "bucket(4, `a list`)": r"does not take values of type \w+\[\]",
    }.items():
        with pytest.raises(Exception, match=reason):
            spark.sql(f"select {sql} from values_of_every_type").collect()
