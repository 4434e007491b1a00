"""Nested queries in rare places, and groups that nothing in the text shows."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "sql",
    [
        "select (select max(a) from t) as m, sum(b) from t group by m",
        "select (select 42) as m, max(b) from t group by m",
        "select t.id, u.id from t join u on (select t.k = u.k) order by all",
        "select t.id, v.id from t join v on (select t.a = x.a from x where v.a = x.a limit 1) where false",
        "select t.id, u.id from t left join u on t.k = u.k and (select case when u.b > 0 then true else false end) "
        "order by all",
        "select count(*) from t where (select count(*) > 3 from v where v.a = t.a)",
        "select count(*) from t having (select count(*) > 1 from v)",
        "select exists (select exists (select * from t))",
        "select 1 where exists (select exists (select * from e))",
        "select exists (select exists (select * from e where a > (select 1)))",
    ],
)
def test_a_nested_query_may_be_a_whole_condition_or_key(small: Any, sql: str) -> None:
    small.check(sql, ordered="order by" in sql)


@pytest.mark.parametrize("table", ["t", "e", "r", "(select a from t where false) q"])
@pytest.mark.parametrize(
    "sql", ["select 1 from {} group by ()", "select 'x' as y from {} group by () having true"]
)
def test_one_group_of_all_rows_is_one_row_even_of_none(small: Any, sql: str, table: str) -> None:
    small.check(sql.format(table))


def test_a_function_that_the_parser_would_write_otherwise_is_left_as_it_stands(small: Any) -> None:
    plan = small.check("select approx_top_k(a, 2) from t where a = 1")
    assert "approx_top_k(a, 2)" in plan.merge_sql


@pytest.mark.parametrize(
    "sql",
    [
        "select date_trunc(u.unit, dt) from t cross join (select 'year' as unit union all select 'day') u order by all",
        "select datediff(unit, dt, ts::date), date_part(unit, dt) from (select 'day' as unit, dt, ts from t) q",
        "select timestamp '2008-01-01 00:00:01.5'::varchar, date '2020-01-01'::varchar, count(*) from t",
        "select s.lower(), (s || 'X').lower() from t order by all",
        "select t.s.upper().lower(), list(b).list_sum() from t group by all order by all",
        "select alias(s), alias(a + 1) from t",
        "select time_bucket(interval '5 days', ts::timestamptz, 'Europe/Berlin') from t order by all",
        """select json_extract('{"a": [' || a || ']}', '$..[*]') from t order by all""",
        "select str[1], text[1:1] from (select s as str, s as text from t) q order by all",
    ],
)
def test_what_the_parser_reads_otherwise_than_the_engine_is_left_as_it_stands(small: Any, sql: str) -> None:
    plan = small.check(sql, ordered="order by" in sql)
    assert any("from the text as it stands" in note for note in plan.notes)
