"""What rows must be before a table takes them: its columns, no forbidden nulls, its CHECK conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from attrs import define

from ballista_py.engines.engine import Engine
from ballista_py.errors import SchemaMismatch, SqlError
from ballista_py.planning.conform import check_columns, conform
from ballista_py.planning.sql.changes import Insert, Local
from ballista_py.planning.sql.local_changes import local_rewrite
from ballista_py.planning.table import TableSpec


@define
class RowChecks:
    """Checks rows with the engine of a node. Thread-safe."""

    engine: Engine

    def batches(self, table: TableSpec, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in exactly the table's schema, lazily. Raises `SchemaMismatch` naming the first offending row."""
        first_row = 0
        for batch in rows:
            if not first_row:
                check_columns(table, batch.schema)
            fitting = conform(table, batch, first_row)
            self._check(table, fitting, first_row)
            first_row += batch.num_rows
            yield fitting

    def _check(self, table: TableSpec, batch: pa.RecordBatch, first_row: int) -> None:
        for check in table.checks:
            rows = pa.Table.from_batches([batch]).append_column(
                "__row", pa.array(range(batch.num_rows), pa.int64())
            )
            sql = f'select min(__row) as row from "{table.name}" where not ({check})'
            for found in self.engine.query(sql, streams={table.name: rows}).batches():
                row = found.column(0)[0].as_py()
                if row is not None:
                    values = batch.slice(row, 1).to_pylist()[0]
                    shown = ", ".join(f"{name} = {value}" for name, value in list(values.items())[:5])
                    raise SchemaMismatch(
                        f"row {first_row + row} ({shown}) violates CHECK ({check}) of table '{table.name}'"
                    )

    def for_columns(
        self, table: TableSpec, change: Insert, given: pa.Schema, rows: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of an INSERT, cast to the columns that they are meant for; the other columns are null."""
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        places = _places(table, change, given)
        shown = ", ".join(
            f"cast({f'c{places[name]}' if name in places else 'null'} as {types[name]}) as {_quoted(name)}"
            for name in table.schema.names
        )
        plain = pa.schema([field.with_name(f"c{n}") for n, field in enumerate(given)])
        reader = pa.RecordBatchReader.from_batches(
            plain, (pa.RecordBatch.from_arrays(batch.columns, schema=plain) for batch in rows)
        )
        running = self.engine.query(f"select {shown} from rows", streams={"rows": reader})
        yield from running.batches()

    def bind(self, change: Local, table: TableSpec) -> None:
        """Raise `SqlError` unless the statement means something over the table."""
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        rewrite = local_rewrite(change, table, types)
        for sql in (rewrite.count, rewrite.rows):
            if sql is not None:
                self.engine.describe(sql, {table.name: table.schema})

    def schema(self, columns: Sequence[tuple[str, str, bool]]) -> pa.Schema:
        """The Arrow schema of columns declared in SQL. Raises `SqlError` for an unknown type."""
        fields = []
        for name, kind, nullable in columns:
            found = self.engine.describe(f"select cast(null as {kind}) as c", {}).field(0)
            fields.append(pa.field(name, found.type, nullable))
        return pa.schema(fields)

    def require_valid(self, table: str, schema: pa.Schema, checks: Sequence[str]) -> None:
        """Raise `SqlError` unless every CHECK is a condition over the columns."""
        for check in checks:
            found = self.engine.describe(f'select ({check}) as ok from "{table}"', {table: schema})
            if not pa.types.is_boolean(found.field(0).type):
                raise SqlError(f"CHECK ({check}) is no condition")


def _places(table: TableSpec, change: Insert, given: pa.Schema) -> dict[str, int]:
    """By column of the table, which column of the query it takes."""
    names = {name.lower(): name for name in table.schema.names}
    wanted = [name.lower() for name in (given.names if change.by_name else change.columns or table.schema.names)]
    for name in wanted:
        if name not in names or wanted.count(name) > 1:
            state = "is named twice" if name in names else f"is not one of table '{table.name}'"
            raise SqlError(f"column '{name}' {state}")
    if len(wanted) != len(given):
        raise SqlError(f"INSERT has {len(given)} value(s) for {len(wanted)} column(s) of table '{table.name}'")
    return {names[name]: place for place, name in enumerate(wanted)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
