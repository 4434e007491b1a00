"""Statements that cannot run are refused in one line that says where."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.sql.planner import plan_query

NOBODY_ASKED = pa.schema([])


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("selec 1", 1, 7),
        ("select * form t", 1, 15),
        ("select a\nfrom t\nwhere (a = 1", 3, 12),
        ("select 1; selec 2", 1, 17),
    ],
)
def test_text_that_does_not_parse_is_refused_with_its_position(
    small: Any, sql: str, line: int, column: int
) -> None:
    with pytest.raises(SqlError, match=rf"\(line {line}, column {column}\)") as caught:
        plan_query(sql, small.catalog, NOBODY_ASKED)
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
    assert "\n" not in caught.value.message
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t values (1)",
        "create table x (a int)",
        "drop table t",
        "update t set a = 1",
        "delete from t",
        "copy t to 'x.csv'",
        "attach 'x.db'",
        "set threads = 1",
        "pragma version",
        "explain select 1",
        "describe t",
        "with c as (select 1) insert into t select * from c",
    ],
)
def test_statements_that_are_no_queries_are_refused(small: Any, sql: str) -> None:
    for output in (NOBODY_ASKED, pa.schema([("Count", pa.int64())])):
        with pytest.raises(SqlError, match=r"cannot be run here|is no query"):
            plan_query(sql, small.catalog, output)


def test_a_text_holds_exactly_one_statement(small: Any) -> None:
    for sql, said in (
        ("select 1; select 2", "2 statements"),
        ("", "empty"),
        (" ; ", "empty"),
        ("-- nothing", "empty"),
    ):
        with pytest.raises(SqlError, match=said):
            plan_query(sql, small.catalog, NOBODY_ASKED)
    assert plan_query("select 1;", small.catalog, NOBODY_ASKED).merge_sql == "select 1"


def test_an_unknown_table_is_named_with_its_position(small: Any) -> None:
    with pytest.raises(SqlError, match=r"Table 'nope' does not exist \(line 2, column 6\)") as caught:
        plan_query("select *\nfrom nope n", small.catalog, NOBODY_ASKED)
    assert caught.value.details == {"table": "nope", "line": 2, "column": 6}


def test_unclosed_quotes_and_deep_nesting_are_refused(small: Any) -> None:
    with pytest.raises(SqlError, match="does not parse"):
        plan_query("select 'abc", small.catalog, NOBODY_ASKED)
    with pytest.raises(SqlError, match="nested more than"):
        plan_query("select " + "(" * 5000 + "1" + ")" * 5000, small.catalog, NOBODY_ASKED)


def test_other_dialects_are_translated(small: Any) -> None:
    spark = "select `id`, date_add(dt, 1) as next from t where k = 3 order by id limit 2"
    text = engine_sql(spark, "spark", small.catalog.schemas)
    plan = plan_query(spark, small.catalog, small.schema(text), dialect="spark")
    assert small.execute(plan).equals(small.single(text))
    with pytest.raises(SqlError, match="line 1"):
        engine_sql("select from from", "postgres")
    with pytest.raises(SqlError, match="nosuch"):
        engine_sql("select 1", "nosuch")


def test_null_order_of_another_dialect_survives(small: Any) -> None:
    text = engine_sql("select a from t order by a desc limit 3", "postgres")
    plan = small.check(text, ordered=True)
    assert small.execute(plan).column(0).to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    "source", ["a join b on a.id = b.id", "a, b", "a natural join b", "(select 1 as id) s cross join b"]
)
def test_a_merge_from_a_join_says_what_to_write_instead(source):
    with pytest.raises(SqlError, match=r"takes one source: put the join into a query, USING \(SELECT"):
        read_change(f"merge into t using {source} on t.id = a.id when matched then delete")
    with pytest.raises(SqlError, match="does not parse"):
        read_change("merge into t using a on on t.id = a.id when matched then delete")
