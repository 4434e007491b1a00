"""The tables that statements change, as they are now: looked up again where what is known of them is old.

A change that meets an ALTER is run again from its beginning, until it is done or its patience is over.

Who was refused twice gets its turn: the next definition of the table waits for it. So neither ALTERs that follow each
other nor changes that do keep the other kind waiting for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol, TypeVar

from attrs import frozen

from ballista_py.coordinator.cluster_view import Views, words_of
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.tables.follows import retention_of
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.retentions import at_this_moment
from ballista_py.coordinator.writes.rounds import FIRST_WAIT_MS
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, SchemaMismatch, SqlError, TableAltered, TryLater
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.bind.now import at_one_moment
from ballista_py.sql.own_words import meant
from ballista_py.sql.parse.changes import General, Local
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.work import pause

NOT_CHANGED = (
    "no statement changes it; write to it with the tools of its format, or take its rows in with CREATE TABLE … AS"
)
_THROUGH = "INSERT, UPDATE, DELETE and MERGE are, without RETURNING"


@frozen
class TargetTables:
    """Finds tables by their names. Raises `SqlError` for one that is not there, or not to be changed so."""

    views: Views
    queries: QueryService
    engine: Engine

    def managed(self, name: str) -> TableSpec:
        """The table of that name, if statements may change its rows."""
        for view in (self.views.current, self.views.refresh):
            found = view({name}).catalog.tables.get(name)
            if found is not None and found.source is None:
                self.queries.sequences({name})
                if self.queries.is_behind(view({name}), {name}):
                    found = self.views.refresh({name}).catalog.tables.get(name)
            if found is not None and found.is_written_through:
                raise SqlError(
                    f"the statement cannot be run on table '{name}', which is written through: {_THROUGH}"
                )
            if found is not None and found.query is not None:
                raise SqlError(
                    f"'{name}' is a materialized view, which has the rows of its query: change the tables that it reads"
                )
            if found is not None and found.source is not None:
                raise SqlError(
                    f"table '{name}' is filled from its source: refresh it, or write to a managed table"
                )
            if found is not None:
                return found
        if name in self.views.current(()).sql_views:
            raise SqlError(f"'{name}' is a view, which has no rows of its own: change the tables that it reads")
        if name in self.views.current(()).scanned:
            raise self.views.current(()).scanned[name].refused(NOT_CHANGED)
        self.views.current(()).require_usable({name})
        reason = self.views.current(()).catalog.left_out.get(name)
        if reason is not None:
            raise SqlError(f"table '{name}' cannot be used: {reason}")
        raise SqlError(f"Table '{name}' does not exist{meant(name, self.views.current(()).catalog.tables)}")

    def through(self, name: str) -> TableSpec | None:
        """The table of that name, if statements go to its source; None for any other, or none."""
        for view in (self.views.current, self.views.refresh):
            found = view({name}).catalog.tables.get(name)
            if found is not None:
                return found if found.is_written_through else None
        return None

    def followed(self, name: str, folder: str) -> TableSpec:
        """The table of that name and folder, if it follows changes. Raises `SqlError` for another one of that name."""
        found = self.views.refresh({name}).catalog.tables.get(name)
        if found is None or found.folder != folder or not found.by_changes:
            raise SqlError(f"table '{name}' was dropped, or another one has its name")
        return found

    def with_retention(self, name: str, moment_ms: int) -> tuple[TableSpec, Local]:
        """The table of that name, with or without a source, and the DELETE of its retention as it means at a moment."""
        table = self.views.refresh({name}).catalog.tables.get(name)
        if table is None or table.retention is None:
            raise SqlError(f"table '{name}' has no retention any more")
        change = retention_of(table.name, table.schema, table.retention)
        timed = at_one_moment(change, table.schema, moment_ms)
        if timed is None:
            raise SqlError(
                f"the retention of table '{name}' names a time that cannot be told beforehand: use now()"
            )
        return table, at_this_moment(timed.change, table, self.engine)

    def bind(self, change: General) -> None:
        """Raise `SqlError`, with its position, unless the statement means something over the tables that there are."""
        try:
            self.engine.bind_change(change.text, self.queries.views.current(words_of(change.text)).catalog.schemas)
        except SqlError:
            self.engine.bind_change(change.text, self.queries.views.refresh(words_of(change.text)).catalog.schemas)


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
