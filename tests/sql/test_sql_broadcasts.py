"""Small relations go to the legs of large ones when estimates say so, and the answer stays that of a single node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from ballista_py.sql.explain import explain_text, plan_as_dict
from ballista_py.sql.plan import BroadcastLimits, leg_from_json, relation_bytes
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.transport.arrow.door import read_rows

ROWS = 5_000
LIMITS = BroadcastLimits(worth_bytes=1_000)


@pytest.fixture(scope="module")
def shop() -> Iterator[InProcessCluster]:
    """Sales by customer, items and shops by themselves: no join is in place."""
    chance = np.random.default_rng(5)
    sales = pa.table(
        {
            "customer": chance.integers(0, 300, ROWS),
            "item": chance.integers(0, 200, ROWS),
            "amount": chance.integers(0, 1_000, ROWS),
            "note": [f"sold {n}" for n in range(ROWS)],
        }
    )
    items = pa.table({"item": range(200), "kind": [f"kind {n % 20}" for n in range(200)], "price": range(200)})
    shops = pa.table({"shop": range(30), "item": [n % 7 if n % 5 else None for n in range(30)]})
    with InProcessCluster(3, broadcasts=LIMITS) as cluster:
        cluster.add("sales", sales, "bucket(8, customer)")
        cluster.add("items", items, "bucket(4, item)")
        cluster.add("shops", shops, "bucket(2, shop)")
        cluster.add("days", pa.table({"item": [1, 2], "day": ["Monday", "Sunday"]}), None)
        yield cluster


def shipped(cluster: InProcessCluster, sql: str) -> tuple[int, int]:
    """The bytes that legs and broadcasts moved: without broadcasts, and with them."""
    found = []
    for limits in (None, LIMITS):
        cluster.broadcasts = limits
        cluster.check(sql)
        found.append(cluster.shipped_bytes)
    return found[0], found[1]


@pytest.mark.parametrize(
    "sql",
    [
        "select kind, sum(amount) from sales join items using (item) group by kind",
        "select kind, count(*) from sales left join items on sales.item = items.item and price > 9 group by kind",
        "select customer, max(price) from sales s, items i where s.item = i.item and kind = 'kind 3' group by customer",
        "select kind, sum(amount) from sales s, items i, shops h where s.item = i.item and h.item = i.item group by 1",
        "select count(*) from sales where item in (select item from items where kind = 'kind 1')",
        "select count(*) from sales where item not in (select item from shops where item is not null)",
        "select count(*), sum(amount) from sales where amount > (select avg(amount) from sales)",
        "select sum(amount) from sales s, items i where s.item = i.item and kind = 'kind 3' and "
        "amount < (select avg(amount) from sales x where x.item = i.item)",
        "select s.note from sales s, items i where s.item = i.item and kind = 'kind 7' order by amount, note limit 5",
    ],
)
def test_what_would_gather_a_large_table_ships_less(shop: InProcessCluster, sql: str) -> None:
    before, after = shipped(shop, sql)
    assert after < before / 2


def test_a_negated_membership_in_a_set_with_null_is_never_true(shop: InProcessCluster) -> None:
    plan = shop.check("select count(*) from sales where item not in (select item from shops)")
    assert plan.broadcasts != ()


def test_a_preserved_small_side_is_not_sent_to_every_leg(shop: InProcessCluster) -> None:
    sql = "select i.item, count(s.amount) from items i left join sales s on s.item = i.item group by i.item"
    assert not shop.check(sql).broadcasts


def test_the_keys_of_a_filtered_side_go_first_where_rows_must_come_to_the_merge(shop: InProcessCluster) -> None:
    sql = (
        "select i.item, median(s.amount) from items i left join sales s on s.item = i.item "
        "where i.kind = 'kind 3' group by i.item"
    )
    plan = shop.check(sql)
    (large,) = (fragment for fragment in plan.fragments if fragment.tables[0].table == "sales")
    (keys,) = large.uses
    assert f"s.item IN (SELECT {keys}.c0" in large.sql


UNSOLD = (
    "select kind, count(*), sum(price) from items i where price < 150 and not exists "
    "(select 1 from sales s where s.item = i.item{}) group by kind"
)


def test_rows_that_ask_a_nested_query_are_fetched_once_and_give_its_keys(shop: InProcessCluster) -> None:
    plan = shop.check(UNSOLD.format(" and amount < 300"))
    kept, keys = plan.broadcasts
    assert (len(kept.fragments), keys.fragments, keys.uses) == (1, (), (kept.name,))
    assert [f.tables[0].table for f in plan.fragments] == ["items", "sales"]
    assert plan.merge_uses == (kept.name,)
    assert f"from {kept.name}" in explain_text(plan, shop.legs(plan))
    before, after = shipped(shop, UNSOLD.format(""))
    assert after < before / 2


@pytest.mark.parametrize(
    ("more", "once"),
    [
        ("", True),
        (" and (amount < 300 or note like '%7')", True),
        (" and s.amount > i.price", False),  # more than the key is asked for
        (" and s.customer in (select customer from sales x where x.amount > 990)", True),
        (" and s.item is distinct from 7 and (s.item = 8 or i.price = 9)", True),
        (" limit 1", False),
        (" group by s.customer", False),
        (" having count(*) > 40", False),
        (" and s.item in (select h.item from shops h where h.shop > i.price)", False),
    ],
)
def test_where_only_existence_matters_legs_give_each_key_once(
    shop: InProcessCluster, more: str, once: bool
) -> None:
    for sql in (UNSOLD.format(more), UNSOLD.format(more).replace("not exists", "exists")):
        plan = shop.check(sql)
        assert any("DISTINCT s.item AS key" in fragment.sql for fragment in plan.fragments) == once


def test_a_row_too_large_to_be_kept_is_fetched_after_its_keys(shop: InProcessCluster) -> None:
    shop.broadcasts = BroadcastLimits(worth_bytes=1_000, max_bytes=2_000)
    try:
        plan = shop.check(UNSOLD.format(""))
    finally:
        shop.broadcasts = LIMITS
    assert [broadcast.fragments for broadcast in plan.broadcasts] == [("f0",)]
    assert "DISTINCT" in plan.fragments[0].sql


@pytest.mark.parametrize(
    "sql",
    [
        "select item, (select max(amount) from sales s where s.item = i.item) from items i where kind = 'kind 3'",
        "select i.item, exists (select 1 from sales s where s.item = i.item) from items i where price < 20",
        "select (select count(*) from sales s where s.item = i.item) as n, count(*) from items i where price < 20 "
        "group by n order by n",
        "select item from items i where kind = 'kind 3' "
        "order by (select sum(amount) from sales s where s.item = i.item)",
    ],
)
def test_rows_that_ask_beside_their_conditions_send_their_keys_too(shop: InProcessCluster, sql: str) -> None:
    before, after = shipped(shop, sql)
    assert after < before / 2


def test_what_asks_by_an_aggregate_sends_no_keys(shop: InProcessCluster) -> None:
    sql = (
        "select kind, max(price) + (select max(amount) from sales s where s.item = min(i.item)) from items i "
        "where price < 20 group by kind"
    )
    assert shop.check(sql).broadcasts == ()


def test_a_membership_keeps_the_share_that_its_own_filter_keeps(shop: InProcessCluster) -> None:
    sql = "select distinct note from sales where item in (select item from days{})"
    weekday, any_day = (shop.plan(sql.format(end)).fragments[-1] for end in (" where day = 'Monday'", ""))
    assert weekday.estimated_bytes * 5 <= any_day.estimated_bytes


LATE = (
    "select i.kind, count(*) from sales s, items i where s.item = i.item and i.kind = 'kind 3' and amount > 10 "
    "and exists (select 1 from sales x where x.customer = s.customer and x.amount < s.amount) "
    "and not exists (select 1 from sales y where y.customer = s.customer and y.amount > s.amount + 500) group by i.kind"
)


def test_rows_that_would_ask_correlated_queries_in_vain_are_dropped_before(shop: InProcessCluster) -> None:
    """What the rows weigh would not be worth a broadcast; what they ask is."""
    shop.broadcasts = BroadcastLimits(worth_bytes=100_000)
    try:
        plain = LATE.split("and exists")[0] + " group by i.kind"
        assert shop.check(plain).broadcasts == ()
        (large,) = (fragment for fragment in shop.check(LATE).fragments if fragment.uses)
    finally:
        shop.broadcasts = LIMITS
    assert "GROUP BY" in large.sql


def test_correlated_conjuncts_come_last(shop: InProcessCluster) -> None:
    """DuckDB made the whole product of the joined tables when a membership stood behind a correlated EXISTS."""
    sql = (
        "select count(*) from sales s where exists (select 1 from sales x where x.customer = s.customer and "
        "x.amount < s.amount) and s.item in (select item from items where kind = 'kind 1') and s.amount > 5"
    )
    (large,) = (fragment for fragment in shop.check(sql).fragments if fragment.uses)
    places = [large.sql.index(part) for part in ("s.amount > 5", "s.item IN (SELECT", "EXISTS(")]
    assert places == sorted(places)


def test_what_is_not_worth_a_round_trip_is_not_broadcast(shop: InProcessCluster) -> None:
    sql = "select kind, sum(amount) from sales join items using (item) group by kind"
    for limits in (BroadcastLimits(), BroadcastLimits(max_bytes=10, worth_bytes=0), None):
        shop.broadcasts = limits
        assert shop.check(sql).broadcasts == ()
    shop.broadcasts = LIMITS
    assert len(shop.check(sql).broadcasts) == 1


def test_a_broadcast_is_explained(shop: InProcessCluster) -> None:
    plan = shop.plan("select kind, sum(amount) from sales join items using (item) group by kind")
    text = explain_text(plan, shop.legs(plan))
    assert "broadcast b0, about" in text
    assert "with b0 sent along" in text
    assert plan_as_dict(plan, ())["broadcasts"][0]["name"] == "b0"


def test_a_broadcast_named_as_a_table_gets_another_name() -> None:
    with InProcessCluster(2, broadcasts=BroadcastLimits(worth_bytes=-(1 << 40))) as cluster:
        for name, key in (("b0", "k"), ("b1", "v")):
            cluster.add(name, pa.table({"k": [1, 2, 3], "v": [3, 2, 1]}), f"bucket(2, {key})")
        plan = cluster.check("select sum(b0.v) from b0 join b1 on b0.k = b1.k")
        assert [broadcast.name for broadcast in plan.broadcasts] == ["b2"]


def test_a_leg_carries_its_broadcasts(shop: InProcessCluster) -> None:
    plan = shop.plan("select kind, sum(amount) from sales join items using (item) group by kind")
    leg = shop.legs(plan)[-1]
    rows = pa.table({"c0": [1, None], "c1": ["a", "é"]})
    loaded = attrs.evolve(leg, relations={"b0": relation_bytes(rows)})
    assert read_rows(leg_from_json(loaded.to_json()).relations["b0"], compressed=True).equals(rows)


def test_the_merge_gets_a_broadcast_that_only_a_shared_common_table_reads(
    make_cluster: Callable[..., Any],
) -> None:
    """Found by random queries, seed 300,890."""
    cluster = make_cluster(executors=3)
    cluster.broadcasts = BroadcastLimits(worth_bytes=-(1 << 60))
    ids = list(range(60))
    cluster.add("t", pa.table({"id": ids, "a": [n % 9 for n in ids]}), "bucket(4, id)")
    cluster.add("u", pa.table({"id": ids, "k": [n % 7 for n in ids]}), "bucket(3, id)")
    plan = cluster.check(
        "with c as (select distinct a, count(*) over (partition by a) as n from t anti join "
        "(select k, count(*) as n from u group by cube (k) order by 1 nulls first limit 4) q on t.a = q.k "
        "where t.id in (0, 2, 7, 8)) select x.a, y.n from c x cross join c y"
    )
    assert plan.merge_sql is not None
    assert plan.merge_sql.startswith("WITH c AS MATERIALIZED")
    assert plan.merge_uses != ()
