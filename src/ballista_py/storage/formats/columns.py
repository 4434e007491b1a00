"""The columns that a data file gives, as exactly those that a table has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pyarrow as pa

from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.columns import from_files, in_fills, initial_of, stored_name


def columns_to_read(held: pa.Schema, schema: pa.Schema, name: str) -> list[str]:
    """Which columns of the file `name`, with the columns `held`, are to be read for those of `schema`.

    At least one, so that the rows can be counted. Raises `SchemaMismatch` unless the file has each column once, or
    was written before the column was added.
    """
    found = []
    names = held.names
    times = Counter(names)
    for field in schema:
        stored = stored_name(field)
        count = times[stored]
        if count > 1 or (count == 0 and initial_of(field) is None):
            raise SchemaMismatch(f"data file '{name}' has no single column '{field.name}'", file=name)
        found += [stored] * count
    return found or names[:1]


def as_schema(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    """The batch, with the columns that were to be read, as rows of `schema`, in parts if it lacks columns that are
    large; `SchemaMismatch` for values that do not fit."""
    for part in in_fills(batch, batch.schema.names, schema):
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        try:
            made = pa.RecordBatch.from_arrays(from_files(columns, part.num_rows, schema), schema=schema)
        except pa.ArrowException as error:
            raise _mismatch(columns, schema, name, error) from None
        yield made


def _mismatch(
    columns: Mapping[str, pa.Array], schema: pa.Schema, name: str, error: pa.ArrowException
) -> Exception:
    """The error of values that do not fit; what has another reason stays as it is."""
    field = next((field for field in schema if _misfits(columns.get(stored_name(field)), field)), None)
    if field is None:  # it is not for a type of the file
        return error  # type: ignore[no-any-return]
    return SchemaMismatch(
        f"column '{field.name}' of data file '{name}' is {columns[stored_name(field)].type} and does not fit "
        f"{field.type}",
        file=name,
    )


def _misfits(column: pa.Array | None, field: pa.Field) -> bool:
    try:
        return column is not None and column.type != field.type and column.cast(field.type) is None
    except pa.ArrowException:
        return True
