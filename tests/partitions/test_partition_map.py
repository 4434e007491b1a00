"""The partition map: an immutable value whose ids last, whose epochs only grow, and that says who may write."""

from __future__ import annotations

import datetime as dt
import json
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import PlanningError
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec

MakeMap = Callable[..., PartitionMap]

SCHEMA = pa.schema(
    [
        ("region", pa.string()),
        ("n", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("clock", pa.time64("us")),
    ]
)
TWO = [Executor("e1", "a"), Executor("e2", "b")]


def by(*keys: str) -> PartitionSpec:
    return PartitionSpec.parse(keys, SCHEMA)


def owned(pmap: PartitionMap, executors: list[Executor] = TWO, **more: Any) -> PartitionMap:
    return pmap.apply(PartitionAssigner(**more).assign(pmap, executors))


VALUES: dict[str, list[Any]] = {
    "region": ["", "null", "us", "US", "é", None],
    "n": [0, -1, (1 << 63) - 1, -(1 << 63), None],
    "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "at": [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None],
    "price": [Decimal("-1.10"), Decimal("0.00"), None],
    "ratio": [0.5, float("nan"), float("inf"), -float("inf"), 0.0, None],
    "raw": [b"", b"\x00", b"\xff\xfe", None],
    "flag": [True, False, None],
    "clock": [dt.time(0), dt.time(23, 59, 59, 999_999), None],
}


@pytest.mark.parametrize("column", list(VALUES))
def test_values_of_every_type_are_kept_found_and_written_down(column: str) -> None:
    values = [(value,) for value in VALUES[column]]
    pmap = PartitionMap.build("t", by(column), values)
    held = [pmap.value(i) for i in range(len(pmap))]
    assert all(a == b or repr(a) == repr(b) for a, b in zip(held, values, strict=True))
    assert [pmap.index(value) for value in values] == list(range(len(values)))
    assert len({pmap.path(i) for i in range(len(pmap))}) == len(values)
    written = orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY)
    read = PartitionMap.from_columns("t", 0, orjson.loads(written))
    assert read == pmap
    assert read.columns[0].type == pmap.columns[0].type
    assert [read.index(value) for value in values] == list(range(len(values)))


def test_a_value_that_occurs_twice_or_does_not_fit_is_refused() -> None:
    for values, reason in (
        ([("a",), ("a",)], "occurs twice"),
        ([(None,), (None,)], "occurs twice"),
        ([("a", 1)], "must have 1 item"),
        ([(5,)], "is not of type VARCHAR"),
    ):
        with pytest.raises(PlanningError, match=reason):
            PartitionMap.build("t", by("region"), values)
    with pytest.raises(PlanningError, match="occurs twice"):
        PartitionMap.build("t", by("ratio"), [(0.0,), (-0.0,)])
    for weights in ([1.0], [1.0, -1.0], [1.0, float("nan")]):
        with pytest.raises(PlanningError, match="weights"):
            PartitionMap.build("t", by("region"), [("a",), ("b",)], weights)


def test_a_map_is_a_value() -> None:
    left = PartitionMap.build("t", by("region"), [("a",), ("b",)])
    right = PartitionMap.build("t", by("region"), [("a",), ("b",)])
    assert left == right
    assert owned(left) != left
    assert left == right
    assert left.with_revision(3) != left
    assert left.with_weights({1: 5.0}).weight(1) == 5.0
    assert left.weight(1) == 1.0


@given(st.data())
def test_lookup_finds_what_a_dict_would_find(data: st.DataObject) -> None:
    items = st.tuples(st.none() | st.sampled_from("abc"), st.none() | st.integers(-3, 3) | st.just(1 << 40))
    values = data.draw(st.lists(items, unique=True, max_size=20))
    asked = data.draw(st.lists(items, max_size=40))
    pmap = PartitionMap.build("t", by("region", "n"), values)
    places = {value: place for place, value in enumerate(values)}
    columns = [pa.array([row[0] for row in asked], pa.string()), pa.array([row[1] for row in asked], pa.int64())]
    assert pmap.lookup(columns, len(asked)).tolist() == [places.get(value, -1) for value in asked]
    assert [pmap.index(value) for value in asked] == [places.get(value) for value in asked]


def test_many_sparse_keys_are_found_without_a_table_of_all_combinations() -> None:
    chance = np.random.default_rng(1)
    rows = {
        (f"r{a}", int(b))
        for a, b in zip(chance.integers(0, 3_000, 4_000), chance.integers(0, 1 << 50, 4_000), strict=True)
    }
    values = sorted(rows)
    pmap = PartitionMap.build("t", by("region", "n"), values)
    assert pmap.value_index.dense is None
    columns = [pa.array([v[0] for v in values]), pa.array([v[1] for v in values])]
    assert pmap.lookup(columns, len(values)).tolist() == list(range(len(values)))
    assert pmap.index(("r1", -5)) is None


