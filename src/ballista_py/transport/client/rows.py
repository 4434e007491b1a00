"""The rows that a client sends: whatever holds Arrow data, and files of the client's own machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, SqlError

BATCH_ROWS = 65_536
Rows: TypeAlias = Any
"""A pyarrow Table, RecordBatch or RecordBatchReader, or anything that shows itself as an Arrow stream (PyCapsule)."""


@frozen
class ArrowRows:
    """Rows of one schema; `batches` can be called again if they are `repeatable`."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    repeatable: bool = True


def arrow_rows(data: Rows) -> ArrowRows:
    """The rows of `data`. Raises `ConfigError` for something that holds no Arrow rows."""
    if isinstance(data, ArrowRows):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return ArrowRows(data.schema, lambda: iter(data), repeatable=False)
    if not isinstance(data, pa.Table):
        if not hasattr(data, "__arrow_c_stream__"):
            raise ConfigError(f"{type(data).__name__} holds no Arrow rows: give a table, a batch or a dataframe")
        data = pa.table(data)
    table: pa.Table = data
    return ArrowRows(table.schema, lambda: iter(table.to_batches(BATCH_ROWS)))


def file_rows(path: str, kind: str) -> ArrowRows:
    """The rows of a Parquet or CSV file (with a header line) of this machine. Raises `ConfigError` naming it."""
    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
            return ArrowRows(schema, lambda: _parquet(path))
        import pyarrow.csv as csv

        table = csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"file '{path}' cannot be read: {str(error).splitlines()[0]}") from None
    return arrow_rows(table)


def copy_of(statement: str, dialect: str | None) -> tuple[str, str, str] | None:
    """Table, path and format of a `COPY … FROM`; None for another statement. Raises `SqlError`."""
    if not statement.lstrip().lower().startswith("copy"):
        return None
    from ballista_py.sql.parse.changes import CopyFrom, read_change
    from ballista_py.sql.parse.kind import engine_sql

    change = read_change(engine_sql(statement, dialect))
    if not isinstance(change, CopyFrom):
        raise SqlError("COPY reads a file into a table: COPY table FROM 'file'")
    return change.table, change.path, change.format


def _parquet(path: str) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        batches: Iterable[pa.RecordBatch] = file.iter_batches(BATCH_ROWS)
        yield from batches
