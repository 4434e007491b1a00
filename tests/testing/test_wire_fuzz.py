"""The fuzzer of the wire: every door holds against it, and it would notice one that was left open."""

import os

import pytest

from ballista_py.testing.hostile.wire_fuzz import DOORS, fuzz, messages_of

FIRST_SEED = int(os.environ.get("BALLISTA_WIRE_FIRST_SEED", "0"))


def test_a_case_is_a_function_of_its_seed():
    assert [messages_of(seed) for seed in range(50)] == [messages_of(seed) for seed in range(50)]


def test_mutated_messages_at_every_door_end_no_process_and_bring_back_no_memory():
    found = fuzz(FIRST_SEED, seconds=20)
    assert not found.finds, found
    assert set(found.cases) == set(DOORS)


def test_a_door_that_is_left_open_is_found():
    assert fuzz(0, seconds=120, doors=("bytes",), unchecked=True).finds


@pytest.mark.long
def test_mutated_messages_at_every_door_for_ten_minutes():
    found = fuzz(FIRST_SEED, seconds=600)
    assert not found.finds, found
