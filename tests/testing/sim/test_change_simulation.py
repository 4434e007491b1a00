"""A table that follows a source, in virtual time: it is that source at one commit, and each fault is found."""

import pytest

from ballista_py.testing.simulation.changes.simulation import ChangeSimulation
from ballista_py.testing.simulation.mutants.changes import CHANGE_MUTANTS, caught_by


def test_the_table_is_the_source_at_the_position_that_it_says():
    results = [ChangeSimulation(seed, minutes=6).run() for seed in range(1, 3)]
    assert [result.wrong for result in results] == [(), ()]
    assert all(result.decided > 5 and result.looks > 100 for result in results)


def test_the_same_seed_replays():
    first, second = (ChangeSimulation(5, minutes=2).run() for _ in range(2))
    assert first == second


@pytest.mark.turn(3)
@pytest.mark.parametrize("mutant", CHANGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_is_found(mutant):
    assert caught_by(mutant, 5) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(10, 40))
def test_the_table_is_the_source_for_an_hour(seed):
    assert ChangeSimulation(seed, minutes=60).run().wrong == ()
