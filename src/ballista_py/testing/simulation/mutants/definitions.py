"""Deliberate faults of ALTER, RENAME TO and CREATE OR REPLACE: what the simulation of definitions must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.tables.alterations import TableAlterations
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.former_tables import FormerTables
from ballista_py.partitions import alterations
from ballista_py.state.documents.decisions import Statements, StatementsDocument
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.storage.held import holdings
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.holdings import Holdings
from ballista_py.testing.simulation.definitions.simulation import DefinitionSimulation

Patch = tuple[Any, str, Any]
_require = PartitionHolder._require_definition
_decided = StatementsDocument.decided


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


def _unguarded(definitions: TableDefinitions, now: Any, wanted: Any, mark: str | None) -> None:
    def change(cluster: ClusterDocument) -> ClusterDocument:
        known = cluster.tables.get(now.name)
        if known is None or wanted.name in {*cluster.tables} - {now.name}:
            return cluster
        renamed = wanted.name != now.name
        return cluster.with_renamed(now.name, wanted, mark) if renamed else cluster.with_altered(wanted, mark)

    definitions._prove(wanted, definitions._cluster.update(change).header.revision)


def _any_definition(holder: PartitionHolder, wanted: Any, exact: bool) -> int:
    found = holder._tables.get(wanted.table)
    return 0 if found is None else found.table.definition


def _any_table(holder: PartitionHolder, wanted: Any, exact: bool) -> int:
    return _require(holder, evolve(wanted, incarnation=""), exact)


def _whoever(_held: Holdings, _wanted: Any) -> bool:
    return False


def _by_revision(_table: Any, revision: int) -> tuple[int, int]:
    return 0, revision


def _same_stored(name: str, _taken: Any) -> str:
    return name


def _decided_by_any(
    document: StatementsDocument, decision: Any, begun: Any = None, _definition: Any = None
) -> Any:
    return _decided(document, decision, begun, None)


DEFINITION_MUTANTS: tuple[DefinitionMutant, ...] = (
    DefinitionMutant(
        name="announcements-unread",
        what="whoever reads or writes a table does not look whether it may have been altered, renamed or replaced",
        patches=((Catalogs, "definitions", _no_news),),
    ),
    DefinitionMutant(
        name="definition-unannounced",
        what="a definition is committed without being announced to readers and writers",
        patches=((Statements, "announce", _nothing),),
    ),
    DefinitionMutant(
        name="definition-unguarded",
        what="a definition is committed whatever became of the table meanwhile",
        patches=((TableDefinitions, "_commit", _unguarded),),
    ),
    DefinitionMutant(
        name="owner-any-definition",
        what="an owner reads and commits what was made by another definition of the table, or for another table",
        patches=((PartitionHolder, "_require_definition", _any_definition),),
    ),
    DefinitionMutant(
        name="table-unnamed",
        what="an owner does not ask which table of a name a leg or a row means",
        patches=(
            (Holdings, "_is_another", _whoever),
            (PartitionHolder, "_require_definition", _any_table),
        ),
    ),
    DefinitionMutant(
        name="namings-uncounted",
        what="of two tables of a name an owner keeps the one whose map has seen more commits",
        patches=((holdings, "_order_of", _by_revision),),
    ),
    DefinitionMutant(
        name="decided-by-any-definition",
        what="a statement over several partitions is decided though the table was altered since it was prepared",
        patches=((StatementsDocument, "decided", _decided_by_any),),
    ),
    DefinitionMutant(
        name="former-names-unlooked",
        what="a statement that is sent again does not look into the table that has lost the name",
        patches=((FormerTables, "of", _nothing),),
    ),
    DefinitionMutant(
        name="stored-name-again",
        what="a column that is added has the name in files that a dropped one had",
        patches=((alterations, "fresh_stored_name", _same_stored),),
    ),
    DefinitionMutant(
        name="values-unlooked",
        what="SET NOT NULL does not look whether a row has no value",
        patches=((TableAlterations, "_require_none_missing", _nothing),),
    ),
    DefinitionMutant(
        name="definition-twice",
        what="a definition that is sent again is carried out again",
        patches=((TableMaker, "done", _nothing),),
    ),
)


def definition_caught_by(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed from 1 on that finds the mutant of that name, and what it sees; None if none does."""
    mutant = next(mutant for mutant in DEFINITION_MUTANTS if mutant.name == name)
    with mutant.applied() as simulation:
        for seed in range(1, seeds + 1):
            wrong = simulation(seed).run().wrong
            if wrong:
                return seed, wrong[0]
    return None
