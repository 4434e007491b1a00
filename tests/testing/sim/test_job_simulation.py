"""Jobs beside schedulers that pause, die, leave and come back: results are whole and there once, faults are found."""

import pytest

from ballista_py.testing.simulation.jobs.simulation import JobSimulation
from ballista_py.testing.simulation.mutants.definitions import DEFINITION_MUTANTS
from ballista_py.testing.simulation.mutants.jobs import JOB_MUTANTS, job_caught_by
from ballista_py.testing.simulation.mutants.mutants import MUTANTS
from ballista_py.testing.simulation.mutants.owners import OWNER_MUTANTS
from ballista_py.testing.simulation.mutants.writes import WRITE_MUTANTS

DONE = ("submitted", "succeeded", "taken over", "read", "closed", "killed", "paused", "left", "cut off")


def test_jobs_survive_their_schedulers():
    done = dict.fromkeys(DONE, 0)
    for seed in (3, 8):
        result = JobSimulation(seed).run()
        assert result.wrong == ()
        done = {kind: count + dict(result.done).get(kind, 0) for kind, count in done.items()}
    assert [kind for kind, count in done.items() if not count] == []


def test_the_same_seed_replays():
    first, second = (JobSimulation(5, minutes=2).run() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("mutant", JOB_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_of_jobs_is_found(mutant):
    assert job_caught_by(mutant.name, 6) is not None


def test_a_fault_has_no_name_of_another():
    names = [one.name for one in (*MUTANTS, *WRITE_MUTANTS, *OWNER_MUTANTS, *DEFINITION_MUTANTS, *JOB_MUTANTS)]
    assert len(names) == len(set(names))


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 160))
def test_jobs_survive_for_hours(seed):
    assert JobSimulation(seed, minutes=120).run().wrong == ()
