"""The tables that statements change, as they are now: looked up again where what is known of them is old."""

from __future__ import annotations

from attrs import frozen

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.tables.follows import retention_of
from ballista_py.coordinator.writes.retentions import at_this_moment
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.now import at_one_moment
from ballista_py.sql.own_words import meant
from ballista_py.sql.parse.changes import General, Local

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
            self.engine.bind_change(change.text, self.views.current(()).catalog.schemas)
        except SqlError:
            self.engine.bind_change(change.text, self.views.refresh(()).catalog.schemas)
