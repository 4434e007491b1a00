"""DuckDB's names and types: identifiers quoted, the Arrow schema of a relation found without running it."""

from __future__ import annotations

import pyarrow as pa

from ballista_py.engines.duckdb_library import duckdb

_MAX_REMEMBERED_TYPES = 4_096


class ArrowTypes:
    """Knows which Arrow type DuckDB gives for each of its own; learns a type by asking once. Safe to share.

    Binding a statement and looking its types up takes a third of the time that opening a result for its schema
    takes, and it touches no stream that the statement reads.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._known: dict[str, pa.Field] = {}

    def schema(self, relation: duckdb.DuckDBPyRelation) -> pa.Schema:
        """The schema of the relation's batches, duplicate column names kept."""
        fields = [self._known.get(name) or self._learn(name) for name in map(str, relation.types)]
        return pa.schema([f.with_name(name) for f, name in zip(fields, relation.columns, strict=True)])

    def _learn(self, name: str) -> pa.Field:
        with self._connection.cursor() as cursor:
            found = cursor.sql(f"select cast(null as {name})").to_arrow_reader(1).schema.field(0)
        if len(self._known) >= _MAX_REMEMBERED_TYPES:
            self._known.clear()
        self._known[name] = found
        return found


def quoted(name: str) -> str:
    """The name as a SQL identifier.

    >>> quoted("Mixed Case")
    '"Mixed Case"'
    """
    return '"' + name.replace('"', '""') + '"'
