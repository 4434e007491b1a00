"""What runs in the legs and what at the merge, where it matters for cost."""

from __future__ import annotations

import re
from copy import copy
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

IN_PLACE = [
    "select id, a + 1 from t where a > 1",
    "select k, count(*), median(a) from t group by k",
    "select k, a, sum(b) from t group by k, a having sum(b) > 1",
    "select distinct k, a from t",
    "select t.id, u.id from t join u on t.k = u.k",
    "select t.id, u.id from t left join u using (k)",
    "select t.id, u.id from t full join u on t.k = u.k",
    "select t.id, r.s from t join r on t.a = r.a join r2 on r2.b = r.b",
    "select t.k, max(u.a) from t, u, r where t.k = u.k and u.a = r.a group by t.k",
    "select id from t where exists (select 1 from u where u.k = t.k)",
    "select id from t where k in (select k from u) and a not in (select a from r where a is not null)",
    "select id, (select max(a) from u where u.k = t.k) from t",
    "select id, sum(a) over (partition by k order by id) from t",
    "select k from t union select k from u",
    "select k from t except select k from u",
    "select id from t union all select id from u",
    "with c as (select k, sum(a) s from t group by k) select x.k from c x join c y on x.k = y.k",
    "select z.id from z join z2 on z.a = z2.a and z.b = z2.b",
    "select * from r order by id limit 3",
    "select r.a, count(*) from r join r2 on r.a = r2.a group by r.a order by 1",
]


@pytest.mark.parametrize("sql", IN_PLACE)
def test_what_legs_can_finish_needs_no_merge(small: Any, sql: str) -> None:
    plan = small.check(sql)
    assert plan.merge_sql is None
    assert len(plan.fragments) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "select a, count(*), sum(d), avg(b), min(s), max(dt), stddev(b) from t group by a",
        "select count(distinct a), sum(b) filter (where a > 1) from t",
        "select a, min_by(s, id), max_by(d, id) filter (where b > 0), arg_min(x, id) from t group by a",
        "select max_by(ts, id), min_by(k, id) from t where a > 0",
        "select a, min_by(s, -id) from e group by a",
        "select a, b, count(*) from t group by cube (a, b)",
        "select t.a, sum(u.d) from t, u, r where t.k = u.k and u.a = r.a group by t.a",
        "select a, count(*) from t where k in (select k from u) group by a order by 2 desc limit 3",
    ],
)
def test_aggregates_are_computed_per_leg_and_put_together(small: Any, sql: str) -> None:
    plan = small.check(sql)
    (fragment,) = plan.fragments
    assert any(word in fragment.sql for word in ("GROUP BY", "SUM(", "ARG_MAX("))
    assert plan.notes == ()


def test_keys_that_are_equal_only_through_a_third_table_are_equated_in_the_leg(small: Any) -> None:
    """Without that the leg would ship a product of its partitions."""
    plan = small.check("select t.id, u.id from t, u, v where t.k = v.a and u.k = v.a")
    (joined,) = (fragment.sql for fragment in plan.fragments if len(fragment.tables) == 2)
    assert "t.k = u.k" in joined.replace('"', ""), joined


@pytest.mark.parametrize("tables", ["s, m, l", "l, m, s", "m, l, s"])
def test_the_merge_joins_the_largest_relation_first_and_then_what_is_connected_and_smallest(
    make_cluster: Any, tables: str
) -> None:
    cluster = make_cluster(executors=2)
    for name, rows in (("s", 10), ("m", 100), ("l", 1_000), ("x", 3)):
        ids = range(rows)
        columns = {f"{name}_id": ids, f"{name}_k": [n % 7 for n in ids], f"{name}_j": [n % 5 for n in ids]}
        cluster.add(name, pa.table(columns), f"bucket(3, {name}_id)")
    joined = "select count(*) from x, {} where s_k = l_k and m_j = l_j and x_k = s_j"
    plan = cluster.check(joined.format(tables))
    read = {fragment.name: fragment.tables[0].table for fragment in plan.fragments}
    order = [read[name] for name in re.findall(r"f\d+(?= CROSS| WHERE)", plan.merge_sql.split("FROM", 1)[1])]
    assert order == ["l", "s", "x", "m"]


def test_a_leg_ships_no_more_rows_than_the_limit_can_use(small: Any) -> None:
    plan = small.check("select id, a from t order by d desc, id limit 4 offset 3", ordered=True)
    (fragment,) = plan.fragments
    assert fragment.sql.endswith("LIMIT 7")
    assert "LIMIT 4 OFFSET 3" in plan.merge_sql


def test_a_limit_without_order_stops_every_leg(small: Any) -> None:
    plan = small.plan("select id from t limit 5")
    assert plan.fragments[0].sql.endswith("LIMIT 5")
    assert small.execute(plan).num_rows == 5


@pytest.mark.parametrize(
    "inner",
    [
        "select a from r limit 3",
        "select a from (select a, row_number() over (order by b) n from r) q where n < 3",
    ],
)
def test_what_replicas_may_choose_differently_is_chosen_by_one(small: Any, inner: str) -> None:
    plan = small.plan(f"select id from t where a in ({inner})")
    assert plan.merge_sql is not None
    assert {len(small.legs(plan)) - 3} == {1}


def test_only_the_columns_that_the_merge_reads_are_shipped(small: Any) -> None:
    plan = small.check("select t.s from t join v on t.a = v.a where t.b = 1 and v.b = 2")
    assert sorted(fragment.sql for fragment in plan.fragments) == [
        "SELECT t.a, t.s FROM t WHERE t.b = 1",
        "SELECT v.a FROM v WHERE v.b = 2",
    ]


def test_a_filtered_replicated_table_reduces_what_is_shipped(small: Any) -> None:
    plan = small.check("select t.id from t, v, r where t.a = r.a and v.b = r.b and r.s = 'a'")
    sqls = [fragment.sql for fragment in plan.fragments]
    assert sum("IN (SELECT r.a FROM r WHERE r.s = 'a')" in sql for sql in sqls) == 1
    assert sum("IN (SELECT r.b FROM r WHERE r.s = 'a')" in sql for sql in sqls) == 1


def test_equal_fragments_are_run_once_and_said_to_be_reused(small: Any) -> None:
    plan = small.check(
        "select t.id from t where t.d = (select max(x.d) from t x, v where x.a = v.a) and t.a in (select a from v)"
    )
    reused = {fragment.sql: fragment.reused for fragment in plan.fragments}
    assert reused["SELECT v.a FROM v"] is True


def test_tables_whose_owners_differ_for_now_are_joined_at_the_merge(small: Any) -> None:
    moved = attrs.evolve(small.maps["u"], owner_index=np.roll(small.maps["u"].owner_index, 1, axis=0))
    cluster = copy(small)
    cluster.maps = {**small.maps, "u": moved}
    plan = cluster.check("select t.id, u.id from t join u on t.k = u.k")
    assert len(plan.fragments) == 2
    assert "different owners" in plan.notes[0]


def test_what_the_planner_does_not_know_runs_as_written_over_whole_tables(small: Any) -> None:
    sql = "select t.id from t asof join u on t.id >= u.id"
    plan = small.check(sql)
    assert plan.merge_sql == sql
    assert {fragment.name for fragment in plan.fragments} == {"t", "u"}
    assert "ASOF" in plan.notes[0]


def test_the_same_statement_gives_the_same_plan(small: Any) -> None:
    sql = "select t.a, count(*) from t, u, v, r where t.k = u.k and v.s = t.s and r.a = t.a group by t.a"
    assert len({str(small.plan(sql)) for _ in range(3)}) == 1
