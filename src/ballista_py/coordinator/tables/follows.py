"""Whether what a table declares of its source and its old rows can be carried out; pure, asked when it is declared."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.simplify import simplify

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.refresh import Retention
from ballista_py.partitions.table import TableSpec, folded
from ballista_py.sql.parse.changes import Local, quoted, read_change
from ballista_py.sql.parse.kind import tokens_of

# A table whose source tells its changes follows them without a schedule.
CARRIED_OUT = ("full", "append")
# By which one run would take rows away that the next one would have left.
BY_CHANCE = frozenset({"gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})


def require_follows(table: TableSpec) -> None:
    """Raise `ConfigError` unless the refresh and the retention that the table declares can be carried out."""
    if table.query is not None:
        _require_of_query(table)
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


def _require_of_query(table: TableSpec) -> None:
    """Raise `ConfigError` for what a materialized view declares that only other tables can."""
    name, said = table.name, table.refresh
    if table.retention is not None:
        raise ConfigError(
            f"materialized view '{name}' has the rows that its query gives: put what it is to forget into that"
        )
    if said is not None and (
        said.mode != "full" or said.time_column is not None or said.on_schema_change != "fail"
    ):
        raise ConfigError(
            f"materialized view '{name}' is made anew from its query each time: of the options of a refresh it takes "
            "refresh_check_interval alone"
        )


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


def require_choice(table: str, change: Local) -> None:
    """Raise `ConfigError` for a retention that tells no old rows from others: by no column, by chance, or not at all.

    It is asked when a retention is declared; one that was declared before is carried out as it is.
    """
    tree = change.tree
    if tree is None:
        return
    shown = f"write DELETE FROM {table} WHERE …, whose condition says which rows are old"
    for call in tree.find_all(exp.Func):
        if BY_CHANCE & {name.lower() for name in (call.name, *call.sql_names())}:
            called = call.sql(dialect="duckdb").lower()
            raise ConfigError(
                f"table '{table}': its retention calls {called}, so chance says what it deletes: {shown}"
            )
    if tree.find(exp.Column) is None:
        raise ConfigError(
            f"table '{table}': its retention names no column, so it means every row or none: {shown}"
        )
    found = simplify(tree.copy())
    if isinstance(found, exp.Boolean):
        rows = "every row" if found.this else "no row"
        raise ConfigError(f"table '{table}': its retention deletes {rows}, whatever the columns hold: {shown}")


def with_quoted(sql: str, names: Collection[str]) -> str:
    """The statement with each bare word that is one of these names of columns in quotes.

    >>> with_quoted("delete from t where at < now()", ["at"])
    'delete from t where "at" < now()'
    """
    text, tokens = tokens_of(sql)
    small = {name.lower(): name for name in names}
    for token in reversed(tokens):
        bare = text[token.start : token.end + 1]
        if bare.lower() in small:
            text = f"{text[: token.start]}{quoted(small[bare.lower()])}{text[token.end + 1 :]}"
    return text
