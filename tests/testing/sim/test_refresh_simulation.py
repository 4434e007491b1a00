"""Refreshes beside schedulers that pause and die: the table is what its slots say, and planted faults are found."""

import pytest

from ballista_py.testing.simulation.mutants.jobs import JOB_MUTANTS
from ballista_py.testing.simulation.mutants.refreshes import REFRESH_MUTANTS, refresh_caught_by
from ballista_py.testing.simulation.refreshes.simulation import RefreshSimulation

DONE = ("slots", "refreshed", "skipped", "failed", "repeated", "taken over", "killed", "paused", "cut off")


def test_tables_follow_their_source_whatever_happens_to_schedulers():
    done = dict.fromkeys(DONE, 0)
    for seed in range(8):
        result = RefreshSimulation(seed).run()
        assert result.wrong == ()
        done = {kind: count + dict(result.done).get(kind, 0) for kind, count in done.items()}
    assert [kind for kind, count in done.items() if not count] == []


def test_the_same_seed_replays():
    first, second = (RefreshSimulation(5, minutes=10).run() for _ in range(2))
    assert first == second


@pytest.mark.turn(3)
@pytest.mark.parametrize("mutant", REFRESH_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_of_refreshes_is_found(mutant):
    assert refresh_caught_by(mutant.name, 12) is not None


def test_a_fault_has_no_name_of_another():
    names = [one.name for one in (*JOB_MUTANTS, *REFRESH_MUTANTS)]
    assert len(names) == len(set(names))


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 160))
def test_tables_follow_their_source_for_hours(seed):
    assert RefreshSimulation(seed, minutes=240).run().wrong == ()
