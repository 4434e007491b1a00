"""A statement that changes rows, run as a whole by DuckDB over rows that were brought together.

The statement runs on a database of its own that holds the table, the tables it reads and nothing else, without
access to files and network; the guard of queries has judged all that it computes and reads. What it changed is
found by comparing the rows before and after, so every statement that DuckDB knows means here what it means there.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from attrs import frozen

from ballista_py.engines.duckdb.errors import translate
from ballista_py.engines.duckdb.guard import Guard, GuardedSelect
from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb
from ballista_py.engines.duckdb.types import AnswerCheck, quoted, whole_batch
from ballista_py.errors import SqlError
from ballista_py.partitions.columns import default_of
from ballista_py.sql.own_words import without_position
from ballista_py.sql.parse.quotes import require_settled

BATCH_ROWS = 65_536
# The names have a blank: no table has, so no statement and no table means them.
_BEFORE = '"rows before "'
_SPANS, _GONE, _ROWS = '"spans of rows"', '"rows gone"', '"rows to come"'
# What RETURNING gives is small, and names are told by no other way.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning, __name__.replace(".", r"\."))


@frozen
class Changed:
    """What a statement did: how many rows it `affected`, which rows went, which came.

    An updated row went as it was and came as it is. Rows that went are told by their places in the stream of rows.
    `returned` are the rows of its RETURNING clause, if it has one.
    """

    affected: int
    gone: pa.Int64Array
    come: pa.Table
    returned: pa.Table | None
    _connection: duckdb.DuckDBPyConnection
    _place: str  # the column of `_BEFORE` that tells the place of a row

    def kept(self, spans: Sequence[tuple[int, int]]) -> pa.RecordBatchReader:
        """The rows that were at these places (from, to) of the stream and did not go."""
        columns = {"low": pa.array([low for low, _ in spans], pa.int64()), "high": [high for _, high in spans]}
        self._connection.register(_SPANS.strip('"'), pa.table(columns))
        self._connection.register(_GONE.strip('"'), pa.table({"place": self.gone}))
        place = quoted(self._place)
        return self._connection.sql(
            f"select b.* exclude ({place}) from {_BEFORE} b "
            f"join {_SPANS} s on b.{place} >= s.low and b.{place} < s.high "
            f"anti join {_GONE} g on b.{place} = g.place"
        ).to_arrow_reader(BATCH_ROWS)


@contextmanager
def run_change(
    sql: str,
    table: str,
    rows: pa.RecordBatchReader,
    others: Mapping[str, pa.RecordBatchReader | pa.Table],
    *,
    memory_limit: str | None = None,
    key: Sequence[str] = (),
    returning: bool = False,
) -> Iterator[Changed]:
    """Run `sql`, which changes `table` (these `rows`) and may read `others`; what it did, until the block ends.

    The table has the primary `key`, if one is named. `returning` says that the statement gives rows.

    Raises `SqlError` for a statement that fails, `MergeTooLarge` when memory and spill space are full, and what the
    readers raise.
    """
    require_settled(sql)
    if any(name.lower() == "rowid" for name in rows.schema.names):
        raise SqlError(
            f"table '{table}' has a column 'rowid', which hides the places of its rows: call it otherwise"
        )
    with tempfile.TemporaryDirectory(prefix="ballista-change-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {"temp_directory": spill}
        if memory_limit is not None:
            config["memory_limit"] = memory_limit
        connection = duckdb.connect(":memory:", config=config)
        sources = {name: _Source(relation) for name, relation in ((table, rows), *others.items())}
        try:
            connection.execute(LOCKDOWN)
            connection.execute("set global lock_configuration = true")
            check_change(Guard(connection), sql, sources)
            try:
                for name, source in sources.items():
                    _fill(connection, name, source.reader())
                _declare(connection, table, rows.schema, key)
                changed = _changed(connection, sql, table, rows.schema, returning)
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                failed = next((source.error for source in sources.values() if source.error is not None), None)
                raise failed or translate(error, sql) from None
            yield changed
        finally:
            connection.close()


def _declare(connection: duckdb.DuckDBPyConnection, table: str, schema: pa.Schema, key: Sequence[str]) -> None:
    """Give a table that is filled what its declaration says beside names and types."""
    for column in schema:
        if (default := default_of(column)) is not None:
            connection.execute(
                f"alter table {quoted(table)} alter {quoted(column.name)} set default ({default}\n)"
            )
    if key:
        connection.execute(f"alter table {quoted(table)} add primary key ({', '.join(map(quoted, key))})")


def _changed(
    connection: duckdb.DuckDBPyConnection, sql: str, table: str, schema: pa.Schema, returning: bool
) -> Changed:
    """Run the statement over the filled tables, and compare the rows of the table before and after."""
    from ballista_py.sql.parse.identifiers import free_name

    name, place = quoted(table), free_name("place", schema.names)
    connection.execute(f"create table {_BEFORE} as select rowid as {place}, * from {name}")
    done = connection.execute(sql)  # as a relation its columns would get other names (`v`, `v_1`)
    kinds = [str(column[1]) for column in done.description or ()]
    returned = done.to_arrow_table() if returning else None
    if returned is not None:
        _check_values(returned, kinds)
    affected = _count(done) if returned is None else returned.num_rows
    gone = connection.sql(
        f"select {place} from (from {_BEFORE} except select rowid, * from {name}) order by {place}"
    )
    come = connection.sql(f"select rowid as {place}, * from {name} except from {_BEFORE}")
    return Changed(
        affected,
        gone.to_arrow_table()[place].combine_chunks(),
        come.to_arrow_table().drop_columns([place]),
        returned,
        connection,
        place,
    )


def _check_values(rows: pa.Table, kinds: Sequence[str]) -> None:
    check = AnswerCheck(rows.schema, kinds)
    for batch in rows.to_batches():
        check.check(batch)


def _count(done: duckdb.DuckDBPyConnection) -> int:
    found = done.fetchall()
    return int(found[0][0]) if found else 0


def check_change(guard: Guard, sql: str, relations: Collection[str]) -> GuardedSelect:
    """All that a change computes and reads, as of one query over `relations` alone.

    Raises `SqlError` for what a query could not call, name or read.
    """
    # A parser, which an executor that only reads is spared.
    from ballista_py.sql.bind.change_probe import probe
    from ballista_py.sql.parse.parsing import SqlglotError

    try:
        query = probe(sql)
    except SqlglotError:
        raise SqlError("the statement cannot be checked, so it is not run") from None
    try:
        return guard.check(query, relations)
    except SqlError as error:  # its position is one of the query
        raise without_position(error) from None


class _Source:
    """A stream that remembers how it failed: DuckDB keeps only the text of an error in a stream."""

    def __init__(self, rows: pa.RecordBatchReader | pa.Table) -> None:
        self.error: BaseException | None = None
        self._rows = rows.to_reader() if isinstance(rows, pa.Table) else rows

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._rows.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from map(whole_batch, self._rows)
        except GeneratorExit:  # nobody reads on, which is no error of the rows
            raise
        except BaseException as error:
            self.error = error
            raise


def _fill(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatchReader) -> None:
    connection.register(_ROWS.strip('"'), rows)
    connection.execute(f"create table {quoted(name)} as from {_ROWS}")
    connection.unregister(_ROWS.strip('"'))
