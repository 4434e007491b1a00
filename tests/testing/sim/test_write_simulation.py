"""Writes in virtual time: nothing is lost, doubled or torn, and every deliberate fault is found."""

import pytest

from ballista_py.testing.simulation.mutants.mutants import MUTANTS
from ballista_py.testing.simulation.mutants.table import WRITES_BEGIN, WRITES_END, write_table_of_writes
from ballista_py.testing.simulation.mutants.writes import WRITE_MUTANTS, caught_by
from ballista_py.testing.simulation.writes.simulation import WriteSimulation


def test_no_write_is_lost_doubled_or_torn():
    results = [WriteSimulation(seed, minutes=6).run() for seed in range(1, 4)]
    assert [result.wrong for result in results] == [(), (), ()]
    did = [(r.acknowledged, r.transfers, r.reads, r.replica_reads, r.compactions) for r in results]
    assert min(map(sum, zip(*did, strict=True))) > 0  # one seed alone may have bad luck with one of them


def test_the_same_seed_replays():
    first, second = (WriteSimulation(5, minutes=2).run() for _ in range(2))
    assert first == second


@pytest.mark.turn(3)
@pytest.mark.parametrize("mutant", WRITE_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_is_found(mutant):
    assert caught_by(mutant, 20) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(10, 30))
def test_no_write_is_lost_doubled_or_torn_in_hours(seed):
    assert WriteSimulation(seed, minutes=60).run().wrong == ()


def test_the_table_of_faults_is_written_between_its_marks(tmp_path):
    document = tmp_path / "guarantees.md"
    document.write_text(f"before\n{WRITES_BEGIN}\nold\n{WRITES_END}\nafter\n")
    write_table_of_writes(document, {mutant.name: (1, "seen") for mutant in WRITE_MUTANTS}, 9)
    lines = document.read_text().splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("before", WRITES_BEGIN, WRITES_END, "after")
    assert len(lines) == 6 + len(WRITE_MUTANTS)


def test_every_fault_has_a_name_of_its_own():
    names = [mutant.name for mutant in (*MUTANTS, *WRITE_MUTANTS)]
    assert len(names) == len(set(names))
