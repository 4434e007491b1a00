"""Statements of every kind at real owners in virtual time: nothing is lost, doubled or torn, every fault is found."""

import os
import subprocess
import sys

import pytest

from ballista_py.testing.simulation.mutants.mutants import MUTANTS
from ballista_py.testing.simulation.mutants.owners import OWNER_MUTANTS, caught_by
from ballista_py.testing.simulation.mutants.writes import WRITE_MUTANTS
from ballista_py.testing.simulation.owners.simulation import OwnerSimulation

KINDS = ("append", "insert", "transfer", "merge", "delete", "replace", "refresh", "create", "read", "owner")
QUICK = {  # by the seed at which one begins to look
    "owner-not-caught-up": 1, "owner-counts-from-the-newest": 16, "commit-unserved": 1, "run-not-caught-up": 1,
}  # fmt: skip


def test_nothing_is_lost_doubled_or_torn_at_owners():
    result = OwnerSimulation(1, minutes=5).run()
    assert result.wrong == ()
    done = dict(result.done)
    assert [kind for kind in KINDS if not done.get(kind)] == []


def test_the_same_seed_replays():
    first, second = (OwnerSimulation(5, minutes=1).run() for _ in range(2))
    assert first == second


def test_the_same_seed_replays_in_another_process():
    """Sets of texts have another order there."""
    code = (
        "from ballista_py.testing.simulation.owners.simulation import OwnerSimulation as Simulation\n"
        "print(Simulation(48, minutes=4).run(), Simulation(5, minutes=2).run())"
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


@pytest.mark.parametrize(("name", "first"), QUICK.items())
def test_a_deliberate_fault_of_an_owner_is_found(name, first):
    assert caught_by(next(mutant for mutant in OWNER_MUTANTS if mutant.name == name), 6, first) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("mutant", OWNER_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_of_owners_is_found(mutant):
    assert caught_by(mutant, 20) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(10, 30))
@pytest.mark.parametrize(("minutes", "pace"), [(30.0, 1.0), (600.0, 30.0)], ids=["fast", "slow"])
def test_nothing_is_lost_doubled_or_torn_at_owners_in_hours(seed, minutes, pace):
    assert OwnerSimulation(seed, minutes=minutes, pace=pace).run().wrong == ()


def test_every_fault_has_a_name_of_its_own():
    names = [mutant.name for mutant in (*MUTANTS, *WRITE_MUTANTS, *OWNER_MUTANTS)]
    assert len(names) == len(set(names))
