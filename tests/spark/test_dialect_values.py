"""What a statement in Spark's dialect gives here is what Spark gives, or it is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.testing.sql.dialect_check import IDS, Engine, Failed, family, rows, same_rows, unlike
from ballista_py.testing.sql.dialect_expressions import expressions

QUERIES = [
    "select id, i from v order by i, id",
    "select id, s from v order by s desc, id",
    "select b, count(*), sum(i), sum(l), min(s), max(dt), avg(d), avg(i), count(distinct h), mean(h) from v "
    "where id < 8 group by b order by b desc",
    "select count(1), count_if(i > 0), sum(n), bool_or(b), stddev(d), var_pop(i) from v where id < 8",
    "select id, row_number() over (order by i desc), rank() over (order by b), lag(i, 1, 0) over (order by id), "
    "sum(h) over (order by id rows between 1 preceding and current row) from v order by id",
    "with q (a, c) as (select b, count(*) from v group by b) select q.c, v.id from v left join q on q.a <=> v.b "
    "order by v.id",
    "select id from v left semi join (select j from v where id < 8) w on v.i = w.j order by id",
    "select id from v a left anti join v b on a.i = b.j order by id",
    "select i as a from v where id < 4 union select h from v where id < 3 order by a",
    "select b, h, count(*) from v where id < 7 group by rollup (b, h) order by b, h, 3",
    "select i % 2 as i, count(*) from v where id < 7 group by i order by i, 2",
    "select -i as i from v where id < 7 order by i",
    "select `count(1)` from (select count(1) from v) q",
    "select distinct b from v order by b limit 2",
    "select a.id, b.id from v a join v b on a.dt < b.du and b.ts >= '2024-01-01' order by a.id, b.id",
    "select x.a, x.c from values (1, 'a'), (2, null) as x (a, c) order by x.c desc",
    "select 7 / 2, -7 div 2, 7 % -3, 'it''s', 'a\\nb', 1.5 * 2, 2L, concat('a', null)",
    "select id, h from v where not (i > 2 and b) order by h nulls last, id",
    "select id, percent_rank() over (order by id), ntile(3) over (order by id) from v order by id",
    "select dayofweek(dt) as w, count(*) from v where id < 7 group by dayofweek(dt) order by w, 2",
    "select id, s from v where s like '%\\\\%' or t like 'a\\%b\\_' order by id",
]


@pytest.fixture(scope="module")
def there(spark):
    """A session of its own with the table `v`, that interprets: there is much text, and few rows."""
    session = spark.newSession()
    for name, value in (
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.shuffle.partitions", "1"),
        ("spark.sql.ansi.enabled", "true"),
    ):
        session.conf.set(name, value)
    session.createDataFrame(rows()).createOrReplaceTempView("raw")
    columns = ", ".join(
        "cast(ts as timestamp_ntz) as ts" if name == "ts" else name for name in rows().column_names
    )
    session.sql(f"select {columns} from raw").createOrReplaceTempView("v")
    return session


@pytest.fixture(scope="module")
def engine():
    made = Engine()
    yield made
    made.close()


Found = dict[int, tuple[pa.DataType, dict[int, Any]]]


def evaluated(session: Any, asked: Sequence[tuple[int, str]], where: str) -> Found:
    """Types and values of expressions by number and row; those that Spark refuses, or that fail, are not there."""
    if not asked:
        return {}
    columns = ", ".join(f"{text} as c{number}" for number, text in asked)
    try:
        answer: pa.Table = session.sql(f"select id, {columns} from v where {where}").toArrow()
    except PySparkException:
        if len(asked) == 1:
            return {}
        half = len(asked) // 2
        return {**evaluated(session, asked[:half], where), **evaluated(session, asked[half:], where)}
    ids = answer.column("id").to_pylist()
    found: Found = {}
    for number, _ in asked:
        column = answer.column(f"c{number}")
        found[number] = column.type, {row: _value(column[place]) for place, row in enumerate(ids)}
    return found


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # a year that there is no value for here
        return Failed()


def compare(session: Any, engine: Engine, seed: int, count: int) -> tuple[list[str], int, int]:
    asked = expressions("spark", seed, count)
    here = [found for found in (engine.value(one, "spark") for one in asked) if found is not None]
    batches: dict[str, list[tuple[int, str]]] = {"true": []}
    for number, one in enumerate(here):
        whole = len(one.rows) == len(IDS) and " over " not in one.expression
        for where in ("true",) if whole else [f"id = {row}" for row in one.rows]:
            batches.setdefault(where, []).append((number, one.expression))
    there: Found = {}
    for where, some in batches.items():
        for start in range(0, len(some), 100):
            for number, (kind, values) in evaluated(session, some[start : start + 100], where).items():
                there.setdefault(number, (kind, {}))[1].update(values)
    wrong = [
        unlike(here[number], _family(kind), values, "spark", single=kind == pa.float32())
        for number, (kind, values) in there.items()
    ]
    return (
        [reason for reason in wrong if reason],
        len(asked) - len(here),
        sum(map(len, (v for _, v in there.values()))),
    )


def _family(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_integer(kind):
        return "int"
    name = re.sub(r"128.*", "", str(kind))
    return {"date32[day]": "date", "bool": "boolean", "large_string": "text"}.get(name, family(name))


@pytest.mark.spark
def test_expressions_have_their_value_or_are_refused(there, engine):
    wrong, refused, values = compare(there, engine, int(os.environ.get("BALLISTA_SIM_FIRST_SEED", "1")), 150)
    assert not wrong
    assert refused > 40
    assert values > 1_500


@pytest.mark.spark
@pytest.mark.long
def test_thousands_of_expressions_have_their_value_or_are_refused(there, engine):
    first = int.from_bytes(os.urandom(4))
    for seed in range(first, first + 10):
        wrong, _, _ = compare(there, engine, seed, 500)
        assert not wrong, f"seed {seed}"


@pytest.mark.spark
@pytest.mark.parametrize("sql", QUERIES)
def test_queries_have_their_rows_in_their_order(there, engine, sql):
    here = engine.query(sql, "spark")
    assert here is not None
    answer = [tuple(row) for row in there.sql(sql).collect()]
    assert same_rows(here, answer), f"{here} instead of {answer}"


@pytest.mark.spark
@pytest.mark.parametrize("keys", ["b", "c, a", "a, b"])
def test_columns_of_a_partitioned_table_stand_where_spark_puts_them(spark, tmp_path, keys):
    sql = f"create table ordered (b string, a int, c int) using parquet partitioned by ({keys})"
    spark.sql(f"{sql} location '{tmp_path}'")
    try:
        there = spark.table("ordered").columns
    finally:
        spark.sql("drop table ordered")
    assert [name for name, _ in read_change(engine_sql(sql, "spark", {})).columns] == there