def test_matching_gives_the_partitions_with_allowed_values() -> None:
    pmap = PartitionMap.build(
        "t", by("region", "bucket(2, n)"), [("a", 0), ("a", 1), ("b", 0), (None, 0), ("b", None)]
    )
    assert pmap.matching({}).tolist() == [0, 1, 2, 3, 4]
    assert pmap.matching({"expr0": {"a"}}).tolist() == [0, 1]
    assert pmap.matching({"expr0": {"a", None}, "expr1": {0}}).tolist() == [0, 3]
    assert pmap.matching({"expr1": {None}}).tolist() == [4]
    assert pmap.matching({"expr0": set()}).tolist() == []
    assert pmap.matching({"expr0": {5, "b"}}).tolist() == [2, 4]
    with pytest.raises(PlanningError, match="no partition key 'x': its keys are expr0, expr1"):
        pmap.matching({"x": {1}})


def test_within_gives_the_partitions_between_bounds() -> None:
    days = [dt.date(2020, 1, day) for day in range(1, 6)]
    pmap = PartitionMap.build("t", by("day"), [*[(day,) for day in days], (None,)])
    assert pmap.within("expr0").tolist() == [0, 1, 2, 3, 4]
    assert pmap.within("expr0", days[1], days[3]).tolist() == [1, 2, 3]
    assert pmap.within("expr0", low=days[4]).tolist() == [4]
    assert pmap.within("expr0", high=dt.date(1999, 1, 1)).tolist() == []
    with pytest.raises(PlanningError, match="not a value of partition key 'expr0'"):
        pmap.within("expr0", low="x")


def test_who_holds_what_can_be_asked_both_ways(make_map: MakeMap) -> None:
    pmap = owned(make_map(6), replicas=2)
    for executor in TWO:
        mine = pmap.owned_by(*executor.owner).tolist()
        assert [pmap.owner(i) for i in mine] == [executor.owner] * len(mine)
        assert sorted([*mine, *pmap.replicated_at(*executor.owner).tolist()]) == list(range(6))
    assert pmap.owned_by("e1", "other instance").tolist() == []
    assert pmap.replicated_at("nobody", "x").tolist() == []
    assert pmap.targeted_at("e1", "a").tolist() == []
    assert pmap.orphans({TWO[0].owner}).tolist() == pmap.owned_by(*TWO[1].owner).tolist()
    assert pmap.orphans(set()).tolist() == list(range(6))


def test_an_assignment_adds_one_to_the_epoch_and_a_target_does_not(make_map: MakeMap) -> None:
    pmap = owned(make_map(8))
    assert pmap.epochs.tolist() == [1] * 8
    three = [*TWO, Executor("e3", "c")]
    moving = pmap.apply(PartitionAssigner().assign(pmap, three))
    targeted = moving.targeted_at("e3", "c")
    assert len(targeted) == 2
    assert (moving.epochs == pmap.epochs).all()
    assert (moving.owner_index[:, 0] == pmap.owner_index[:, 0]).all()
    done = moving.promote(targeted)
    assert done.owned_by("e3", "c").tolist() == targeted.tolist()
    assert done.epochs.sum() == pmap.epochs.sum() + 2
    assert done.promote(targeted) == done


def test_a_move_whose_partition_changed_since_is_left_out(make_map: MakeMap) -> None:
    start = make_map(8)
    first = PartitionAssigner().assign(start, TWO)
    rival = PartitionAssigner().assign(start, [Executor("e9", "z")])
    once = start.apply(first)
    assert once.apply(first) == once
    assert once.apply(rival) == once
    # Half of a plan landed: the other half still does.
    half = start.apply(
        attrs.evolve(first, **{n: getattr(first, n)[:3] for n in ("partitions", "slots", "to", "epochs", "moved")})
    )
    both = half.apply(rival)
    assert sum(both.owner(i) == ("e9", "z") for i in range(8)) == 5
    assert both.epochs.tolist() == [1] * 8


def test_a_plan_from_before_a_partition_went_away_and_came_back_is_left_out(make_map: MakeMap) -> None:
    here, there = TWO
    start = owned(make_map(1), [here])
    old = PartitionAssigner().assign(start, [there])
    again = owned(owned(start, [there]), [here])
    assert again.owner(0) == start.owner(0)
    assert again.apply(old) == again


