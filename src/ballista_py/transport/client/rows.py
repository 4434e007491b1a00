"""The rows that a client sends: whatever holds Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError

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
