"""The columns that a data file gives, as exactly those that a table has."""

from __future__ import annotations

import pyarrow as pa

from ballista_py.errors import SchemaMismatch


def require_columns(held: pa.Schema, schema: pa.Schema, name: str) -> None:
    """Raises `SchemaMismatch` unless the file `name`, with the columns `held`, has each of `schema` once."""
    for field in schema:
        if held.names.count(field.name) != 1:
            raise SchemaMismatch(f"data file '{name}' has no single column '{field.name}'", file=name)


def as_schema(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The batch, whose columns are those of `schema`, with its types; `SchemaMismatch` for values that do not fit."""
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
