"""The fuzzer of the ports: real nodes hold against it, inputs that were found once hold for good."""

import os
from pathlib import Path

import pytest

from ballista_py.testing.hostile.port_fuzz import fuzz, replay
from ballista_py.testing.hostile.port_inputs import DOORS, Input, input_of

FIRST_SEED = int(os.environ.get("BALLISTA_WIRE_FIRST_SEED", "0"))
CORPUS = Path(__file__).with_name("port_corpus")


def recorded(path):
    """An input from its file: the door and the method in the first line, the bytes behind it."""
    head, _, data = path.read_bytes().partition(b"\n")
    door, _, method = head.decode().partition(" ")
    return Input(door, method, data)


def test_a_case_is_a_function_of_its_seed_and_most_differ():
    for door in DOORS:
        cases = [input_of(door, seed) for seed in range(300)]
        assert cases == [input_of(door, seed) for seed in range(300)]
        assert len(set(cases)) > 120


@pytest.mark.cluster
def test_spoilt_requests_at_every_port_are_answered_and_nodes_stay_well():
    found = fuzz(FIRST_SEED, seconds=10)
    assert not found.finds, found
    assert set(found.cases) == set(DOORS)


@pytest.mark.cluster
def test_what_was_found_once_holds_for_good():
    replay(map(recorded, sorted(CORPUS.iterdir())))


@pytest.mark.long
@pytest.mark.cluster
def test_spoilt_requests_at_every_port_for_ten_minutes():
    found = fuzz(FIRST_SEED, seconds=600)
    assert not found.finds, found
