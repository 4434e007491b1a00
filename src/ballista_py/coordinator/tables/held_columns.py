"""Which columns a table may have: those that the engine of every executor can hold, asked of the very commit.

Executors say with which engine they run when they are admitted, in the document that a table is committed to. What
most of them say is the cluster's engine: so no table is acknowledged that its executors cannot load. What a few say
of themselves, who may lie or have joined by mistake, refuses nobody's table: such a one says why it does not serve it,
as one does that joins later.
"""

from __future__ import annotations

import pyarrow as pa

from ballista_py.engines.duckdb.tables import require_held
from ballista_py.errors import ConfigError, SchemaMismatch
from ballista_py.partitions.columns import stored_name
from ballista_py.partitions.expression.time_zones import no_zone, zone_that_is_none
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import ClusterDocument


def require_columns(table: str, schema: pa.Schema) -> None:
    """Raises `ConfigError`, with the reason, if DuckDB, which every scheduler runs, cannot hold these columns.

    So it does for a time zone that there is not: DuckDB keeps no zones, and whoever reads them cannot use such a one.
    """
    for column in schema:
        zone = zone_that_is_none(column.type)
        if zone is not None:
            raise ConfigError(f"table '{table}' cannot have the column '{column.name}': {no_zone(zone)}")
    try:
        require_held(schema, table)
    except SchemaMismatch as error:
        raise ConfigError(f"{error.message}: give its columns other names or types") from None


def require_engines_hold(cluster: ClusterDocument, table: str, schema: pa.Schema) -> None:
    """Raises `ConfigError`, naming column and executor, if most executors of the cluster cannot hold these columns."""
    such = sorted(id_ for id_, executor in cluster.executors.items() if executor.info.engine == "polars")
    if 2 * len(such) <= len(cluster.executors):
        return
    found = such[0]
    from ballista_py.engines.polars.types import why_not_held  # with polars, which other schedulers need not load

    reason = why_not_held(schema)
    if reason is not None:
        raise ConfigError(
            f"table '{table}' cannot be held by executor '{found}', which runs the polars engine: {reason}; give it "
            "another type, or run executors with 'engine: duckdb'"
        )


def new_columns(before: TableSpec, after: TableSpec) -> pa.Schema:
    """The columns of a table that an earlier definition of it did not have, or had with another type."""
    had = {stored_name(column): column.type for column in before.schema}
    return pa.schema([column for column in after.schema if had.get(stored_name(column)) != column.type])
