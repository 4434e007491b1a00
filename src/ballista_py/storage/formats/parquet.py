"""Parquet data files: rows to bytes, files to batches of exactly the table's schema, footers to statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ballista_py.errors import DocumentUnreadable
from ballista_py.storage.formats.columns import as_schema, columns_to_read
from ballista_py.storage.formats.statistics import ColumnStatistics, column_statistics

ROW_GROUP_ROWS = 122_880  # what DuckDB gathers in one row group of its own
BATCH_ROWS = ROW_GROUP_ROWS // 4  # decoded at a time: whole row groups take four times the memory and no less time
BATCH_BYTES = 2 << 20  # of them at most, about: nobody's limit of memory counts what is decoded ahead
_TEXT_BYTES = 24  # as one guesses
_COMPRESSION = "zstd"
_SAMPLE_ROWS = 4_096


def encode(table: pa.Table) -> tuple[bytes, dict[str, ColumnStatistics]]:
    """The rows as one Parquet file, and the statistics of their columns."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=_COMPRESSION,
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=_dictionary_columns(table),
        store_schema=True,
    )
    data = sink.getvalue()
    return bytes(data), footer(data, "")[1]


def _dictionary_columns(table: pa.Table) -> list[str] | bool:
    """The columns whose values repeat in a sample; trying a dictionary for others is half of what encoding costs."""
    if any(pa.types.is_nested(kind) for kind in table.schema.types) or table.num_rows < _SAMPLE_ROWS:
        return True
    sample = table.slice(table.num_rows // 2, _SAMPLE_ROWS)
    return [name for name, values in zip(sample.column_names, sample.columns, strict=True) if _repeats(values)]


def _repeats(values: pa.ChunkedArray) -> bool:
    try:
        return bool(2 * pc.count_distinct(values).as_py() <= len(values))
    except pa.ArrowNotImplementedError:  # a type that Arrow cannot count
        return True


def why_not_held(schema: pa.Schema) -> str | None:
    """The first column that Parquet cannot hold, in words, or None."""
    if _is_held(schema):
        return None
    return next((f"column '{field.name}' of type {field.type}" for field in schema if not _is_held([field])), None)


def _is_held(columns: Iterable[pa.Field]) -> bool:
    try:
        encode(pa.schema(columns).empty_table())
    except (pa.ArrowException, DocumentUnreadable):
        return False
    return True


def read_batches(source: str | pa.Buffer, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, batch by batch, with the columns of `schema` in its order; others are left out.

    `name` is what errors call the file. Raises `DocumentUnreadable` when it is missing, damaged or no Parquet, and
    `SchemaMismatch` when a column is missing or its values do not fit the type.
    """
    try:
        with _open(source) as file:
            columns = columns_to_read(file.schema_arrow, schema, name)
            for batch in file.iter_batches(_batch_rows(file, columns), columns=columns):
                yield from as_schema(batch.select(columns), schema, name)
    except pa.ArrowMemoryError:  # says nothing of the file
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # names of columns may be any bytes
        raise _unreadable(name) from error


def _batch_rows(file: pq.ParquetFile, columns: Iterable[str]) -> int:
    """How many rows of these columns are decoded at a time: by their types, or by what they take in the file if that is
    more."""
    schema, found = file.schema_arrow, file.metadata
    decoded = sum(_width(schema.field(name).type) for name in columns)
    groups = [found.row_group(n) for n in range(found.num_row_groups)]
    encoded = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, decoded, encoded)))


def _width(kind: pa.DataType) -> int:
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES


def footer(source: str | pa.Buffer, name: str) -> tuple[int, dict[str, ColumnStatistics]]:
    """Rows of a file and statistics of its plain columns, from the footer alone. Raises `DocumentUnreadable`."""
    try:
        with _open(source) as file:
            return file.metadata.num_rows, column_statistics(file.metadata, file.schema_arrow)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # names of columns may be any bytes
        raise _unreadable(name) from error


def _open(source: str | pa.Buffer) -> pq.ParquetFile:
    # Spark's INT96 timestamps as nanoseconds would end in the year 2262.
    return pq.ParquetFile(source, memory_map=isinstance(source, str), coerce_int96_timestamp_unit="us")


def _unreadable(name: str) -> DocumentUnreadable:
    return DocumentUnreadable(f"data file '{name}' is missing, damaged or no Parquet file", file=name)
