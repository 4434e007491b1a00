"""Whether what a table declares of its source and its old rows can be carried out; pure, asked when it is declared."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.refresh import Retention
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.table_name import folded
from ballista_py.sql.parse.changes import Local, read_change

# A table whose source tells its changes follows them without a schedule.
CARRIED_OUT = ("full", "append")


def require_follows(table: TableSpec) -> None:
    """Raise `ConfigError` unless the refresh and the retention that the table declares can be carried out."""
    if table.refresh is not None:
        table.refresh.require_usable(table.name, table.schema, has_source=table.source is not None)
        if table.by_changes:
            said = table.refresh
            if said.mode != "changes" or said.every is not None or said.time_column is not None:
                raise ConfigError(
                    f"table '{table.name}' follows the changes of its source by itself, without a schedule: leave "
                    "refresh out, or say mode 'changes' and on_schema_change alone"
                )
        elif table.refresh.mode not in CARRIED_OUT:
            raise ConfigError(
                f"table '{table.name}': this source is not followed by its changes, as 'postgres' is: take "
                "refresh mode 'full', or 'append' with a time_column"
            )
    if table.retention is not None:
        retention_of(table.name, table.schema, table.retention)


def retention_of(table: str, schema: pa.Schema, retention: Retention) -> Local:
    """The DELETE of a table's retention. Raises `ConfigError` for anything else than one DELETE of its own rows."""
    wrong = f"table '{table}': its retention is no DELETE of its own rows"
    shown = f"write DELETE FROM {table} WHERE …, whose condition names its columns alone"
    try:
        change = read_change(retention.sql)
    except SqlError as error:
        raise ConfigError(f"{wrong} ({error.message}): {shown}") from None
    if not isinstance(change, Local) or change.assignments is not None or change.returning is not None:
        raise ConfigError(f"{wrong}: {shown}")
    if folded(change.table) != table:
        raise ConfigError(f"table '{table}': its retention deletes from '{change.table}': {shown}")
    if change.where is None:
        raise ConfigError(f"table '{table}': its retention deletes every row: {shown}")
    known = {name.lower() for name in schema.names}
    for column in () if change.tree is None else change.tree.find_all(exp.Column):
        if not column.table and column.name.lower() not in known:
            raise ConfigError(f"table '{table}': its retention names '{column.name}', a column that it has not")
    return change
