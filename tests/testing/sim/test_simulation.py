"""Whole clusters from seeds: fresh ones every time, and every one that ever failed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.mutants.mutants import MUTANTS
from ballista_py.testing.simulation.simulation import Simulation

FAILED_SEEDS = orjson.loads((Path(__file__).parent / "failed_seeds.json").read_bytes())
SECONDS = float(os.environ.get("BALLISTA_SIM_SECONDS", "60"))
HOURS = 1.0
QUICK = ("blind-retry", "unconditional-write", "own-ears-alone", "no-activation", "fence-removed")


def _sim(*words):
    command = [sys.executable, "-m", "ballista_py.node", "sim", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_as_many_fresh_seeds_as_fit_violate_no_guarantee():
    first_seed = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", int(time.time()) * 1_000))
    words = ["--seeds", "100000", "--first-seed", str(first_seed), "--hours", f"{HOURS:g}"]
    found = _sim("run", *words, "--for-seconds", f"{SECONDS:g}", "--json")
    report = orjson.loads(found.stdout)
    print(f"{report['seeds']} seeds from {first_seed}, {report['speed']:.0f} x real time")
    assert report["failures"] == [], f"replay: ballista-py sim run --seeds 1 --hours {HOURS:g} --first-seed …"
    assert report["seeds"] > 0
    assert report["served"] > 0.8


@pytest.mark.turn(3)
@pytest.mark.parametrize("failed", FAILED_SEEDS, ids=lambda failed: str(failed["seed"]))
def test_a_seed_that_once_failed_passes(failed):
    assert Simulation(failed["seed"], hours=failed["hours"]).run().violations == ()


def test_without_faults_every_partition_is_served_almost_all_the_time():
    result = Simulation(1, hours=0.1, faults=Faults.none()).run()
    assert result.violations == ()
    assert result.served > 0.97
    assert result.healed_ms == 0.0


@pytest.mark.turn(3)
@pytest.mark.parametrize("name", QUICK)
def test_a_deliberate_fault_is_caught_within_three_seeds(name):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    seen = set()
    with mutant.applied():
        for seed in (1, 2, 3):
            violations = Simulation(seed, hours=0.5).run(stop_at_first=True).violations
            seen |= {violation.guarantee for violation in violations}
            if seen & set(mutant.breaks):
                return
    raise AssertionError(f"{name} was not noticed; seen: {seen}")


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_every_deliberate_fault_is_caught():
    found = _sim("mutants", "--seeds", "60")
    assert found.returncode == 0, found.stdout


def test_a_mutant_leaves_no_trace():
    def digest():
        return Simulation(3, hours=0.02).run().history.digest()

    before = digest()
    for mutant in MUTANTS:
        with mutant.applied():
            pass
    assert digest() == before


def test_the_command_line_says_what_failed_and_how_to_replay_it(tmp_path):
    done = tmp_path / "done"
    words = ["run", "--seeds", "2", "--hours", "0.02", "--done", str(done)]
    first = _sim(*words)
    assert first.returncode == 0, first.stderr
    assert "2 seeds" in first.stdout
    assert sorted(done.read_text().split()) == ["0.02", "0.02", "1", "2"]
    again = _sim(*words)
    assert "0 seeds" in again.stdout
    assert _sim("run", "--no-such-option").returncode == 2
