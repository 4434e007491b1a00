"""Other columns for a native table with the rows that it has: added, dropped, renamed or widened in one transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.partitions.columns import initial_of, stored_name

_VALUES = "initial values "


def alter_native(connection: duckdb.DuckDBPyConnection, name: str, before: pa.Schema, after: pa.Schema) -> bool:
    """Make of a native table of the columns `before`, one more in front, one of the columns `after`.

    Columns are told by their stored names. False, and nothing done, if a column comes of which nobody says what its
    older rows have in it, or if columns come in another order. Raises what DuckDB raises; nothing was done then.
    """
    kept = {stored_name(column): column for column in before}
    new = [column for column in after if stored_name(column) not in kept]
    values = {column.name: initial_of(column) for column in new}
    order = [stored_name(column) for column in after]
    left = [stored for stored in kept if stored in order]
    if any(value is None for value in values.values()) or order != [*left, *(stored_name(c) for c in new)]:
        return False
    connection.register(
        _VALUES, pa.table({f"v{n}": values[column.name] for n, column in enumerate(new)} or {"v": [0]})
    )
    connection.execute("begin")
    try:
        types = dict(zip(after.names, _types(connection, after), strict=True))
        for change in _changes(before, after, types):
            connection.execute(f"alter table {name} {change}")
        sets = [
            f"{quoted(column.name)} = (select v{n} from {quoted(_VALUES)})"
            for n, column in enumerate(new)
            if (value := values[column.name]) is not None and not value.null_count
        ]
        if sets:
            connection.execute(f"update {name} set {', '.join(sets)}")
        made = [column[0] for column in connection.execute(f"from {name} limit 0").description][1:]
        if made != after.names:
            connection.execute("rollback")
            return False
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise
    finally:
        connection.unregister(_VALUES)
    return True


def _changes(before: pa.Schema, after: pa.Schema, types: dict[str, str]) -> Iterator[str]:
    """What is to be done, one after the other; a column gets a name when nothing else has it any more."""
    wanted = {stored_name(column): column for column in after}
    had = {stored_name(column): column for column in before}
    for stored, column in had.items():
        if stored not in wanted:
            yield f"drop column {quoted(column.name)}"
    moved = [stored for stored, column in had.items() if stored in wanted and wanted[stored].name != column.name]
    for number, stored in enumerate(moved):
        yield f"rename column {quoted(had[stored].name)} to {quoted(_between(number))}"
    for number, stored in enumerate(moved):
        yield f"rename column {quoted(_between(number))} to {quoted(wanted[stored].name)}"
    for stored, column in had.items():
        if stored in wanted and wanted[stored].type != column.type:
            name = wanted[stored].name
            yield f"alter column {quoted(name)} type {types[name]}"
    for stored, column in wanted.items():
        if stored not in had:
            yield f"add column {quoted(column.name)} {types[column.name]}"


def _between(number: int) -> str:
    return f"column {number} being renamed"


def _types(connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> list[str]:
    connection.register("columns to be", schema.empty_table())
    try:
        return [str(kind) for kind in connection.sql('from "columns to be"').types]
    finally:
        connection.unregister("columns to be")
