"""CREATE TABLE of Spark: its columns in Spark's order, its keys and file format as a cluster has them, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.kind import engine_sql

TABLES = [
    ("create table q (a int, b string) using parquet", ["a", "b"], (), "parquet"),
    ("create table q (b string not null, a int) using vortex partitioned by (b)", ["a", "b"], ('"b"',), "vortex"),
    ("create table q (c int, b int, a int) partitioned by (A, c)", ["b", "a", "c"], ('"A"', '"c"'), "parquet"),
    (
        "create table if not exists q (a int, b int, primary key (a)) using parquet partitioned by (bucket(4, a))",
        ["a", "b"],
        ('bucket(4, "a")',),
        "parquet",
    ),
    ("create table q (`ä b` int, c int) partitioned by (`ä b`)", ["c", "ä b"], ('"ä b"',), "parquet"),
]


@pytest.mark.parametrize(("sql", "columns", "keys", "file_format"), TABLES)
def test_a_table_of_spark_is_one_of_the_cluster(sql, columns, keys, file_format):
    change = read_change(engine_sql(sql, "spark", {}))
    assert [name for name, _ in change.columns] == columns
    assert (change.partition_by, change.file_format) == (keys, file_format)


def test_the_rows_of_a_query_are_kept_with_its_partition_columns_last():
    sql = "create table q using vortex partitioned by (a) as select 2 as b, 1 as a"
    change = read_change(engine_sql(sql, "spark", {}))
    assert (change.partition_by, change.file_format) == (('"a"',), "vortex")
    assert change.query.split() == ["SELECT", "2", "AS", "b,", "1", "AS", "a"]
    with pytest.raises(SqlError, match=r"PARTITIONED BY \(b\) .* Spark puts these columns last"):
        engine_sql(sql.replace("by (a)", "by (b)"), "spark", {})


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("create table q (a int) using delta", "USING delta"),
        ("create table q (a int) partitioned by (b string)", "PARTITIONED BY (b STRING)"),
        ("create table q (a timestamp) partitioned by (days(a))", "PARTITIONED BY (DAYS(a))"),
        ("create table q (a int) partitioned by (z)", "no such column"),
        ("create table q (a int) using parquet clustered by (a) into 4 buckets", "CLUSTERED BY"),
        ("create table q (a int) using parquet location '/x'", "LOCATION"),
        ("create table q (a int) using parquet options (a 'b')", "OPTIONS"),
        ("create table q (a int) using parquet tblproperties ('k' = 'v')", "CREATE TABLE with"),
        ("insert overwrite directory '/x' select 1", "DIRECTORY"),
    ],
)
def test_what_a_table_here_cannot_have_is_refused_by_its_name(sql, said):
    with pytest.raises(SqlError) as caught:
        engine_sql(sql, "spark", {})
    assert said in caught.value.message
    assert "cannot be run here" in caught.value.message


def test_an_overwrite_keeps_its_words_and_the_types_of_its_values():
    tables = {"t": pa.schema([("a", pa.int32()), ("g", pa.int64())]), "s": pa.schema([("a", pa.int32())])}
    found = engine_sql("INSERT OVERWRITE TABLE t PARTITION (g = 7) TABLE s", "spark", tables)
    assert found.startswith("INSERT OVERWRITE TABLE t PARTITION(g = ")
    assert found.endswith("SELECT * FROM s")
