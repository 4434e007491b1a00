"""ALTER, RENAME TO and CREATE OR REPLACE beside everything else in virtual time: all is whole, faults are found."""

import pytest

from ballista_py.testing.simulation.definitions.simulation import DefinitionSimulation
from ballista_py.testing.simulation.mutants.definitions import DEFINITION_MUTANTS, definition_caught_by
from ballista_py.testing.simulation.mutants.mutants import MUTANTS
from ballista_py.testing.simulation.mutants.owners import OWNER_MUTANTS
from ballista_py.testing.simulation.mutants.writes import WRITE_MUTANTS

KINDS = ("append", "delete", "touch", "read", "alter", "rename", "replace", "owner", "scheduler")
QUICK = ("announcements-unread", "definition-unannounced", "owner-any-definition")


def test_tables_that_are_altered_renamed_and_replaced_stay_whole():
    result = DefinitionSimulation(1, minutes=3).run()
    assert result.wrong == ()
    done = dict(result.done)
    assert [kind for kind in KINDS if not done.get(kind)] == []


def test_the_same_seed_replays():
    first, second = (DefinitionSimulation(5, minutes=0.5).run() for _ in range(2))
    assert first == second


@pytest.mark.turn(3)
@pytest.mark.parametrize("name", QUICK)
def test_a_deliberate_fault_of_definitions_is_found(name):
    assert definition_caught_by(name, 15) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("mutant", DEFINITION_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_deliberate_fault_of_definitions_is_found(mutant):
    assert definition_caught_by(mutant.name, 40) is not None


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 160))
@pytest.mark.parametrize(("minutes", "pace"), [(15.0, 1.0), (300.0, 20.0)], ids=["fast", "slow"])
def test_tables_stay_whole_for_hours(seed, minutes, pace):
    assert DefinitionSimulation(seed, minutes=minutes, pace=pace).run().wrong == ()


def test_every_fault_has_a_name_of_its_own():
    names = [mutant.name for mutant in (*MUTANTS, *WRITE_MUTANTS, *OWNER_MUTANTS, *DEFINITION_MUTANTS)]
    assert len(names) == len(set(names))
