"""ALTER TABLE and COMMENT ON, at a scheduler: what is wanted is made out, committed, and shown by all executors."""

from __future__ import annotations

from attrs import frozen

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.tables.alter_actions import AlterActions
from ballista_py.coordinator.tables.ddl import mark_of, marks_of
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.rounds import FIRST_WAIT_MS, Growth
from ballista_py.errors import BallistaError, SchemaMismatch, SqlError, TryLater
from ballista_py.partitions import alterations
from ballista_py.partitions.refresh import INTERVALS
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.own_words import meant
from ballista_py.sql.parse.alterations import (
    Alteration,
    AlterTable,
    RenameTable,
    SetComment,
    SetRequired,
    SetTableOption,
)
from ballista_py.sql.parse.changes import quoted
from ballista_py.state.documents.write_tokens import PATIENCE_MS
from ballista_py.work import pause, require_wanted


@frozen
class TableAlterations:
    """Alters tables. Thread-safe."""

    views: Views
    tables: TableMaker
    definitions: TableDefinitions
    growth: Growth
    queries: QueryService
    checks: RowChecks
    runtime: Runtime
    patience_ms: float = PATIENCE_MS

    def alter(self, change: AlterTable, token: str) -> int:
        """Do what the statement says, all of it or nothing; 0, as no row is counted.

        The same statement sent again does nothing. When it returns, every executor that can be reached shows the new
        definition; the others answer nothing by an older one. Raises `SqlError`, and what the store raises.
        """
        mark = mark_of(token)
        to = change.action.to if isinstance(change.action, RenameTable) else change.table
        if self.tables.done(*marks_of(token)) is not None:
            self._shown(to)
            return 0
        table = self._table(change)
        if table is None:
            self.tables.note(mark)
            return 0
        if isinstance(change.action, SetRequired) and change.action.required:
            self._require_values(table, change.action.name, mark)
        else:
            alter = self._actions.checked(self._actions.of(table.name, change.action))
            require_wanted()  # what is out of time by now changes nothing
            self.definitions.commit(table, alter, mark)
            self._shown(to)
        return 0

    @property
    def _actions(self) -> AlterActions:
        return AlterActions(self.checks)

    def _table(self, change: AlterTable) -> TableSpec | None:
        """The table as it is now; None if there is none and that is fine."""
        table = self.definitions.newest(change.table)
        if table is None:
            view = self.views.refresh({change.table})
            if change.table in view.sql_views:
                raise SqlError(
                    f"'{change.table}' is a view and cannot be altered: make it anew with CREATE OR REPLACE VIEW"
                )
            if change.table in view.scanned:
                raise view.scanned[change.table].refused(
                    "it has the columns of its snapshot and cannot be altered; have it lie elsewhere with CREATE OR "
                    "REPLACE TABLE … USING"
                )
            view.require_usable({change.table})
            if change.if_exists:
                return None
            known = self.views.current(()).catalog.tables
            raise SqlError(f"Table '{change.table}' does not exist{meant(change.table, known)}")
        if table.query is not None and not _is_of_sources(change.action):
            raise SqlError(
                f"'{table.name}' is a materialized view, which has the columns of its query: make it anew with "
                "CREATE OR REPLACE MATERIALIZED VIEW"
            )
        if table.source is not None and not _is_of_sources(change.action):
            raise SqlError(
                f"table '{table.name}' has the columns of its source and cannot be altered: drop it and make it anew, "
                "or copy its rows into a managed table"
            )
        return table

    def _require_values(self, table: TableSpec, name: str, mark: str) -> None:
        """SET NOT NULL: no new row without a value from now on; then look whether an older one has none.

        Raises `SchemaMismatch` if one has, and `TryLater` when an owner cannot be asked; the column is as before then.
        """
        since = 0

        def require(now: TableSpec) -> TableSpec:
            nonlocal since
            wanted = alterations.set_required(now, name)
            since = wanted.definition
            return wanted

        wanted = self.definitions.commit(table, require)
        place = alterations.column_of(wanted, name)
        column = wanted.schema.field(place)
        if not column.nullable:
            self.tables.note(mark)
            return
        try:
            if not self._shown(table.name):
                raise TryLater(f"not every owner of table '{table.name}' can be reached: try again later")
            self._require_none_missing(wanted, column.name)
        except BallistaError:
            self.definitions.commit(wanted, lambda now: alterations.set_optional(now, column.name))
            self._shown(table.name)
            raise
        self.definitions.commit(wanted, lambda now: alterations.proven(now, column.name, since), mark)
        self._shown(table.name)

    def _require_none_missing(self, table: TableSpec, column: str) -> None:
        running = self.queries.run(f'select count(*) from "{table.name}" where {quoted(column)} is null')
        missing = sum(sum(batch.column(0).to_pylist()) for batch in running.batches())
        if missing:
            raise SchemaMismatch(
                f"{missing} row(s) of table '{table.name}' have no value in column '{column}': give them one with "
                "UPDATE first"
            )

    def _shown(self, name: str) -> bool:
        """Wait until every owner shows the newest definition of the table; whether all do."""
        self.growth.reconcile_table(name)
        if name not in self.views.refresh({name}).catalog.tables:
            return False
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        while not (shown := self.growth.table_is_served(name)) and self.runtime.monotonic_ms() < deadline_ms:
            pause(self.runtime, FIRST_WAIT_MS)
        return shown


def _is_of_sources(action: Alteration) -> bool:
    """Whether a table with a source can be altered so: its columns are those of its source."""
    return isinstance(action, SetComment) or (isinstance(action, SetTableOption) and action.name in INTERVALS)
