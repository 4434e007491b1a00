"""Rows that come in take their place in the memory of the node, wait for it, and give it back at the end."""

from __future__ import annotations

from contextlib import nullcontext

import pyarrow as pa
import pytest

from ballista_py.coordinator.writes.kept_rows import COPIES, MERGED_BYTES, REPEATABLE_BYTES, room_for_rows
from ballista_py.errors import TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import SystemRuntime
from ballista_py.work import Work, working

SMALL = pa.record_batch({"a": range(10)})
LARGE = pa.record_batch({"a": ["x" * 1_000] * 1_000})


def budget(mib):
    return MemoryBudget(mib << 20, SystemRuntime(), wait_ms=20.0)


def test_small_rows_ask_for_nothing():
    node = budget(256)
    with node.held(256 << 20), room_for_rows([SMALL] * 3, node) as rows:
        assert list(rows) == [SMALL] * 3


@pytest.mark.parametrize("fails", [False, True])
def test_many_rows_hold_their_place_until_all_is_done_with_them(fails):
    node = budget(1024)
    expected = pytest.raises(ZeroDivisionError) if fails else nullcontext()
    with expected, room_for_rows([SMALL, LARGE], node) as rows:
        assert next(rows) is SMALL
        assert node.ledger.held_bytes == 0
        assert next(rows) is LARGE
        assert next(rows, None) is None
        assert node.ledger.held_bytes >= REPEATABLE_BYTES + COPIES * LARGE.nbytes  # they may be sent again
        assert not fails or 1 / 0
    assert node.ledger.held_bytes == 0


def test_streams_beside_each_other_stay_in_the_budget_and_the_next_one_waits():
    node = budget(400)
    with room_for_rows([LARGE], node) as first, room_for_rows([LARGE], node) as second:
        with working(Work(SystemRuntime(), client="a")):
            next(first)
        with working(Work(SystemRuntime(), client="b")):
            next(second)
        with (
            node.held(200 << 20, "c"),
            room_for_rows([LARGE], node, wait_ms=20.0) as third,
            pytest.raises(TryLater),
        ):
            next(third)
        assert node.ledger.held_bytes <= 400 << 20
    with room_for_rows([LARGE], node, merged=True) as rows:
        next(rows)
        assert node.ledger.held_bytes == MERGED_BYTES


def test_rows_find_room_beside_messages_of_the_same_client():
    """Who has sent much shall not wait for itself."""
    node = budget(256)
    places = [node.begin(64 << 20, f"messages of {name}", waits=False) for name in ("a", "a")]
    with working(Work(SystemRuntime(), client="a")), room_for_rows([LARGE], node) as rows:
        assert next(rows) is LARGE
    for place in places:
        place.end()
