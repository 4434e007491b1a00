"""The selector: each partition in exactly one leg, as few executors as greedy finds, the same picks everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import PartitionsUnassigned
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.set_cover import SetCoverSelector, _by_counts, _by_levels, _distinct, cover

MakeMap = Callable[..., PartitionMap]

executor_ids = st.sampled_from([f"e{number:02d}" for number in range(12)])
owner_maps = st.dictionaries(st.integers(0, 400), st.lists(executor_ids, min_size=1, max_size=4), max_size=60)


def textbook(required: Sequence[int], owners: Mapping[int, Sequence[str]]) -> dict[str, list[int]]:
    """Greedy as a textbook has it: again and again the executor that covers most of what is left."""
    left = set(required)
    chosen: dict[str, list[int]] = {}
    while left:
        names = sorted({name for partition in left for name in owners[partition]})
        best = max(names, key=lambda name: (sum(name in owners[p] for p in left), [-ord(c) for c in name]))
        chosen[best] = sorted(partition for partition in left if best in owners[partition])
        left -= set(chosen[best])
    return dict(sorted(chosen.items()))


@given(owner_maps)
def test_the_picks_are_those_of_the_textbook(owners: dict[int, list[str]]) -> None:
    assert SetCoverSelector().select(list(owners), owners) == textbook(list(owners), owners)


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 4), st.integers(0, 1 << 30))
def test_every_way_of_covering_gives_the_same_picks(rows: int, count: int, width: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    holders = chance.integers(-1, count, (rows, width)).astype(np.int32)
    holders[(holders < 0).all(axis=1), width - 1] = 0
    distinct = _distinct(holders)
    ways = [cover(holders, count), _by_levels(distinct, count), _by_counts(distinct, count)]
    found = [{place: part.tolist() for place, part in way.items()} for way in ways]
    assert found[0] == found[1] == found[2]
    owners = {
        row: [f"{place:04d}" for place in places if place >= 0] for row, places in enumerate(holders.tolist())
    }
    assert {f"{place:04d}": part for place, part in found[0].items()} == textbook(range(rows), owners)


@given(owner_maps, st.randoms(use_true_random=False))
def test_each_partition_is_in_one_leg_of_an_executor_that_holds_it(
    owners: dict[int, list[str]], chance: object
) -> None:
    required = [partition for partition in owners if partition % 3]
    shuffled = required * 2
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    legs = SetCoverSelector().select(shuffled, owners)
    assert sorted(partition for part in legs.values() for partition in part) == sorted(required)
    assert all(name in owners[partition] for name, part in legs.items() for partition in part)
    assert list(legs) == sorted(legs)
    assert all(part == sorted(part) for part in legs.values())


def test_no_partition_needs_no_executor() -> None:
    assert SetCoverSelector().select([], {}) == {}


def test_a_tie_goes_to_the_smallest_id() -> None:
    assert SetCoverSelector().select([1, 2], {1: ["b", "a"], 2: ["a", "b"]}) == {"a": [1, 2]}


def test_what_nobody_holds_is_named() -> None:
    with pytest.raises(PartitionsUnassigned) as caught:
        SetCoverSelector().select(range(9), {0: ["a"], 1: []})
    assert str(caught.value) == (
        "Cannot execute query: 8 partition(s) not assigned to any executor (1, 2, 3, 4, 5, …)"
    )
    assert caught.value.details["partitions"] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_map_is_covered_by_its_live_owners_and_replicas(make_map: MakeMap) -> None:
    executors = [Executor(f"e{number}", "i") for number in range(4)]
    pmap = make_map(40)
    pmap = pmap.apply(PartitionAssigner(replicas=2).assign(pmap, executors))
    live = {executor.owner for executor in executors}
    owners = {i: [name for name, _ in pmap.owners(i)] for i in range(40)}
    legs = SetCoverSelector().select_from(pmap, pmap.ids(), live)
    assert {name: part.tolist() for name, part in legs.items()} == SetCoverSelector().select(range(40), owners)
    assert len(legs) <= 3
    some = SetCoverSelector().select_from(pmap, np.array([7, 3, 7]), live)
    assert sorted(partition for part in some.values() for partition in part.tolist()) == [3, 7]
    without = SetCoverSelector().select_from(pmap, pmap.ids(), live - {("e0", "i")})
    assert "e0" not in without


def test_an_instance_that_is_gone_holds_nothing(make_map: MakeMap) -> None:
    pmap = make_map(3)
    pmap = pmap.apply(PartitionAssigner().assign(pmap, [Executor("e", "old")]))
    with pytest.raises(PartitionsUnassigned, match=r"3 partition\(s\) .* \(expr0=0, expr0=1, expr0=2\)"):
        SetCoverSelector().select_from(pmap, pmap.ids(), {("e", "new")})
