"""Rows held against the CHECK conditions of their table, by the engine of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ballista_py.engines.engine import Engine
from ballista_py.errors import SchemaMismatch, SqlError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.own_words import in_own_words


def require_checks(engine: Engine, table: TableSpec, batch: pa.RecordBatch, first_row: int) -> None:
    """Raise `SchemaMismatch` for a row that violates a CHECK; the batch is `first_row` rows into all of them."""
    if not table.checks:
        return
    from ballista_py.sql.parse.identifiers import free_name

    for check in table.checks:
        number = free_name("number", table.schema.names, check)
        numbers = pa.array(range(batch.num_rows), pa.int64())
        rows = pa.Table.from_batches([batch]).append_column(number, numbers)
        sql = f'select min({number}) as number from "{table.name}" where not ({check}\n)'
        running = engine.query(sql, streams={table.name: rows})
        for found in said_in_own_words(running.batches(), check):
            row = found.column(0)[0].as_py()
            if row is not None:
                shown = _shown(batch.slice(row, 1))
                raise SchemaMismatch(
                    f"row {first_row + row} ({shown}) violates CHECK ({check}) of table '{table.name}'"
                )


def said_in_own_words(batches: Iterable[pa.RecordBatch], wrote: str) -> Iterator[pa.RecordBatch]:
    """The batches; an error of the engine at them says nothing but what stands in `wrote`."""
    try:
        yield from batches
    except SqlError as error:
        raise in_own_words(error, wrote) from None


def _shown(row: pa.RecordBatch) -> str:
    """The first values of a row, for people."""
    try:
        return ", ".join(f"{name} = {value}" for name, value in list(row.to_pylist()[0].items())[:5])
    except (ValueError, OverflowError):  # dates that Python does not have
        return "with dates beyond the years 1 to 9999"
