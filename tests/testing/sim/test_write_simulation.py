"""Writes in virtual time: nothing is lost, doubled or torn, and every deliberate fault is found."""

import pytest

from ballista_py.testing.mutants_writes import WRITE_MUTANTS, caught_by
from ballista_py.testing.write_simulation import WriteSimulation


@pytest.mark.parametrize("seed", range(1, 4))
def test_no_write_is_lost_doubled_or_torn(seed):
    result = WriteSimulation(seed, minutes=6).run()
    assert result.wrong == ()
    assert min(result.acknowledged, result.transfers, result.reads, result.compactions) > 0


def test_the_same_seed_replays():
    first, second = (WriteSimulation(5, minutes=2).run() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("mutant", WRITE_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_is_found(mutant):
    assert caught_by(mutant, 10) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(10, 30))
def test_no_write_is_lost_doubled_or_torn_in_hours(seed):
    assert WriteSimulation(seed, minutes=60).run().wrong == ()
