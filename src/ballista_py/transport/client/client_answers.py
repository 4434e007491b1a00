"""Answers in the hands of a client: whole, or under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import (
    BallistaError,
    MissingExtra,
    OwnershipError,
    PartitionsUnassigned,
    SchedulerLost,
    TransportError,
    TryLater,
)
from ballista_py.transport.client.schedulers import lost
from ballista_py.transport.flight.client import FlightStream
from ballista_py.transport.flight.errors import is_link_failure

if TYPE_CHECKING:
    import pandas
    import polars


@frozen(kw_only=True)
class QueryResult:
    """The whole answer. `stats` says what it took: partitions, executors, bytes shipped, milliseconds.

    >>> QueryResult(table=pa.table({"a": [1, 2]}), stats={}).to_polars().height
    2
    """

    table: pa.Table
    stats: Mapping[str, Any]

    def to_polars(self) -> polars.DataFrame:
        """The answer as a polars dataframe, mostly without copying."""
        import polars

        found = polars.from_arrow(self.table)
        assert isinstance(found, polars.DataFrame)
        return found

    def to_pandas(self) -> pandas.DataFrame:
        """The answer as a pandas dataframe. Raises `MissingExtra` without pandas."""
        try:
            import pandas  # noqa: F401  # pyarrow's own error names no extra
        except ImportError as error:
            raise MissingExtra.of("pandas", "spark") from error
        return self.table.to_pandas()


class QueryStream:
    """An answer under way. Read `batches` once, in one thread; `cancel` what is not read to the end."""

    def __init__(self, stream: FlightStream, schema: pa.Schema) -> None:
        self.schema = schema
        self._stream = stream

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, lazily. Raises `SchedulerLost` when the scheduler died; then they were not all."""
        try:
            yield from self._stream.batches()
        except TransportError as error:
            if is_link_failure(error, self._stream.address):
                raise lost(self._stream.address) from error
            raise

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    @property
    def stats(self) -> Mapping[str, Any]:
        """What the statement took. Raises `TransportError` before the rows were read to the end."""
        return self._stream.trailer

    def cancel(self) -> None:
        """Give up the rest; the scheduler and its legs stop. Safe from any thread, also after the end."""
        self._stream.cancel()

    def __enter__(self) -> QueryStream:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.cancel()


def affected_rows(rows: int) -> QueryResult:
    """The answer to a change: how many rows it affected."""
    return QueryResult(table=pa.table({"affected_rows": pa.array([rows], pa.int64())}), stats={})


def passes_by(error: BallistaError) -> bool:
    """Whether an error says that nodes come, go or hand over: the same query may be answered a moment later."""
    if isinstance(error, OwnershipError | PartitionsUnassigned | SchedulerLost | TryLater):
        return True
    lost = error.__cause__ if isinstance(error.__cause__, TransportError) else error
    return type(lost) is TransportError and "peer" in lost.details
