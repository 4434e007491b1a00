"""The columns in which a leg or a statement is to answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ballista_py.transport.arrow.door import read_schema


def output_schema(command: Mapping[str, Any]) -> pa.Schema | None:
    """The columns in which a leg is to answer, if its command says so."""
    output = command.get("output")
    return None if output is None else read_schema(base64.b64decode(output))


def conformed(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows under exactly the names and types of `schema`."""
    for batch in batches:
        if batch.schema.types == schema.types:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        else:
            columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
