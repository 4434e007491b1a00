"""The rows of a materialized view made anew: those that its query gives now, in the place of all that are there."""

from __future__ import annotations

import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.tables.materialized_views import require_other_reads
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.overwrites import every_partition
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.coordinator.writes.row_writes import RowWrites
from ballista_py.coordinator.writes.whole_writes import WholeWrites
from ballista_py.errors import SchemaMismatch, SqlError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.own_words import without_position
from ballista_py.state.documents.write_tokens import WriteToken


@frozen
class ViewRows:
    """Makes the rows of materialized views anew. Thread-safe."""

    views: Views
    rounds: WriteRounds
    rows: RowWrites
    whole: WholeWrites
    checks: RowChecks

    def make_anew(self, name: str, token: WriteToken) -> int:
        """Run the query and put its rows in the place of those that are there, by one decision; how many they are.

        The same token again changes nothing. Raises `SqlError` for a name that no materialized view has and for a
        query that cannot be run any more, `SchemaMismatch` where that gives other columns by now.
        """
        view = self.views.refresh({name})
        table = view.catalog.tables.get(name)
        if table is None or table.query is None:
            is_there = table is not None or name in view.sql_views
            raise SqlError(
                f"'{name}' is no materialized view: it has no query whose rows it keeps"
                if is_there
                else f"materialized view '{name}' does not exist"
            )
        earlier = self.rounds.statements(table).read().of(token.kept)
        if earlier is not None:
            return self.rows.decided(table, KeptRows(iter(())), token)
        require_other_reads(name, table.query, view)
        try:
            with self.whole.running(table.query) as running:
                _require_columns(table, running.schema)
                return self.rows.take_in(table, running.batches(), token, "decide", replaced=every_partition)
        except SqlError as error:  # its place is one in a text that was not sent
            raise without_position(error) from None


def _require_columns(table: TableSpec, given: pa.Schema) -> None:
    """Raise `SchemaMismatch` unless the query gives the columns that the view was made with."""
    had = [(column.name, column.type) for column in table.schema]
    now = [(column.name, column.type) for column in given]
    other = next((n for n, pair in enumerate(now) if n >= len(had) or pair != had[n]), len(now))
    if now == had:
        return
    what = f"'{now[other][0]}' {now[other][1]}" if other < len(now) else f"no column '{had[other][0]}'"
    raise SchemaMismatch(
        f"the query of materialized view '{table.name}' gives {what} by now: its rows stay as they are, until it is "
        "made anew with CREATE OR REPLACE MATERIALIZED VIEW"
    )
