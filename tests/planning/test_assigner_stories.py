"""The assigner through whole stories: joins, leaves, restarts, drains, lost commits, in any order, then rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.planning.assigner import Executor, PartitionAssigner
from ballista_py.planning.partition_map import Owner, PartitionMap

MakeMap = Callable[..., PartitionMap]
ROUNDS = 30
ZONES = ["a", "b", "c"]

fates = st.sampled_from(["stays", "leaves", "restarts", "drains", "grows"])
weights_of = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 1e-9, 1e12]), st.floats(0, 1e6)), min_size=0, max_size=40
)


def holders(pmap: PartitionMap, partition: int, live: set[Owner]) -> list[Owner]:
    return [owner for owner in pmap.owners(partition) if owner in live]


def counts(pmap: PartitionMap, live: set[Owner]) -> Counter[Owner]:
    return Counter(owner for partition in pmap.ids().tolist() for owner in holders(pmap, partition, live))


def rest(pmap: PartitionMap, fleet: Sequence[Executor], assigner: PartitionAssigner) -> PartitionMap:
    for _ in range(ROUNDS):
        plan = assigner.assign(pmap, fleet)
        after = pmap.apply(plan)
        after = after.promote(after.ids())
        if after == pmap:
            assert not plan
            return pmap
        pmap = after
    raise AssertionError("the assigner does not come to rest")


def live_on(executor: Executor, fate: str) -> list[Executor]:
    if fate == "leaves":
        return []
    if fate == "restarts":
        return [evolve(executor, instance_id=executor.instance_id + "'")]
    return [evolve(executor, capacity={"drains": 0.0, "grows": 3.0}.get(fate, executor.capacity))]


@given(st.data())
def test_whatever_happened_the_assigner_comes_to_rest_and_everything_is_held_that_can_be(
    make_map: MakeMap, data: st.DataObject
) -> None:
    weights = data.draw(weights_of, "weights")
    replicas = data.draw(st.integers(1, 3), "replicas")
    cap = data.draw(st.integers(1, 60), "cap")
    assigner = PartitionAssigner(cap, replicas, data.draw(st.sampled_from([None, "zone"]), "label"))
    pmap = make_map(max(1, len(weights)), "events", weights or None)
    fleet: list[Executor] = []
    for number in range(data.draw(st.integers(1, 4), "steps")):
        fleet = [after for one in fleet for after in live_on(one, data.draw(fates))]
        joined = data.draw(st.integers(0, 3))
        fleet += [Executor(f"e{number}-{n}", "i", labels={"zone": ZONES[n]}) for n in range(joined)]
        for _ in range(data.draw(st.integers(0, 2))):
            plan = assigner.assign(pmap, fleet, data.draw(st.sampled_from([None, 1, 5])))
            landed = data.draw(st.lists(st.booleans(), min_size=len(plan.moves), max_size=len(plan.moves)))
            pmap = pmap.apply(plan.only(np.array(landed, np.bool_))) if plan else pmap
            pmap = pmap.promote([p for p in pmap.ids().tolist() if data.draw(st.booleans())])
    pmap = rest(pmap, fleet, assigner)
    check(pmap, fleet, assigner)
    assert rest(pmap, fleet[::-1], assigner) == pmap


def check(pmap: PartitionMap, fleet: Sequence[Executor], assigner: PartitionAssigner) -> None:
    live = {executor.owner for executor in fleet}
    usable = [executor for executor in fleet if executor.capacity > 0]
    cap, copies = assigner.max_partitions_per_executor, min(assigner.replicas, len(usable))
    held = counts(pmap, live)
    found = {partition: holders(pmap, partition, live) for partition in pmap.ids().tolist()}
    assert all(len(set(owners)) == len(owners) for owners in found.values())
    # In the last room there may be only executors that hold the partition already, so some must be to spare.
    spare = (assigner.replicas - 1) * cap
    if len(usable) * cap >= len(pmap) * assigner.replicas + spare and len(usable) >= assigner.replicas:
        assert all(pmap.owner(partition) in live for partition in found)
        assert all(len(owners) >= copies for owners in found.values())
        assert all(held[executor.owner] <= cap for executor in usable)
        assert all(pmap.owner(partition) != e.owner for e in fleet if e.capacity == 0 for partition in found)
    if not usable:
        drained = {executor.owner for executor in fleet}
        assert all(set(owners) <= drained for owners in found.values())


def test_a_table_without_partitions_needs_no_moves(make_map: MakeMap) -> None:
    pmap = make_map(1)
    empty = PartitionMap.build("events", pmap.spec, [])
    for fleet in ([], [Executor("e1")], [Executor("e1", capacity=0.0)]):
        plan = PartitionAssigner(replicas=2).assign(empty, fleet)
        assert not plan
        assert plan.unplaced.tolist() == []
        assert plan.explain(0) == "partition 0 is not in table 'events'"


def test_partitions_without_any_weight_are_spread_by_number(make_map: MakeMap) -> None:
    fleet = [Executor(f"e{n}") for n in range(4)]
    pmap = make_map(40, "events", [0.0] * 40)
    pmap = pmap.apply(PartitionAssigner().assign(pmap, fleet))
    assert set(counts(pmap, {e.owner for e in fleet}).values()) == {10}


def test_one_giant_moves_nothing_else_about(make_map: MakeMap) -> None:
    fleet = [Executor(f"e{n}") for n in range(3)]
    pmap = make_map(31, "events", [1e12] + [1.0] * 30)
    placed = pmap.apply(PartitionAssigner().assign(pmap, fleet))
    assert len(placed.owned_by(*placed.owner(0))) == 1
    assert not PartitionAssigner().assign(placed, fleet)
    joined = PartitionAssigner().assign(placed, [*fleet, Executor("e9")])
    assert all(move.partition != 0 for move in joined.moves)


def test_two_that_are_too_full_do_not_exchange_replicas_for_ever(make_map: MakeMap) -> None:
    """Every place is taken, and the one heavy partition makes both of its holders exceed their share."""
    fleet = [Executor(f"e0-{n}", "i") for n in range(3)]
    assigner = PartitionAssigner(4, replicas=2)
    pmap = make_map(6, "events", [0.0] * 5 + [1.0])
    pmap = pmap.apply(assigner.assign(pmap, fleet))
    assert not assigner.assign(pmap, fleet)
