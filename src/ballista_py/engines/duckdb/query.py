"""One query under way: its snapshot, its streams, its batches, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from ballista_py.engines.apart.large import BATCH_ROWS
from ballista_py.engines.duckdb.errors import translate
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.types import AnswerCheck, ColumnLists, quoted, whole_batch, whole_table
from ballista_py.errors import BallistaError, ConfigError, TransportError
from ballista_py.work import current_client

ENDLESS_MS = 5_000.0


class StreamSource:
    """A stream under its name, remembering how it failed: DuckDB keeps only the text of an error in a stream.

    A stream can be read once. One that a statement may scan again is shown as a temporary table, which is filled
    when the statement starts and may spill.
    """

    def __init__(self, name: str, stream: pa.RecordBatchReader | pa.Table, *, scanned_once: bool) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.stopped = False
        self._stream = stream
        self._direct = scanned_once or isinstance(stream, pa.Table)

    def show(self, cursor: duckdb.DuckDBPyConnection, columns: ColumnLists) -> None:
        """Make the name a relation on `cursor`. Nothing of the stream is read."""
        if isinstance(self._stream, pa.Table):
            cursor.register(self.name, whole_table(self._stream))
        elif self._direct:
            cursor.register(self.name, self._reader())
        else:
            columns.make(cursor, self.name, self._stream.schema)

    def fill(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Read the stream, if it has to be read before the statement starts."""
        if not self._direct:
            cursor.register("rows to load", self._reader())
            cursor.execute(f'insert into {quoted(self.name)} select * from "rows to load"')
            cursor.unregister("rows to load")

    def _reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._stream.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._stream:
                if self.stopped:
                    raise TransportError("The query was cancelled")
                yield whole_batch(batch)
        except GeneratorExit:  # nobody reads on, which is no error of the stream
            raise
        except BaseException as error:
            self.error = error
            raise


def _nobody_asks(_error: BaseException) -> None:
    return


class DuckDBQuery:
    """A `RunningQuery` on a connection of its own. It runs while its batches are read, and can be read once.

    Its snapshot is released when the batches end, the reader of the batches is closed, or it is cancelled.
    """

    def __init__(
        self,
        sql: str,
        cursor: duckdb.DuckDBPyConnection,
        relation: duckdb.DuckDBPyRelation,
        schema: pa.Schema,
        sources: Sequence[StreamSource],
        prefix: str = "",
        failed: Callable[[BaseException], None] = _nobody_asks,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """`prefix` stands before `sql` in what was bound; `failed` is told how it failed."""
        self._batch_rows = batch_rows
        self.schema = schema
        self._values = AnswerCheck(schema, [str(kind) for kind in relation.types])
        self._prefix = prefix
        self._failed = failed
        self._cursor = cursor
        self._relation: duckdb.DuckDBPyRelation | None = relation
        self._sources = sources
        self._cancelled = False
        self._reason: BallistaError | None = None
        self.text = sql
        self.client = current_client()
        self._computes = False
        self._seen_going_on_ms: float | None = None

    def is_endless(self, now_ms: float) -> bool:
        """Whether it was seen to compute `ENDLESS_MS` ago and now, though it had been told to end."""
        if not (self._cancelled and self._computes):
            return False
        if self._seen_going_on_ms is None:
            self._seen_going_on_ms = now_ms
        return now_ms - self._seen_going_on_ms >= ENDLESS_MS

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of at most 65,536, none of them empty.

        Raises `SqlError` for a statement that fails on its data, `MergeTooLarge` when memory and spill space are
        full, `TransportError` after `cancel`, and whatever a stream of the query raised.
        """
        relation, self._relation = self._relation, None
        if relation is None and not self._cancelled:
            raise ConfigError("the batches of a query can be read once")
        return self._run(relation)

    def cancel(self, reason: BallistaError | None = None) -> None:
        """Make the query end soon, with `TransportError` or the `reason`.

        From any thread, more than once; fine after its end.
        """
        self._reason = self._reason or reason
        self._cancelled = True
        for source in self._sources:
            source.stopped = True
        with suppress(duckdb.Error):
            self._cursor.interrupt()

    def release(self) -> None:
        """End it where it is; for whoever reads its batches, when nobody will go on."""
        self.cancel()
        relation, self._relation = self._relation, None
        if relation is not None:
            del relation
            self._cursor.close()

    def _run(self, relation: duckdb.DuckDBPyRelation | None) -> Iterator[pa.RecordBatch]:
        self._computes = True
        try:
            self._check_not_cancelled()
            assert relation is not None
            for source in self._sources:
                source.fill(self._cursor)
            self._check_not_cancelled()
            with relation.to_arrow_reader(self._batch_rows) as reader:
                assert reader.schema.equals(self.schema), f"bound as {self.schema}, ran as {reader.schema}"
                for batch in reader:
                    self._check_not_cancelled()  # an interrupt in the instant before the start has no effect
                    if batch.num_rows:
                        self._values.check(batch)
                        self._computes = False  # whoever reads may take as long as he likes
                        yield batch
                        self._computes = True
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            self._failed(error)
            failed = next((source.error for source in self._sources if source.error is not None), None)
            if failed is not None and not self._cancelled:
                raise failed from None
            if self._cancelled and self._reason is not None:
                raise self._reason from None
            raise translate(error, self.text, prefix=self._prefix) from None
        finally:
            self._computes = False
            del relation
            self._cursor.close()

    def _check_not_cancelled(self) -> None:
        if self._cancelled:
            raise self._reason or TransportError("The query was cancelled")
