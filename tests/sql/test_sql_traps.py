"""What broke other planners: nothing to read, names alike, odd constants, depth and width without a bound."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ballista_py.engines.same_answer import difference
from ballista_py.errors import SqlError
from ballista_py.sql.planner import plan_query
from ballista_py.testing.sql.single_node import InProcessCluster

NESTED = {
    "parentheses": "select " + "(" * 190 + "a" + ")" * 190 + " from t",
    "subqueries": "select * from (" * 80 + "select a from t" + ") q" * 80,
    "cases": "select " + "case when a = 1 then " * 100 + "1" + " end" * 100 + " from t",
    "calls": "select " + "abs(" * 100 + "a" + ")" * 100 + " from t",
    "memberships": "select a from t where k in (select k from u where k in (" * 20 + "select k from u" + "))" * 20,
    "alternatives": "select count(*) from t where " + " or ".join(f"a = {n}" for n in range(1_500)),
    "unions": " union all ".join(["select a from t"] * 60),
    "common tables": "with c0 as (select a, k from t)"
    + "".join(f", c{n} as (select * from c{n - 1})" for n in range(1, 50))
    + " select count(*) from c49",
    "common tables that double": "with c0 as (select a, k from t limit 1)"
    + "".join(f", c{n} as (select x.a, x.k from c{n - 1} x, c{n - 1} y)" for n in range(1, 12))
    + " select count(*) from c11",
}
TOO_DEEP = {
    "a sum of very many": "select sum(" + " + ".join(["a"] * 3_000) + ") from t",
    "very many negations": "select a from t where " + "not " * 3_000 + "bo",
    "very many parentheses": "select " + "(" * 5_000 + "a" + ")" * 5_000 + " from t",
}


@pytest.mark.parametrize("name", NESTED)
def test_deep_and_wide_statements_are_answered(small: Any, name: str) -> None:
    small.check(NESTED[name])


@pytest.mark.parametrize("name", TOO_DEEP)
def test_what_is_too_deep_is_refused_by_name(small: Any, name: str) -> None:
    with pytest.raises(SqlError, match=r"depth|deep|nested"):
        small.plan(TOO_DEEP[name])


@pytest.mark.parametrize(
    "sql",
    [
        "select * from e",
        "select count(*), sum(a), min(s), avg(d), stddev(a), bool_and(bo), count(distinct k) from e",
        "select a, count(*) from e group by a",
        "select a, count(*) from e group by rollup (a)",
        "select count(*) from e group by ()",
        "select t.id, e.id from t left join e on t.k = e.k",
        "select t.id, e.id from e full join t on t.k = e.k",
        "select t.id, e.id from e full join t on t.a = e.a",
        "select id from t where k not in (select k from e)",
        "select id from t where a > all (select a from e)",
        "select id from t where a = any (select a from e)",
        "select id, (select max(a) from e) from t",
        "select k from t except select k from e",
        "select k from e union select k from e",
        "select max(a) from t where k = 3 and k = 4",
        "select a, count(*) from t where k = 3 and k = 4 group by a",
        "select count(*) from (select k from t where k = null) q",
        "select x.id from (select * from t where 1 = 0) x left join r on r.a = x.a",
        "select count(*) from t where k is null and k = 3",
        "select row_number() over (order by id) from e",
    ],
)
def test_nothing_to_read_gives_what_one_node_gives(small: Any, sql: str) -> None:
    small.check(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select id from v where s = 'é'",
        "select id from v where s in ('é', '🦆', 'a''b', '', '\\')",
        "select id from w where s >= 'é'",
        "select '🦆' || s as \"🦆\", count(*) from v group by 1",
        "select e'a\\tb' as t, $$it's$$ as d, id from t where k = 3",
        "select id from t where k in (" + ", ".join(str(n) for n in range(100)) + ")",
        "select id from v where s in (" + ", ".join(f"'s{n}'" for n in range(100)) + ", 'a')",
        "select id, id, id from t where k = 1",
        "select * from (select id, id, a from t) q where q.id = 3",
        "select t.k, u.k from t join u on t.k = u.k",
        "select * from t join u on t.k = u.k where t.id < 5",
        "select t.*, t.* from t where k = 2",
        "select a as b, b as a from t where a = 1 and b = 1",
        "select sum(a) as a, a as k from t group by t.a",
        "select sum(a) as s, sum(a) as s from t group by k order by 1",
        'select 1 as "select", k as "from", count(*) as "order" from t group by k order by "order", "from"',
        "select id from t where k = 3 -- a comment\n/* and another */",
        "select k = 3, k = 3.0, k = '3', k = 3e0 from t",
        "select id from t where k = 3.0",
        "select id from t where k = '3'",
        "select id from t where k in ('1', '2')",
        "select id from x where k between 1.5 and 3.5",
        "select id from t where s = 'a ' or s like 'a_'",
        "select x, count(*) from t group by x",
        "select count(distinct x), min(x), max(x) from t",
        "select t.id, v.id from t join v on t.x = v.x",
        "select year(ts), count(*) from m group by 1",
        "select id from m where ts >= timestamp '2020-01-31 23:59:59.999999'",
        "select id from y where dt = cast('2020-02-29' as date)",
        "select count(*) from (select id from t order by id limit 3) q join u on u.id = q.id",
        "select a from (select a from t order by id desc) q limit 0",
    ],
)
def test_constants_and_names_mean_what_they_mean_on_one_node(small: Any, sql: str) -> None:
    small.check(sql)


def test_the_moment_of_a_statement_is_one_moment(small: Any) -> None:
    plan = small.plan("select count(*) from t where ts < now() and now() = now()")
    assert all("NOW" not in fragment.sql.upper().replace("UNKNOWN", "") for fragment in plan.fragments)
    assert "everything" not in " ".join(plan.notes) or plan.merge_sql is not None


MOMENT_MS = 1_763_742_896_123
AT_MOMENT = [
    ("select count(*) from t where ts < now()", "2025-11-21 16:34:56.123"),
    ("select k, max(ts) from t where cast(ts as date) <= current_date - 3 group by k", "'2025-11-21' AS DATE"),
    (
        "select id from t where ts between now() - interval '40 years' and current_timestamp",
        "2025-11-21 16:34:56.123",
    ),
    ("select n, count(*) from (select id, now() as n from t where a > 2) group by n", "2025-11-21 16:34:56.123"),
]


@pytest.mark.parametrize(("sql", "said"), AT_MOMENT)
def test_legs_compute_with_the_moment_of_the_statement(small: Any, sql: str, said: str) -> None:
    plan = plan_query(sql, small.catalog, small.schema(sql), moment_ms=MOMENT_MS)
    assert said in plan.fragments[0].sql
    assert plan.moment_ms == MOMENT_MS
    assert any("2025-11-21 16:34:56.123" in note for note in plan.notes)
    literal = "timestamptz '2025-11-21 16:34:56.123+00'"
    fixed = re.sub(r"now\(\)|current_timestamp", literal, sql).replace("current_date", "date '2025-11-21'")
    assert difference(small.execute(plan), small.single(fixed)) is None


@pytest.mark.parametrize(
    "sql",
    [
        "select current_date from (select 1 as current_date) x",
        "select 'now() and current_date' as text from t",
        "select now() as n",
        "select today.a from t as today where a = 1",
    ],
)
def test_what_only_looks_like_a_moment_is_left_alone(small: Any, sql: str) -> None:
    plan = plan_query(sql, small.catalog, small.schema(sql), moment_ms=MOMENT_MS)
    assert not any("2025" in fragment.sql for fragment in plan.fragments)
    if "now() as" not in sql:
        assert difference(small.execute(plan), small.single(sql)) is None


def test_chance_is_taken_once_a_row_and_not_once_a_leg(small: Any) -> None:
    plan = small.plan("select k, random() as x from t where random() < 2")
    assert all("RANDOM" not in fragment.sql.upper() for fragment in plan.fragments)
    assert small.execute(plan).num_rows == small.rows["t"].num_rows


def test_a_variance_does_not_overflow_in_a_leg_where_it_would_not_over_all_rows() -> None:
    huge, tiny = Decimal("9" * 38), Decimal("-" + "9" * 38)
    rows = pa.table({"side": ["a", "a", "b", "b"], "d": pa.array([huge, huge, tiny, tiny], pa.decimal128(38, 0))})
    with InProcessCluster(2) as cluster:
        cluster.add("t", rows, "side")
        cluster.check("select var_pop(d), stddev(d) from t")


@pytest.mark.parametrize(
    "sql",
    [
        "select id, +(case when a > 2 then [a] end) as v from t",
        "select max(len(+(case when a > 2 then [a] end))) as v, +max(case when a > 2 then [a] end) as m from t",
        "select id from t where len(+(case when a > 2 then [a] end)) = 0",
        "select id, 1 + a, a+a, k + +1, - +1, [+1] from t order by +1",
    ],
)
def test_a_sign_before_a_value_is_no_word_to_leave_out(small: Any, sql: str) -> None:
    small.check(sql)


def test_a_sign_before_a_text_is_refused_as_the_engine_refuses_it(small: Any) -> None:
    with pytest.raises(SqlError, match="No function matches"):
        small.check("select +s from t")
