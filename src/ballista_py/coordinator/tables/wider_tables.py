"""A table that takes the columns that its source has more, by the rules of ALTER TABLE … ADD COLUMN."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ballista_py.coordinator.changes.source import Described
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.errors import ConfigError, SchemaMismatch, SourceUnfit
from ballista_py.partitions.alterations import add_column, has_column
from ballista_py.partitions.bounds import require_bounded
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore

MAX_NAMED = 5


def with_columns(
    store: ConditionalStore, runtime: Runtime, table: TableSpec, new: Sequence[pa.Field]
) -> TableSpec:
    """The table with these columns behind its own, which are null in the rows that it has.

    Raises `SchemaMismatch` naming them for what the table cannot have.
    """

    def alter(now: TableSpec) -> TableSpec:
        wanted = now
        for column in new:
            empty = pa.nulls(1, column.type)
            wanted = add_column(wanted, column.with_nullable(True), empty, None, if_not_exists=True)
        require_bounded(wanted, now)
        return wanted

    try:
        return TableDefinitions(store, runtime).commit(table, alter)
    except ConfigError as error:
        raise SchemaMismatch(
            f"table '{table.name}' cannot take the columns {named(new)}: {error.message}"
        ) from None


def widened(store: ConditionalStore, runtime: Runtime, table: TableSpec, there: Described) -> TableSpec | None:
    """The table with the columns that its source has more now; None where it has none.

    Raises `SourceUnfit` for one whose values in earlier rows no change tells, and `SchemaMismatch`.
    """
    new = [column for column in there.schema if not has_column(table, column.name)]
    if not new:
        return None
    filled = next((c.name for c in new if not c.nullable or c.name in there.filled), None)
    if filled is not None:
        raise SourceUnfit(
            f"the source of table '{table.name}' has a column '{filled}' more, with values in rows that were there "
            "before it, which its changes do not tell: make the table anew"
        )
    return with_columns(store, runtime, table, new)


def named(columns: Sequence[pa.Field]) -> str:
    """The names of columns, for an error."""
    return ", ".join(f"'{column.name}'" for column in columns[:MAX_NAMED])
