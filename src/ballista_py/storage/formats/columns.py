"""The columns that a data file gives, as exactly those that a table has."""

from __future__ import annotations

import pyarrow as pa

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.columns import from_files, initial_of, stored_name


def columns_to_read(held: pa.Schema, schema: pa.Schema, name: str) -> list[str]:
    """Which columns of the file `name`, with the columns `held`, are to be read for those of `schema`.

    At least one, so that the rows can be counted. Raises `SchemaMismatch` unless the file has each column once, or
    was written before the column was added.
    """
    found = []
    for field in schema:
        stored = stored_name(field)
        count = held.names.count(stored)
        if count > 1 or (count == 0 and initial_of(field) is None):
            raise SchemaMismatch(f"data file '{name}' has no single column '{field.name}'", file=name)
        found += [stored] * count
    return found or held.names[:1]


def as_schema(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The batch, with the columns that were to be read, as rows of `schema`; `SchemaMismatch` for values that do not
    fit."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    try:
        return pa.RecordBatch.from_arrays(from_files(columns, batch.num_rows, schema), schema=schema)
    except pa.ArrowException:
        field = next(field for field in schema if _misfits(columns.get(stored_name(field)), field))
        raise SchemaMismatch(
            f"column '{field.name}' of data file '{name}' is {columns[stored_name(field)].type} and does not fit "
            f"{field.type}",
            file=name,
        ) from None


def _misfits(column: pa.Array | None, field: pa.Field) -> bool:
    try:
        return column is not None and column.type != field.type and column.cast(field.type) is None
    except pa.ArrowException:
        return True