def test_of_two_rival_targets_the_first_one_stays(make_map: MakeMap) -> None:
    start = owned(make_map(8))
    one = PartitionAssigner().assign(start, [*TWO, Executor("e3", "c")])
    two = PartitionAssigner().assign(start, [*TWO, Executor("e4", "d")])
    after = start.apply(one).apply(two)
    for move in one.moves:
        assert after.target(move.partition) == ("e3", "c")


def test_a_plan_for_another_table_is_refused(make_map: MakeMap) -> None:
    plan = PartitionAssigner().assign(make_map(2, "a"), TWO)
    with pytest.raises(PlanningError, match="a plan for table 'a' was applied to table 'b'"):
        make_map(2, "b").apply(plan)


@given(st.data())
def test_epochs_only_grow_and_one_epoch_has_one_owner(make_map: MakeMap, data: st.DataObject) -> None:
    pmap = make_map(6)
    everyone = [Executor(f"e{number}", f"i{number}") for number in range(4)]
    plans = []
    held: dict[tuple[int, int], Any] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        before = pmap
        live = data.draw(st.lists(st.sampled_from(everyone), min_size=1, unique=True))
        plans.append(PartitionAssigner().assign(pmap, live))
        if data.draw(st.booleans()):
            pmap = pmap.apply(data.draw(st.sampled_from(plans)))
        if data.draw(st.booleans()):
            pmap = pmap.promote(data.draw(st.lists(st.integers(0, 5))))
        assert (pmap.epochs >= before.epochs).all()
        for partition in range(6):
            owner = pmap.owner(partition)
            assert held.setdefault((partition, pmap.epoch(partition)), owner) == owner


# Discovery.


def test_a_value_missing_once_is_kept_and_missing_twice_is_removed() -> None:
    pmap = owned(PartitionMap.build("t", by("region"), [("eu",), ("us",)]))
    once = pmap.apply_diff(diff_partitions(pmap, [("us",)]))
    assert once.ids().tolist() == [0, 1]
    assert once.owner(0) is not None
    twice = once.apply_diff(diff_partitions(once, [("us",)]))
    assert twice.ids().tolist() == [1]
    assert twice.is_removed(0)
    assert twice.owner(0) is None
    assert twice.epoch(0) == pmap.epoch(0) + 1
    assert twice.index(("eu",)) is None
    assert twice.matching({"expr0": {"eu"}}).tolist() == []
    assert twice.orphans(set()).tolist() == [1]


def test_a_value_that_is_seen_again_in_between_is_not_removed() -> None:
    pmap = PartitionMap.build("t", by("region"), [("eu",), ("us",)])
    for values in ([("us",)], [("eu",), ("us",)], [("us",)]):
        pmap = pmap.apply_diff(diff_partitions(pmap, values))
    assert pmap.ids().tolist() == [0, 1]


def test_two_schedulers_that_miss_a_value_at_once_count_as_one_discovery() -> None:
    pmap = PartitionMap.build("t", by("region"), [("eu",), ("us",)])
    one, two = diff_partitions(pmap, [("us",)]), diff_partitions(pmap, [("us",)])
    assert pmap.apply_diff(one).apply_diff(two).ids().tolist() == [0, 1]
    marked = pmap.apply_diff(one)
    gone, seen = diff_partitions(marked, [("us",)]), diff_partitions(marked, [("eu",), ("us",)])
    assert marked.apply_diff(seen).apply_diff(gone).ids().tolist() == [0, 1]
    assert marked.apply_diff(gone).apply_diff(gone).ids().tolist() == [1]


def test_an_empty_discovery_removes_nothing_unless_that_is_allowed() -> None:
    pmap = PartitionMap.build("t", by("region"), [("eu",), ("us",)])
    for _ in range(3):
        pmap = pmap.apply_diff(diff_partitions(pmap, []))
    assert pmap.ids().tolist() == [0, 1]
    for _ in range(2):
        pmap = pmap.apply_diff(diff_partitions(pmap, []), allow_empty=True)
    assert pmap.ids().tolist() == []


def test_new_values_are_appended_once_with_their_weights() -> None:
    pmap = PartitionMap.build("t", by("ratio"), [(1.0,)])
    nan = float("nan")
    diff = diff_partitions(pmap, [(nan,), (1.0,), (nan,), (0.0,), (-0.0,), (None,)], [5, 1, 7, 3, 4, 2])
    assert len(diff.added) == 3
    after = pmap.apply_diff(diff)
    assert after.weights.tolist() == [1.0, 5.0, 3.0, 2.0]
    assert after.apply_diff(diff) == after
    assert not diff_partitions(after, [(nan,), (1.0,), (0.0,), (None,)])


