"""Every needed partition is in exactly one leg, at its owner, beside its counterparts in co-located tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from ballista_py.errors import PartitionsUnassigned
from ballista_py.sql.legs import legs_of
from ballista_py.sql.plan import Catalog, leg_from_json

JOIN = "select t.id, u.id from t join u on t.k = u.k"


def test_each_partition_is_in_exactly_one_leg_at_its_owner(small: Any) -> None:
    legs = small.legs(small.plan(JOIN))
    for table in ("t", "u"):
        covered = Counter(p for leg in legs for part in leg.tables if part.table == table for p in part.partitions)
        assert covered == Counter(small.maps[table].ids().tolist())
    for leg in legs:
        for part in leg.tables:
            owners = {small.maps[part.table].owner(partition)[0] for partition in part.partitions}
            assert owners == {leg.executor_id}
            assert part.revision == 7
            assert len(part.epochs) == len(part.partitions)


def test_a_leg_survives_its_json_form(small: Any) -> None:
    for leg in small.legs(small.plan(JOIN)):
        assert leg_from_json(leg.to_json()) == leg


def test_partitions_of_equal_value_meet_though_their_ids_differ(make_cluster: Any) -> None:
    cluster = make_cluster(executors=4)
    words = ["a", "b", "c", "d", None]
    cluster.add("p", pa.table({"s": pa.array(words, pa.string()), "n": range(5)}), "s", "words")
    cluster.add("q", pa.table({"s": ["x", "d", "c", "b"], "m": range(4)}), "s", "words")
    plan = cluster.check("select p.n, q.m from p full join q on p.s = q.s")
    assert len(plan.fragments) == 1
    cluster.check("select s from p union all select s from q")


def test_a_nullable_key_meets_one_that_is_not(make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.add("p", pa.table({"k": pa.array([1, 2, None], pa.int64())}), "bucket(4, k)", "g")
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    cluster.add("q", pa.table({"k": [1, 2, 3]}, schema=schema), "bucket(4, k)", "g")
    assert (len(cluster.maps["p"]), len(cluster.maps["q"])) == (5, 4)
    assert len(cluster.check("select p.k, q.k from p left join q on p.k = q.k").fragments) == 1
    assert len(cluster.check("select p.k, q.k from q left join p on p.k = q.k").fragments) == 1
    assert len(cluster.check("select p.k, q.k from q full join p on p.k = q.k").fragments) == 1


def test_only_owners_are_asked_once_a_replica_did_not_answer(make_cluster: Any) -> None:
    cluster = make_cluster(executors=4, replicas=2)
    cluster.add("p", pa.table({"k": range(100)}), "bucket(16, k)")
    plan = cluster.plan("select k from p")
    legs = legs_of(plan, cluster.catalog, cluster.owners, owners_only=True)
    for leg in legs:
        assert {cluster.maps["p"].owner(partition)[0] for partition in leg.tables[0].partitions} == {
            leg.executor_id
        }
    assert sum(len(leg.tables[0].partitions) for leg in legs) == len(cluster.maps["p"])
    first = cluster.maps["p"].owner(0)
    legs = legs_of(plan, cluster.catalog, [o for o in cluster.owners if o != first], owners_only=True)
    assert sum(len(leg.tables[0].partitions) for leg in legs) == len(cluster.maps["p"])


def test_a_query_over_replicated_tables_runs_on_one_executor(small: Any) -> None:
    (leg,) = small.legs(small.plan("select r.id, r2.id from r join r2 on r.a = r2.a"))
    assert leg.executor_id == small.maps["r"].owner(0)[0]
    live = [owner for owner in small.owners if owner[0] != leg.executor_id]
    (other,) = legs_of(small.plan("select * from r"), small.catalog, live)
    assert other.executor_id == live[0][0]


def test_what_was_pruned_to_nothing_has_no_leg(small: Any) -> None:
    assert small.legs(small.plan("select id from t where k = 3 and k is null")) == ()


def test_a_partition_without_a_live_owner_is_an_error_not_a_short_answer(small: Any) -> None:
    plan = small.plan("select count(*) from t")
    orphans = small.maps["t"].owned_by(*small.owners[0])
    assert len(orphans)
    with pytest.raises(
        PartitionsUnassigned, match=rf"Cannot execute query: {len(orphans)} partition\(s\) not assigned"
    ):
        legs_of(plan, small.catalog, small.owners[1:])
    with pytest.raises(PartitionsUnassigned, match=r"Cannot execute query: 6 partition\(s\) not assigned"):
        legs_of(plan, small.catalog, [])
    with pytest.raises(PartitionsUnassigned, match=r"1 partition\(s\)"):
        legs_of(small.plan("select * from r"), small.catalog, [])


def test_an_old_instance_of_a_live_executor_owns_nothing(small: Any) -> None:
    restarted = [(executor_id, "another instance") for executor_id, _ in small.owners]
    with pytest.raises(PartitionsUnassigned):
        legs_of(small.plan("select count(*) from t"), small.catalog, restarted)


def test_read_replicas_let_fewer_executors_cover_a_query(small: Any) -> None:
    single = small.maps["t"].owner_index
    everywhere = np.concatenate([single, np.full_like(single, 0), np.full_like(single, 1)], axis=1)
    catalog = Catalog(
        tables=small.tables, maps={**small.maps, "t": attrs.evolve(small.maps["t"], owner_index=everywhere)}
    )
    plan = small.plan("select count(*) from t")
    assert [leg.executor_id for leg in legs_of(plan, catalog, small.owners)] == ["e1"]
    assert [leg.executor_id for leg in legs_of(plan, catalog, small.owners[1:])] == ["e2"]


def test_legs_are_the_same_whatever_order_the_members_come_in(small: Any) -> None:
    plan = small.plan(JOIN)
    assert legs_of(plan, small.catalog, small.owners) == legs_of(plan, small.catalog, small.owners[::-1])


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_table_without_partitions_yet_joins_its_group(make_cluster: Any, replicas: int) -> None:
    cluster = make_cluster(executors=3, replicas=replicas)
    cluster.add("p", pa.table({"s": ["a", "b", "c"], "n": range(3)}), "s", "words")
    cluster.add("q", pa.table({"s": pa.array([], pa.string()), "m": pa.array([], pa.int64())}), "s", "words")
    for kind in ("join", "left join", "right join", "full join"):
        cluster.check(f"select p.n, q.m from p {kind} q on p.s = q.s")
        cluster.check(f"select q.m, count(p.n) from q {kind} p on p.s = q.s group by q.m")


def test_what_is_gathered_whole_comes_from_every_owner(small: Any) -> None:
    plan = small.check("select unnest([t.id, r.id]) from t, r")
    legs = [leg for leg in small.legs(plan) if leg.fragment == "t"]
    assert len(legs) > 1
    for leg in legs:
        (part,) = leg.tables
        assert {small.maps["t"].owner(partition)[0] for partition in part.partitions} == {leg.executor_id}
