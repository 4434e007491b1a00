"""DuckDB's names and types: identifiers quoted, the Arrow schema of a relation found without running it."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import SqlError

_MAX_REMEMBERED_TYPES = 4_096
_NUL = "\0"


class ArrowTypes:
    """Knows which Arrow type DuckDB gives for each of its own; learns a type by asking once. Safe to share.

    Binding a statement and looking its types up takes a third of the time that opening a result for its schema
    takes, and it touches no stream that the statement reads.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._known: dict[str, pa.Field] = {}

    def schema(self, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
        """The schema of the relation's batches, duplicate column names kept.

        Raises `SqlError` for a map whose keys have no type, as `map {}` has: Arrow ends the process that casts one;
        and for a name with the sign U+0000, at which Arrow ends it.
        """
        if any(_NUL in name for name in (*relation.columns, *map(str, relation.types))):
            raise SqlError(
                "a column or field of the statement has the sign U+0000 in its name, at which names end: call it "
                "otherwise, with AS"
            )
        pairs = zip(map(str, relation.types), relation.columns, strict=True)
        return pa.schema(
            [(self._known.get(kind) or self._learn(kind, name)).with_name(name) for kind, name in pairs]
        )

    def _learn(self, name: str, column: str) -> pa.Field:
        with self._connection.cursor() as cursor:
            try:
                found = cursor.sql(f"select cast(null as {name})").to_arrow_reader(1).schema.field(0)
            except duckdb.NotImplementedException:
                raise _held_by_nobody(name, column) from None
        if _is_opaque(found.type):
            raise _held_by_nobody(name, column)
        if _has_keys_without_type(found.type):
            raise SqlError(
                "a column of the answer holds a map whose keys have no type, such as map {}: give it one, for example "
                "map {}::map(varchar, varchar)"
            )
        if len(self._known) >= _MAX_REMEMBERED_TYPES:
            self._known.clear()
        self._known[name] = found
        return found


class ColumnLists:
    """Knows how a schema is written in CREATE TABLE; learns one by making a table of it once. Safe to share.

    Making an empty table from such a text takes a quarter of the time that making it from Arrow takes.
    """

    def __init__(self) -> None:
        self._known: dict[pa.Schema, str] = {}

    def make(self, cursor: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema) -> None:
        """Make an empty temporary table on `cursor`. Raises what DuckDB raises."""
        known = self._known.get(schema)
        if known is not None:
            with suppress(duckdb.Error):  # a type whose name is none in SQL
                cursor.execute(f"create temp table {quoted(name)} ({known})")
                return
        cursor.register("no rows", schema.empty_table())
        cursor.execute(f'create temp table {quoted(name)} as select * from "no rows"')
        cursor.unregister("no rows")
        made = cursor.sql(f"from {quoted(name)}")
        if len(self._known) >= _MAX_REMEMBERED_TYPES:
            self._known.clear()
        pairs = zip(made.columns, made.types, strict=True)
        self._known[schema] = ", ".join(f"{quoted(column)} {kind}" for column, kind in pairs)


def _held_by_nobody(name: str, column: str) -> SqlError:
    return SqlError(
        f"column '{column}' would be {name}, which no answer and no table can hold: cast it in the query, "
        f"with CAST(… AS VARCHAR)"
    )


def _is_opaque(kind: pa.DataType) -> bool:
    """Whether DuckDB gives bytes that only DuckDB can read, as it does for a BIGNUM."""
    return isinstance(kind, pa.OpaqueType) or any(_is_opaque(kind.field(n).type) for n in range(kind.num_fields))


def _has_keys_without_type(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and pa.types.is_null(kind.key_type):
        return True
    return any(_has_keys_without_type(kind.field(n).type) for n in range(kind.num_fields))


def quoted(name: str) -> str:
    """The name as a SQL identifier.

    >>> quoted("Mixed Case")
    '"Mixed Case"'
    """
    return '"' + name.replace('"', '""') + '"'
