"""Vortex data files: rows to bytes, files to batches of exactly the table's schema, values to statistics.

The extra `vortex` brings the library. A Vortex file knows no checksum of its own, so a damaged one may be read as
other rows: whoever reads one from a store compares it with its manifest first.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ballista_py.errors import DocumentUnreadable, MissingExtra, SchemaMismatch
from ballista_py.storage.formats.columns import as_schema, columns_to_read
from ballista_py.storage.formats.statistics import ColumnStatistics, table_statistics

try:
    import vortex as vx
except ImportError:
    raise MissingExtra.of("vortex-data", "vortex") from None

BATCH_ROWS = 65_536


def encode(table: pa.Table) -> tuple[bytes, dict[str, ColumnStatistics]]:
    """The rows as one Vortex file, and the statistics of their columns.

    Raises `SchemaMismatch` for a type that Vortex does not know; `why_not_held` tells before.
    """
    descriptor, path = tempfile.mkstemp(prefix="ballista-", suffix=".vortex")
    os.close(descriptor)
    try:
        vx.io.write(table, path)
        with open(path, "rb") as file:
            return file.read(), table_statistics(table)
    except (TypeError, RuntimeError, ValueError):
        raise SchemaMismatch(f"Vortex cannot hold {why_not_held(table.schema) or 'these rows'}") from None
    finally:
        os.unlink(path)


def read_batches(source: str | pa.Buffer, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, batch by batch, with the columns of `schema` in its order; others are left out.

    `name` is what errors call the file. Raises `DocumentUnreadable` when it is missing, damaged or no Vortex file,
    and `SchemaMismatch` when a column is missing or its values do not fit the type.
    """
    file = _open(source, name)
    columns = columns_to_read(file.dtype.to_arrow_schema(), schema, name)
    if not columns:
        return
    try:
        for batch in file.to_arrow(columns, batch_size=BATCH_ROWS):
            yield from as_schema(batch.select(columns), schema, name)
    except (RuntimeError, ValueError, OSError):
        raise _unreadable(name) from None


def footer(source: str | pa.Buffer, name: str) -> tuple[int, dict[str, ColumnStatistics]]:
    """Rows of a file and statistics of its plain columns. All of it is read. Raises `DocumentUnreadable`."""
    file = _open(source, name)
    try:
        rows = file.to_arrow().read_all()
    except (RuntimeError, ValueError, OSError):
        raise _unreadable(name) from None
    return rows.num_rows, table_statistics(rows)


def why_not_held(schema: pa.Schema) -> str | None:
    """The first column that does not come back from Vortex as it went in, in words, or None.

    >>> why_not_held(pa.schema([("n", pa.int64()), ("took", pa.duration("us"))]))
    "column 'took' of type duration[us]"
    """
    if _is_held(schema):
        return None
    return next((f"column '{field.name}' of type {field.type}" for field in schema if not _is_held([field])), None)


def _is_held(columns: Iterable[pa.Field]) -> bool:
    schema = pa.schema([pa.field(column.name, column.type) for column in columns])
    nothing = pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)
    descriptor, path = tempfile.mkstemp(prefix="ballista-", suffix=".vortex")
    os.close(descriptor)
    try:
        vx.io.write(nothing, path)
        return bool(pa.Table.from_batches(read_batches(path, schema, "nothing"), schema).equals(nothing))
    except (TypeError, RuntimeError, ValueError, DocumentUnreadable, SchemaMismatch):
        return False
    finally:
        os.unlink(path)


def _open(source: str | pa.Buffer, name: str) -> Any:
    try:
        return vx.open(source) if isinstance(source, str) else vx.open_readable(pa.BufferReader(source))
    except (RuntimeError, ValueError, OSError):
        raise _unreadable(name) from None


def _unreadable(name: str) -> DocumentUnreadable:
    return DocumentUnreadable(f"data file '{name}' is missing, damaged or no Vortex file", file=name)
