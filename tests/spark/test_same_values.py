"""Literals, formats, patterns and casts mean on Spark what they mean to the engine, or are refused by their name."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, SqlError, UnsupportedExpression
from ballista_py.spark.statements import SparkStatements
from ballista_py.sql.parse.spark_sql import spark_sql

TEXTS = [
    "",
    "a",
    "ab",
    "a%b",
    "a_b",
    r"a\b",
    r"a\%b",
    r"\%",
    "it''s",
    "é",
    "😀",
    " 12 ",
    "1e3",
    "-7",
    "0.5",
    "12d",
    "A\nb",
]
PATTERNS = ["%", "a%", r"a\%b", r"%\%", r"\\%", "a_b", "%''%", "_", r"\_", "é%", "%\n%", "%$%"]
FORMATS = [
    "%Y-%m-%d %H:%M:%S", "%d''th", "at %H", "%%%Y%%", "%f", "%B", "%j", "%-d", "y[M]d''%Y", "%Y#%m", "%Y{}", "", "é %Y",
]  # fmt: skip
MOMENTS = [
    "2024-02-29 23:59:58.123456",
    "1999-12-31",
    "0001-01-01 00:00:00",
    "2024-1-2",
    "2024",
    "epoch",
    " 2024-02-29 ",
]
TYPES = [
    "int",
    "bigint",
    "double",
    "float",
    "decimal(9, 2)",
    "decimal",
    "boolean",
    "date",
    "timestamp",
    "varchar",
    "blob",
]
BLOBS = [r"\xaa", r"\xaa\x00b", "abc", r"\x4G", "é", r"a\b", r"\\"]
OTHERS = [
    "replace('aab', 'a', '')", "replace('ab', '', 'x')", "'a%' like 'a!%' escape '!'", "'a\\b' like 'a\\b' escape '!'",
    "1.5", "1.50", "1e3", "1.0 / 3", "7 // 2", "-7 // 2", "-7 % 3", "12345678901234567890", "0.1 + 0.2",
    "1.5::int", "2.5::int", "[1, 2, 3][-1]", "[1, 2][1]", "log(10)", "round(2.5)", "upper('ß')", "lower('İ')",
    "dayofweek(date '2024-01-07')", "extract(second from timestamp '2024-01-01 00:00:01.5')",
    "extract(year from date '2024-01-07')", "1e16::varchar",
    "date_trunc('week', timestamp '2024-01-03 04:05:06')", "substr('abc', -2)", "substr('abc', 2)",
    "substr('abc', 0, 2)", "date '2024-01-31' + interval 1 month", "date '2024-01-31' + interval '36 hours'",
    "date '2024-01-31' + interval '2' day", "e'a\\tb'", "$$a'b\\n$$", "'a' similar to 'a|b'", "'ab' glob 'a*'",
    "'AB' ilike 'a%'", "regexp_matches('a1', '\\d')", "regexp_replace('aa', 'a', 'b')",
    "regexp_extract('ab', '(a)(b)', 2)", "'a' like 'a#%' escape '#'", "'x' not like 'y%'",
    "datediff('hour', timestamp '2024-01-01 00:59:00', timestamp '2024-01-01 01:00:00')", "hash('a')",
    "length('😀é')", "concat('a', null, 'b')", "'a' || null", "strptime('2024-01-02', '%Y-%m-%d')",
    "greatest(1, null)", "'a' = 'A'",
]  # fmt: skip


def expressions() -> list[str]:
    """What a client might write, of every kind: each with each where they are few, some of them where they are many."""
    chance = random.Random(20260101)
    made = [f"'{text}'" for text in TEXTS] + [f"'{text}'::blob" for text in BLOBS] + OTHERS
    made += [f"'{text}' like '{pattern}'" for text in TEXTS for pattern in PATTERNS]
    made += [f"strftime(timestamp '{moment}', '{form}')" for moment in MOMENTS[:3] for form in FORMATS]
    made += [f"cast('{text}' as {kind})" for text in (*TEXTS, *MOMENTS) for kind in TYPES]
    made += [
        f"cast({number} as {kind})" for number in ("1", "1.5", "-2.5", "1e3", "true", "null") for kind in TYPES
    ]
    made += [
        f"{chance.randint(-99, 99)}.{chance.randint(0, 99):02} {sign} 7.25" for sign in "+-*/" for _ in range(9)
    ]
    return made


@pytest.mark.spark
def test_what_runs_on_spark_has_the_value_that_it_has_here(spark, store):
    engine, statements = DuckDBEngine(threads=1), SparkStatements(spark, store)
    taken, refused, here = list[str](), 0, list[pa.Table]()
    for expression in expressions():
        try:
            spark_sql(f"select {expression} as c")
        except UnsupportedExpression:
            refused += 1
            continue
        try:
            running = engine.query(f"select {expression} as c{len(taken)}")
            value = pa.Table.from_batches(running.batches(), running.schema)
        except SqlError:
            continue
        if not pa.types.is_null(value.schema.field(0).type):  # Spark names no type of null that there is here
            here.append(value)
            taken.append(expression)
    assert len(taken) > 150
    assert refused > 150
    wrong = []
    for start in range(0, len(taken), 100):
        some = taken[start : start + 100]
        text = ", ".join(f"{expression} as c{start + place}" for place, expression in enumerate(some))
        schema = pa.schema([table.schema.field(0) for table in here[start : start + 100]])
        answer = statements.run(f"select {text}", [], schema)
        found = pa.Table.from_batches(answer.batches(), schema)
        for place, expression in enumerate(some):
            reason = difference(found.select([place]), here[start + place])
            if reason is not None:
                wrong.append(f"{expression}: {reason}")
    engine.close()
    assert not wrong


@pytest.mark.parametrize(
    ("statement", "piece"),
    [
        (r"select regexp_matches(a, '\d') from t", "REGEXP_MATCHES"),
        ("select strptime(a, '%Y') from t", "STRPTIME"),
        ("select strftime(a, b) from t", "STRFTIME"),
        ("select a::int from t", "CAST"),
        ("select * from t where a like b", "LIKE"),
        ("select '\\xé'::blob", "CAST"),
        ("select a[1] from t", r"a\[1\]"),
        ("select nobody_knows(a) from t", "NOBODY_KNOWS"),
    ],
)
def test_what_could_mean_something_else_is_refused_by_its_name_and_with_the_way_out(statement, piece):
    with pytest.raises(UnsupportedExpression, match=f'{piece}.*without engine="spark"') as raised:
        spark_sql(statement)
    assert "\n" not in raised.value.message


def test_casts_of_columns_run_where_their_types_leave_no_choice():
    whole, text = {"a": pa.int32()}, {"a": pa.string()}
    assert "CAST(`a` AS BIGINT)" in spark_sql("select a::bigint from t", whole)
    for columns, statement in ((text, "select a::bigint from t"), (whole, "select b as a, a::bigint from t")):
        with pytest.raises(BallistaError, match="something else"):
            spark_sql(statement, columns)
