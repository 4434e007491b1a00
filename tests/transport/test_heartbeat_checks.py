"""What an executor says of itself is looked at before it becomes part of a document."""

from math import inf, nan

import pytest
from attrs import evolve

from ballista_py.errors import InvalidData
from ballista_py.state.members.control import ExecutorInfo, Heartbeat, HeldPartitions
from ballista_py.transport.control.heartbeat_checks import MAX_LABELS, checked

INFO = ExecutorInfo(executor_id="e1", instance_id="i1", data_address="h:1", labels={"zone": "a"})
HELD = HeldPartitions(
    table="t", revision=3, active=(0, 2), epochs=(1, 4), rows=(5, 6), bytes=(7, 8), loaded=(1,), parting={2: 4}
)
BEAT = Heartbeat(executor=INFO, sequence=1, lapsed=False, held=(HELD,))


def test_what_an_executor_of_ours_says_is_taken_as_it_is():
    assert checked(BEAT) == BEAT
    assert (
        checked(evolve(BEAT, executor=evolve(INFO, capacity=0.0, data_address=""), held=())).executor.capacity == 0
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("capacity", value) for value in (nan, inf, -inf, -1.0, 1e300)),
        *(("executor_id", value) for value in ("", "x" * 2_000, "a\nb", "a\0b")),
        *(("instance_id", value) for value in ("", "x" * 2_000, "a\u202eb")),
        *(("data_address", value) for value in ("nowhere", "h:99999", "h/x:1", "h:1\n")),
        ("parts_location", "x" * 2_000),
        ("engine", ""),
        ("engine", "x" * 2_000),
        ("labels", {"zone": "x" * 2_000}),
        ("labels", {"x" * 2_000: "a"}),
        ("labels", {str(number): "" for number in range(MAX_LABELS + 1)}),
    ],
)
def test_what_none_says_of_itself_is_refused(field, value):
    with pytest.raises(InvalidData):
        checked(evolve(BEAT, executor=evolve(INFO, **{field: value})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", (1,)),
        ("epochs", ()),
        ("rows", (1, 2, 3)),
        ("bytes", (-1, 2)),
        ("bytes", (2**60, 2)),
        ("active", (-1, 2)),
        ("loaded", (2**62,)),
        ("failed", {-1: "why"}),
        ("parting", {1: -4}),
    ],
)
def test_what_none_says_of_its_partitions_is_refused(field, value):
    with pytest.raises(InvalidData):
        checked(evolve(BEAT, held=(HELD, evolve(HELD, **{field: value}))))


@pytest.mark.parametrize(("said", "taken"), [(0, 0), (100, 100), (101, 100), (2**32 - 1, 100)])
def test_nobody_is_busier_than_busy(said, taken):
    assert checked(evolve(BEAT, load=said)).load == taken


def test_what_nobody_relies_on_is_left_out_where_it_makes_no_sense():
    odd = evolve(
        HELD,
        failed={7: "first line\n  second\x00" + "x" * 9_000},
        ranges={"a": (nan, 1.0), "b": (2.0, 1.0), "c": (0.0, inf)},
    )
    (held,) = checked(evolve(BEAT, held=(odd,))).held
    assert held.failed[7].startswith("first line second")
    assert len(held.failed[7]) < 5_000
    assert held.ranges == {"c": (0.0, inf)}
