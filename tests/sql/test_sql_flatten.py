"""Subqueries of FROM are taken into the block around them where that has the same rows, and only there."""

from __future__ import annotations

from typing import Any

import pytest

ONE_BLOCK = [
    "select g, sum(x) from (select t.a + 1 as g, t.b * 2 as x from t, u where t.k = u.k and u.a > 0) q group by g",
    "select g, count(*) from (select * from (select k, a as g from t where a is not null) i where k > 1) q group by g",
    "select q.s, sum(u.b) from (select t.s, t.k from t join r on t.a = r.a) q join u on q.k = u.k group by q.s",
    "select a, max(b) from (select t.a, u.b from t left join u on t.k = u.k and u.a > 0) q where a > 0 group by a",
    "select a, count(*) from (select a, b from t where exists (select 1 from u where u.k = t.k)) q group by a",
]


@pytest.mark.parametrize("sql", ONE_BLOCK)
def test_a_subquery_that_only_computes_does_not_keep_the_rows_from_being_grouped_in_legs(
    small: Any, sql: str
) -> None:
    plan = small.check(sql)
    assert any("GROUP BY" in fragment.sql for fragment in plan.fragments)
    assert "(SELECT" not in (plan.merge_sql or "").split("FROM", 1)[1]


TRAPS = [
    # A constant is not a position, and a key that is one does not become the number of a column.
    "select one, count(*) from (select 1 as one, a from t) q group by one order by one",
    "select two, a from (select 2 as two, a, id from t) q order by two, a, id limit 5",
    "select x, a from (select null as x, a from t) q order by a limit 3",
    "select count(*) from (select null as x, a from t) q group by x order by x",  # ORDER BY NULL is refused
    "select a, id from (select 2 as two, a, id from t) q order by two, a, id limit 5",
    # A column stays one operand.
    "select x * 2, -x from (select a + 1 as x from t) q order by all",
    # Two names of one column are two keys, and one name of two columns is two columns.
    "select * from (select t.a as n, u.b as n from t join u on t.k = u.k) q order by all",
    "select g, h, count(*) from (select a as g, a as h from t) q group by grouping sets ((g), (h)) order by 1, 2, 3",
    "select g, h, grouping(g), count(*) from (select a as g, a + 1 as h from t) q group by rollup (g, h) order by all",
    "select g, h, count(*) from (select a as g, a as h from t) q group by g, h order by all",
    # What is not a row of the joined tables.
    "select sum(n) from (select row_number() over (partition by a order by id) as n from t) q where n > 1",
    "select count(*), sum(a) from (select distinct a, b from t) q",
    "select count(*) from (select a from t limit 3) q",
    "select sum(c) from (select count(*) as c from t group by a) q",
    "select sum(c) from (select max(b) as c from t group by a) q",
    "select count(*) from (select id from t qualify row_number() over (partition by k order by id) = 1) q",
    # Outer joins keep what they would lose as one block.
    "select t.id, q.a from t left join (select a, k from u where b > 0) q on t.k = q.k order by all",
    "select v.id, q.a from v join (select u.k, t.a from t right join u on t.k = u.k and t.a > 3) q on v.a = q.k",
    "select t.id, q.x from t left join (select a + 1 as x, k from u where b > 0) q on t.k = q.k order by all",
    "select q.id, u.id from (select id, k from t where a > 1) q full join u on q.k = u.k order by all",
    "select q.id, v.a from (select t.id, u.b from t left join u on t.k = u.k) q left join v on v.b = q.b order by all",
    "select v.a, q.y from v left join u on v.a = u.a join (select t.id, t.b as y from t left join r on t.a = r.a) q "
    "on q.y = u.b order by all",
    "select count(*) from (select t.id, u.b as y from t left join u on t.k = u.k) q where y is null",
    # Names: the same column twice, a reference from a nested query, a quoted one.
    "select count(*) from (select t.k, u.k from t join u on t.k = u.k) q",
    "select x from (select a as x, k from t) q where exists (select 1 from u where u.k = q.k and u.a > q.x) order by 1",
    'select "X y", count(*) from (select a as "X y" from t where b > 0) q group by "X y" order by all',
    "select q.x, (select max(u.a) from u where u.b = q.x) from (select b as x from t) q order by all",
    "select x, count(*) from (select a + (select max(b) from v where v.a = t.b) as x from t) q group by x having x > 1",
    # Evaluated once, wherever it stands.
    "select min(x) = max(x) from (select case when a > 1 then a else 0 end as x from t where a is null) q",
]


@pytest.mark.parametrize("sql", TRAPS)
def test_what_may_not_be_taken_in_gives_the_same_rows_all_the_same(small: Any, sql: str) -> None:
    small.check(sql, ordered="order by" in sql and "partition" not in sql)


def test_a_volatile_column_is_evaluated_once_a_row(small: Any) -> None:
    plan = small.plan("select count(*) from (select id + random() as x from t) q where x <> x")
    assert small.execute(plan).to_pylist() == [{"count_star()": 0}]


def test_a_nested_query_is_not_written_as_often_as_its_column_is_named(small: Any) -> None:
    plan = small.check(
        "select x, x + 1, x + 2 from (select a + (select max(b) from v where v.a = t.b) as x from t) q"
    )
    assert sum(sql.count("MAX(") for sql in (plan.merge_sql, *(one.sql for one in plan.fragments))) == 1
