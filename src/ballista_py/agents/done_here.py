"""What is left of a query, done in this process as a node would do it: the same meaning, and no way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa


def done_here(sql: str, relation: str, rows: pa.RecordBatchReader | pa.Table) -> pa.Table:
    """What SQL of a scheduler gives over rows that it calls `relation`.

    As at a node times are those of UTC, and the SQL reaches no file, no network and nothing of this process. Raises
    `MissingExtra` where DuckDB is missing, `SqlError` for what fails at the rows, and what reading them raises.
    """
    return in_an_engine({relation: Given(rows)}, sql)


def in_an_engine(relations: Mapping[str, Given], sql: str) -> pa.Table:
    """What SQL gives over rows under these names. Raises as `done_here`."""
    from ballista_py.engines.duckdb.errors import translate
    from ballista_py.engines.duckdb.library import LOCKDOWN, duckdb

    with duckdb.connect(":memory:") as connection:
        try:
            connection.execute(LOCKDOWN)
            for name, given in relations.items():
                connection.register("the rows of a read job", given.reader)
                quoted = '"' + name.replace('"', '""') + '"'
                connection.execute(
                    f'create table {quoted} as from "the rows of a read job"'
                )  # it may be read twice
                connection.unregister("the rows of a read job")
            return connection.sql(sql).to_arrow_table()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for given in relations.values():
                if given.error is not None:
                    raise given.error from None
            raise translate(error, sql) from None


class Given:
    """Rows on their way into the engine; an error of theirs is kept, because the engine makes a text of it."""

    def __init__(self, rows: pa.RecordBatchReader | pa.Table) -> None:
        self.error: BaseException | None = None
        batches = rows.to_batches() if isinstance(rows, pa.Table) else rows

        def noted() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except BaseException as error:
                self.error = error
                raise

        self.reader = pa.RecordBatchReader.from_batches(rows.schema, noted())
