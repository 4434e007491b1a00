"""A statement that changes rows, run as a whole by DuckDB over rows that were brought together.

The statement runs on a database of its own that holds the table, the tables it reads and nothing else, without
access to files and network. What it changed is found by comparing the rows before and after, so every statement
that DuckDB knows means here what it means there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from attrs import frozen

from ballista_py.engines.duckdb_errors import translate
from ballista_py.engines.duckdb_library import duckdb
from ballista_py.engines.duckdb_types import quoted

BATCH_ROWS = 65_536
_BEFORE = "__before"
_LOCKDOWN = """
    set global enable_external_access = false;
    set global autoinstall_known_extensions = false;
    set global autoload_known_extensions = false;
    set global python_enable_replacements = false;
    set global TimeZone = 'UTC';
    set global lock_configuration = true;
"""


@frozen
class Changed:
    """What a statement did: how many rows it `affected`, which rows went, which came.

    An updated row went as it was and came as it is. Rows that went are told by their places in the stream of rows.
    """

    affected: int
    gone: pa.Int64Array
    come: pa.Table
    _connection: duckdb.DuckDBPyConnection

    def kept(self, spans: Sequence[tuple[int, int]]) -> pa.RecordBatchReader:
        """The rows that were at these places (from, to) of the stream and did not go."""
        columns = {"low": pa.array([low for low, _ in spans], pa.int64()), "high": [high for _, high in spans]}
        self._connection.register("__spans", pa.table(columns))
        self._connection.register("__gone", pa.table({"r": self.gone}))
        return self._connection.sql(
            f"select b.* exclude (r) from {_BEFORE} b join __spans on r >= low and r < high anti join __gone using (r)"
        ).to_arrow_reader(BATCH_ROWS)


@contextmanager
def run_change(
    sql: str,
    table: str,
    rows: pa.RecordBatchReader,
    others: Mapping[str, pa.RecordBatchReader | pa.Table],
    *,
    memory_limit: str | None = None,
) -> Iterator[Changed]:
    """Run `sql`, which changes `table` (these `rows`) and may read `others`; what it did, until the block ends.

    Raises `SqlError` for a statement that fails, `MergeTooLarge` when memory and spill space are full, and what the
    readers raise.
    """
    with tempfile.TemporaryDirectory(prefix="ballista-change-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {"temp_directory": spill}
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        connection = duckdb.connect(":memory:", config=config)
        sources = {name: _Source(relation) for name, relation in ((table, rows), *others.items())}
        try:
            connection.execute(_LOCKDOWN)
            try:
                for name, source in sources.items():
                    _fill(connection, name, source.reader())
                name = quoted(table)
                connection.execute(f"create table {_BEFORE} as select rowid as r, * from {name}")
                done = connection.execute(sql).fetchall()
                gone = connection.sql(
                    f"select r from (from {_BEFORE} except select rowid, * from {name}) order by r"
                )
                come = connection.sql(f"select rowid as r, * from {name} except from {_BEFORE}")
                changed = Changed(
                    int(done[0][0]) if done else 0,
                    gone.to_arrow_table()["r"].combine_chunks(),
                    come.to_arrow_table().drop_columns(["r"]),
                    connection,
                )
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                failed = next((source.error for source in sources.values() if source.error is not None), None)
                raise failed or translate(error, sql) from None
            yield changed
        finally:
            connection.close()


class _Source:
    """A stream that remembers how it failed: DuckDB keeps only the text of an error in a stream."""

    def __init__(self, rows: pa.RecordBatchReader | pa.Table) -> None:
        self.error: BaseException | None = None
        self._rows = rows.to_reader() if isinstance(rows, pa.Table) else rows

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._rows.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows
        except BaseException as error:
            self.error = error
            raise


def _fill(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatchReader) -> None:
    connection.register("__rows", rows)
    connection.execute(f"create table {quoted(name)} as from __rows")
    connection.unregister("__rows")