def test_ids_are_never_used_again_and_a_value_that_returns_goes_on_from_its_epoch() -> None:
    pmap = owned(PartitionMap.build("t", by("region"), [("eu",), ("us",)]))
    for _ in range(2):
        pmap = pmap.apply_diff(diff_partitions(pmap, [("us",)]))
    back = pmap.apply_diff(diff_partitions(pmap, [("us",), ("eu",)]))
    assert back.ids().tolist() == [1, 2]
    assert back.value(2) == ("eu",)
    assert back.epoch(2) == pmap.epoch(0) > 1
    assert owned(back).epoch(2) > pmap.epoch(0)


def test_a_discovery_may_be_an_arrow_table() -> None:
    pmap = PartitionMap.build("t", by("region", "n"), [("eu", 1)])
    found = pa.table({"a": pa.chunked_array([["eu"], ["us", "us"]]), "b": pa.array([1, None, None], pa.int32())})
    assert diff_partitions(pmap, found).added == (("us", None),)
    assert diff_partitions(pmap, found.slice(0, 0)).empty
    with pytest.raises(PlanningError, match="needs 2 column"):
        diff_partitions(pmap, found.select(["a"]))
    with pytest.raises(PlanningError, match="types of the keys"):
        diff_partitions(pmap, pa.table({"a": ["eu"], "b": ["x"]}))


def test_a_discovery_of_another_table_is_refused() -> None:
    diff = diff_partitions(PartitionMap.build("a", by("region"), []), [("x",)])
    with pytest.raises(PlanningError, match="a discovery of table 'a'"):
        PartitionMap.build("b", by("region"), []).apply_diff(diff)


# Documents and people.


def test_a_map_with_everything_in_it_survives_json(make_map: MakeMap) -> None:
    pmap = owned(make_map(9, weights=[float(number) / 3 for number in range(9)]), replicas=2)
    pmap = pmap.apply(PartitionAssigner(replicas=2).assign(pmap, [*TWO, Executor("e3", "c")]))
    for columns in (
        json.loads(json.dumps(pmap.to_columns(), default=lambda array: array.tolist())),
        orjson.loads(orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY)),
        pmap.to_columns(),
    ):
        read = PartitionMap.from_columns("events", pmap.revision, columns)
        assert [read.owners(i) for i in range(9)] == [pmap.owners(i) for i in range(9)]
        assert [read.target(i) for i in range(9)] == [pmap.target(i) for i in range(9)]
        assert (read.epochs == pmap.epochs).all()
        assert (read.weights == pmap.weights).all()
        again = read.to_columns()
        assert orjson.dumps(again, option=orjson.OPT_SERIALIZE_NUMPY) == orjson.dumps(
            pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY
        )


def test_owners_that_hold_nothing_any_more_leave_the_document(make_map: MakeMap) -> None:
    pmap = owned(make_map(4))
    pmap = pmap.apply(PartitionAssigner().assign(pmap, [Executor("e9", "z")]))
    assert pmap.to_columns()["executors"] == [["e9", "z"]]


def test_the_map_of_a_replicated_table_is_one_partition() -> None:
    pmap = owned(PartitionMap.build("nation", PartitionSpec.whole(), [()]))
    assert len(pmap) == 1
    assert pmap.path(0) == "whole"
    assert pmap.index(()) == 0
    assert pmap.owner(0) is not None
    written = orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY)
    assert PartitionMap.from_columns("nation", 0, orjson.loads(written)) == pmap
    assert not diff_partitions(pmap, [()])


def test_a_million_partitions_fit_in_a_hundred_megabytes_and_twelve_as_json(make_map: MakeMap) -> None:
    tracemalloc.start()
    pmap = make_map(1_000_000)
    plan = PartitionAssigner(2_000).assign(pmap, [Executor(f"executor-{n}", "i" * 32) for n in range(1000)])
    pmap = pmap.apply(plan)
    del plan
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used + sum(column.nbytes for column in pmap.columns) < 100e6
    assert len(orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY)) < 12e6


def test_a_map_shows_itself_to_people(make_map: MakeMap) -> None:
    pmap = owned(make_map(20)).with_revision(7)
    assert repr(pmap) == "<PartitionMap events by expr0=bucket(20, id), revision 7: 20 partitions, 2 owners>"
    assert "20 unassigned" in repr(make_map(20))
    html = pmap._repr_html_()
    assert "<td>e1</td>" in html
    assert "… 8 more" in html
    nasty = PartitionMap.build("t", by("region"), [("<script>",), (None,)])
    assert "<script>" not in nasty._repr_html_()
    assert "<td>null</td>" in nasty._repr_html_()
