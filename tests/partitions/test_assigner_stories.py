"""The assigner through whole stories: joins, leaves, restarts, drains, lost commits, in any order, then rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.assignment.state import Fleet, improves
from ballista_py.partitions.map import Owner, PartitionMap

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
        # Who handed over hears of it; until then what it handed over does not move on.
        after = after.release(after.ids())
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


@pytest.mark.parametrize(
    ("weights", "executors", "replicas"),
    [
        ([45.7, 94.4], 3, 2),
        ([27.804896814098267, 8.0], 4, 3),
        ([5.0, 7.693412624928686], 5, 3),
        ([9.0, 88.70166588125981, 8.643328431809428, 40.39716625668047], 5, 3),
    ],
)
def test_a_replica_does_not_wander_between_two_that_it_makes_equally_full(
    make_map: MakeMap, weights: list[float], executors: int, replicas: int
) -> None:
    """Wherever the lighter replica is, its holder exceeds its share, and the other one looks emptier."""
    fleet = [Executor(f"e{n}") for n in range(executors)]
    rest(make_map(len(weights), "events", weights), fleet, PartitionAssigner(5, replicas))


def test_what_was_handed_over_leaves_a_draining_owner_once_the_former_one_knows(make_map: MakeMap) -> None:
    """Found by the story above: one drains early and one in the last step, and moves land in part."""
    assigner = PartitionAssigner(3, replicas=2)
    pmap = make_map(3, "events", [0.0] * 3)
    first = [Executor(f"e0-{n}", "i") for n in range(3)]
    plan = assigner.assign(pmap, first)
    pmap = pmap.apply(plan.only(np.array([True, True, True, False, True, True])))
    drained = next(e for e in first if len(pmap.owned_by(*e.owner)))
    fleet = [evolve(e, capacity=0.0) if e is drained else e for e in first]
    fleet += [Executor(f"e1-{n}", "i") for n in range(2)]
    pmap = pmap.apply(assigner.assign(pmap, fleet))
    pmap = pmap.promote(pmap.ids())
    handed_over = pmap.handed_over_by(*drained.owner)
    second = pmap.owner(int(handed_over[0]))
    fleet = [evolve(e, capacity=0.0) if e.owner == second else e for e in fleet]
    mine = [int(p) for p in handed_over if pmap.owner(int(p)) == second]
    assert not [move for move in assigner.assign(pmap, fleet).moves if move.partition in mine and not move.slot]
    pmap = rest(pmap, fleet, assigner)
    check(pmap, fleet, assigner)
    assert all(pmap.owner(partition) not in (second, drained.owner) for partition in pmap.ids().tolist())


def test_better_is_an_order_that_no_exchange_turns_round() -> None:
    fleet, nobody = Fleet.of([1.0, 1.0, 0.0], 2, "events"), np.empty((3, 0), np.int32)
    weights = np.array([0.1, 0.2, 0.3])

    def better(new: list[int], old: list[int]) -> bool:
        return improves(np.array(new, np.int32), np.array(old, np.int32), weights, fleet, nobody)

    ascending = [[1, 2, -1], [0, 0, 0], [0, 2, 2], [0, 0, 2], [1, 0, 0], [1, 1, 0]]
    for place, worse in enumerate(ascending):
        assert not better(worse, worse)
        for than in ascending[place + 1 :]:
            assert better(than, worse)
            assert not better(worse, than)
    assert not better([1, 1, 0], [0, 0, 1])
