"""Deliberate faults of ALTER, RENAME TO and CREATE OR REPLACE: what the simulation of definitions must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.testing.simulation.definitions.simulation import DefinitionSimulation

Patch = tuple[Any, str, Any]


@frozen(kw_only=True)
class DefinitionMutant:
    """One deliberate fault."""

    name: str
    what: str
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[Callable[[int], DefinitionSimulation]]:
        """Break the code within this block, for the whole process; gives simulations by their seed."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                before = owner.__dict__[name]
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
            yield DefinitionSimulation


def _nothing(*_arguments: Any, **_named: Any) -> None:
    return


def _no_news(_catalogs: Catalogs, _tables: Any) -> dict[str, int]:
    return {}


def _any_definition(holder: PartitionHolder, wanted: Any, exact: bool) -> int:
    found = holder._tables.get(wanted.table)
    return 0 if found is None else found.table.definition


DEFINITION_MUTANTS: tuple[DefinitionMutant, ...] = (
    DefinitionMutant(
        name="announcements-unread",
        what="whoever reads or writes a table does not look whether it may have been altered, renamed or replaced",
        patches=((Catalogs, "definitions", _no_news),),
    ),
    DefinitionMutant(
        name="definition-unannounced",
        what="a definition is committed without being announced to readers and writers",
        patches=((TableDecisions, "announce", _nothing),),
    ),
    DefinitionMutant(
        name="owner-any-definition",
        what="an owner reads and commits what was made by another definition of the table, or for another table",
        patches=((PartitionHolder, "_require_definition", _any_definition),),
    ),
)


def definition_caught_by(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed from 1 on that finds the mutant of that name, and what it sees; None if none does."""
    mutant = next(mutant for mutant in DEFINITION_MUTANTS if mutant.name == name)
    with mutant.applied() as simulation:
        for seed in range(1, seeds + 1):
            try:
                wrong = simulation(seed).run().wrong
            except Exception as error:  # no error of ours: something met what it cannot be made for
                return seed, f"{type(error).__name__} amid a run: {error}"
            if wrong:
                return seed, wrong[0]
    return None
