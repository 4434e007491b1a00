"""A change that meets an ALTER is run again from its beginning, until it is done or its patience is over.

Who was refused twice gets its turn: the next definition of the table waits for it. So neither ALTERs that follow each
other nor changes that do keep the other kind waiting for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol, TypeVar

from attrs import frozen

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.rounds import FIRST_WAIT_MS
from ballista_py.errors import BallistaError, SchemaMismatch, SqlError, TableAltered, TryLater
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.work import pause

CONCLUDE_MS = 1_500.0
LONGEST_WAIT_MS = 200.0  # whoever has its turn keeps others waiting
T = TypeVar("T")


class Rounds(Protocol):
    """Where the statements of a table are decided."""

    def statements(self, table: TableSpec) -> TableDecisions: ...


@frozen
class PlannedAgain:
    """Runs statements. Thread-safe."""

    views: Views
    rounds: Rounds
    definitions: TableDefinitions
    runtime: Runtime
    patience_ms: float

    def until_done(
        self, run: Callable[[], T], tables: Collection[str], repeatable: Callable[[], bool] = lambda: True
    ) -> T:
        """Run a statement, again from its beginning where a table was altered before anything of it was applied.

        So is one that is refused while one of its `tables` became another one: its pieces may have been made for both.
        A definition that was announced and does not come is ended, so that the statement need not wait for ever.

        Raises `TryLater` in the place of `TableAltered`, and what `run` raises.
        """
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        wait_ms, refused_ms, turn = FIRST_WAIT_MS, None, self.runtime.new_id()
        before = self.views.current(()).marks(tables)
        turns: dict[str, TableDecisions] = {}

        def over() -> bool:
            return not repeatable() or self.runtime.monotonic_ms() > deadline_ms

        try:
            while True:
                try:
                    return run()
                except (SqlError, SchemaMismatch):
                    known, before = before, self.views.refresh(tables).marks(tables)
                    if known == before or over():
                        raise
                except TableAltered as error:
                    if over():
                        raise TryLater(f"{error.message.partition(':')[0]}: send the statement again") from None
                    now_ms = self.runtime.monotonic_ms()
                    if refused_ms is not None:
                        self._after_altered(error.details.get("table"), now_ms - refused_ms, turn, turns)
                    refused_ms = now_ms if refused_ms is None else refused_ms
                    pause(self.runtime, wait_ms, error)
                    wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)
                    self.views.refresh(tables)
        finally:
            for statements in turns.values():
                with suppress(BallistaError):  # nobody waits for it for long
                    statements.end_turn(turn)

    def _after_altered(
        self, name: str | None, since_ms: float, turn: str, turns: dict[str, TableDecisions]
    ) -> None:
        """Have the table let the statement through, and end what is announced and does not come.

        Each time anew: a definition that waited for it in vain does not wait again.
        """
        found = self.views.refresh({name or ""}).catalog.tables.get(name or "")
        if found is None:
            return
        statements = turns.setdefault(found.folder, self.rounds.statements(found))
        statements.wait_for_turn(turn)
        if since_ms >= CONCLUDE_MS:
            announced = statements.read().announced
            if announced > found.definition:
                with suppress(SqlError):  # it is no more, or another one has its name by now
                    self.definitions.conclude(found, announced)
