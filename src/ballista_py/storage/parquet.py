"""Parquet data files: rows to bytes, files to batches of exactly the table's schema, footers to statistics."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ballista_py.errors import DocumentUnreadable, SchemaMismatch
from ballista_py.storage.statistics import ColumnStatistics, column_statistics

ROW_GROUP_ROWS = 122_880  # what DuckDB gathers in one row group of its own
_COMPRESSION = "zstd"


def encode(table: pa.Table) -> bytes:
    """The rows as one Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=_COMPRESSION, row_group_size=ROW_GROUP_ROWS, store_schema=True)
    return bytes(sink.getvalue())


def read_batches(source: str | pa.Buffer, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, batch by batch, with the columns of `schema` in its order; others are left out.

    `name` is what errors call the file. Raises `DocumentUnreadable` when it is missing, damaged or no Parquet, and
    `SchemaMismatch` when a column is missing or its values do not fit the type.
    """
    try:
        with _open(source) as file:
            held = file.schema_arrow
            for field in schema:
                if held.names.count(field.name) != 1:
                    raise SchemaMismatch(f"data file '{name}' has no single column '{field.name}'", file=name)
            columns = list(schema.names)
            for batch in file.iter_batches(ROW_GROUP_ROWS, columns=columns):
                yield _as_schema(batch.select(columns), schema, name)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(name) from error


def footer(source: str | pa.Buffer, name: str) -> tuple[int, dict[str, ColumnStatistics]]:
    """Rows of a file and statistics of its plain columns, from the footer alone. Raises `DocumentUnreadable`."""
    try:
        with _open(source) as file:
            return file.metadata.num_rows, column_statistics(file.metadata, file.schema_arrow)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(name) from error


def _open(source: str | pa.Buffer) -> pq.ParquetFile:
    # Spark's INT96 timestamps as nanoseconds would end in the year 2262.
    return pq.ParquetFile(source, memory_map=isinstance(source, str), coerce_int96_timestamp_unit="us")


def _as_schema(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException:
                raise SchemaMismatch(
                    f"column '{field.name}' of data file '{name}' is {column.type} and does not fit {field.type}",
                    file=name,
                ) from None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unreadable(name: str) -> DocumentUnreadable:
    return DocumentUnreadable(f"data file '{name}' is missing, damaged or no Parquet file", file=name)
