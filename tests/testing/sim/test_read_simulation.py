"""Read jobs over tables that change, in virtual time: one instant, each row once, and every planted fault is found."""

import os
import subprocess
import sys

import pytest

from ballista_py.testing.simulation.mutants.definitions import DEFINITION_MUTANTS
from ballista_py.testing.simulation.mutants.jobs import JOB_MUTANTS
from ballista_py.testing.simulation.mutants.owners import OWNER_MUTANTS
from ballista_py.testing.simulation.mutants.reads import READ_MUTANTS, read_caught_by
from ballista_py.testing.simulation.mutants.refreshes import REFRESH_MUTANTS
from ballista_py.testing.simulation.reads.simulation import ReadSimulation

DONE = (
    "append", "insert", "transfer", "merge", "delete", "replace", "refresh", "compaction", "create", "drop", "remade",
    "owner", "scheduler", "collected", "job begun", "job read", "job gone", "job removed", "part read", "processed",
    "as it is", "renewal", "renewal too late", "closed by others", "spoilt job", "spoilt",
)  # fmt: skip
QUICK = {
    "read-one-look", "read-decisions-after-manifests", "read-decisions-remembered", "read-own-clock",
    "read-ended-by-anybody", "read-orphans-kept",
}  # fmt: skip


def test_a_job_shows_one_instant_for_as_long_as_it_is_renewed():
    done = dict.fromkeys(DONE, 0)
    for seed in (1, 2, 4):
        result = ReadSimulation(seed).run()
        assert result.wrong == ()
        done = {kind: count + dict(result.done).get(kind, 0) for kind, count in done.items()}
    assert [kind for kind, count in done.items() if not count] == []


def test_the_same_seed_replays_in_another_process():
    """Sets of texts have another order there."""
    code = (
        "from ballista_py.testing.simulation.reads.simulation import ReadSimulation as Simulation\n"
        "print(Simulation(3, minutes=3).run(), Simulation(2, minutes=60).run())"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    )
    assert first == second != b""


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_deliberate_fault_of_read_jobs_is_found(name):
    assert read_caught_by(name, 4) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("mutant", READ_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_of_read_jobs_is_found(mutant):
    assert read_caught_by(mutant.name, 60) is not None


def test_a_fault_has_no_name_of_another():
    names = [
        one.name for one in (*READ_MUTANTS, *OWNER_MUTANTS, *DEFINITION_MUTANTS, *JOB_MUTANTS, *REFRESH_MUTANTS)
    ]
    assert len(names) == len(set(names))


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 160))
def test_a_job_shows_one_instant_for_hours(seed):
    minutes = 600.0 if seed % 2 == 0 else 30.0
    assert ReadSimulation(seed, minutes=minutes).run().wrong == ()
