"""A predicate on a partition key leaves the partitions that can hold its rows, and never fewer."""

from __future__ import annotations

from typing import Any

import pytest


def partitions(cluster: Any, sql: str, table: str) -> tuple[int, ...]:
    """The partitions of a table that the only fragment with it must cover."""
    plan = cluster.check(sql)
    (found,) = {part.partitions for fragment in plan.fragments for part in fragment.tables if part.table == table}
    return found


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("select id from t where k = 3", 1),
        ("select id from t where 3 = k and a > 0", 1),
        ("select id from t where k in (3, 3)", 1),
        ("select id from t where k is null", 1),
        ("select id from t where k is not distinct from 3", 1),
        ("select id from t where k = null", 0),
        ("select id from t where k = 3 and k is null", 0),
        ("select id from t where (k = 3 and a = 1) or k = 3", 1),
        ("select id from t where k = 3 or k is null", 2),
        ("select id from t where -k = 3", 6),
        ("select id from t where k = 3.0", 6),
        ("select id from t where k = '3'", 6),
        ("select id from t where k = 3 or a = 1", 6),
        ("select id from t where not k = 3", 6),
        ("select id from t where k > 3", 6),
        ("select id from t where k = 99999999999", 6),
        ("select id from t where cast(k as varchar) = '3'", 6),
        ("select q.n from (select k, count(*) n from t group by k) q where q.k = 3", 1),
        ("select q.k from (select k + 0 as k from t) q where q.k = 3", 6),
        ("select id from t where exists (select 1 from u where u.k = t.k) and k = 3", 1),
        ("select id from t where k in (select k from u where k = 3)", 6),
        ("select t.id from t join u on t.k = u.k where u.k = 3", 1),
        ("select t.id from t left join u on t.k = u.k where t.k = 3", 1),
        ("select t.id from t left join u on t.k = u.k and u.k = 3", 6),
        ("select t.id from t full join u on t.k = u.k where t.k = 3", 6),
        ("select k from t where k = 3 union all select k from t where k is null", 2),
        ("select id from t where k is not null", 5),
        ("select id from t where not (k is null)", 5),
        ("select id from t where k is not null and k = 3", 1),
        ("select id from t where k = cast(3 as bigint)", 1),
        ("select id from t where k = 3::integer", 1),
        ("select id from t where k in (cast(3 as smallint), cast(-3 as bigint))", 2),
        ("select id from t where k = cast('3' as integer)", 6),
        ("select id from t where k = cast(3 as double)", 6),
    ],
)
def test_a_bucket_key_is_pruned_by_what_surely_equals_it(small: Any, sql: str, count: int) -> None:
    assert len(partitions(small, sql, "t")) == count


def test_a_filter_on_one_side_of_a_join_in_place_prunes_the_other(small: Any) -> None:
    sql = "select t.id from t join u on t.k = u.k where u.k = 3"
    assert partitions(small, sql, "t") == partitions(small, sql, "u")


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("s = 'b'", {"b"}),
        ("s in ('b', 'nobody')", {"b"}),
        ("s is null", {None}),
        ("s >= 'a' and s < 'b'", {"a", "ab", "a'b"}),
        ("s between 'A' and 'a'", {"A", "a"}),
        ("'zz' <= s", {"zz", "é"}),
        ("s > null", set()),
    ],
)
def test_a_key_that_is_a_column_is_pruned_by_ranges_too(small: Any, where: str, kept: set[str | None]) -> None:
    found = partitions(small, f"select id from w where {where}", "w")
    known = {small.maps["w"].value(partition)[0] for partition in small.maps["w"].ids().tolist()}
    assert {small.maps["w"].value(partition)[0] for partition in found} == kept & known


@pytest.mark.parametrize(
    ("where", "years"),
    [
        ("dt = date '2020-03-17'", {2020}),
        ("dt = '2020-03-17'", {2020}),
        ("dt in (date '2020-03-17', date '2021-01-31')", {2020, 2021}),
        ("dt is null", {None}),
        ("dt > date '2020-06-01'", {2020, 2021}),
        ("dt >= date '2021-01-01'", {2021}),
        ("dt < date '2020-01-01'", {2019, 2020}),
        ("dt between date '2019-01-01' and date '2019-12-31'", {2019}),
        ("dt > date '2019-06-01' and dt <= date '2019-12-31'", {2019}),
        ("dt > null", set()),
        ("date '2021-01-01' <= dt", {2021}),
    ],
)
def test_a_function_of_a_column_is_pruned_by_equality(small: Any, where: str, years: set[int | None]) -> None:
    found = partitions(small, f"select id from y where {where}", "y")
    known = {small.maps["y"].value(partition)[0] for partition in small.maps["y"].ids().tolist()}
    assert {small.maps["y"].value(partition)[0] for partition in found} == years & known


def test_a_truncated_time_is_pruned_by_ranges(small: Any) -> None:
    where = "ts >= timestamp '2020-01-15 10:00:00' and ts < timestamp '2020-02-01 00:00:00'"
    found = partitions(small, f"select id from m where {where}", "m")
    months = {small.maps["m"].value(partition)[0].month for partition in found}
    assert months == {1, 2}


def test_every_key_of_several_prunes_by_itself(small: Any) -> None:
    total = len(small.maps["z"])
    by_a = len(partitions(small, "select id from z where a = 1", "z"))
    by_both = len(partitions(small, "select id from z where a = 1 and b = 2", "z"))
    assert (total, by_a, by_both) == (12, 4, 1)


def test_the_plan_says_what_pruned(small: Any) -> None:
    (fragment,) = small.plan("select id from t where k = 3 and a > 1").fragments
    assert fragment.tables[0].pruned_by == "t.k = 3"
    assert fragment.tables[0].total == 6
