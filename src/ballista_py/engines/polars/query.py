"""One query of a Polars engine under way: its frames, its batches, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from ballista_py.engines.apart.large import BATCH_ROWS
from ballista_py.engines.polars.types import to_batch, to_frame, why_not_held
from ballista_py.errors import BallistaError, ConfigError, SqlError, TransportError

Stream: TypeAlias = pa.RecordBatchReader | pa.Table


class PolarsQuery:
    """A `RunningQuery`. It runs while its batches are read, and can be read once; its frames are its snapshot."""

    def __init__(
        self,
        schema: pa.Schema,
        frames: Mapping[str, pl.LazyFrame],
        streams: Mapping[str, Stream],
        make: Callable[[Mapping[str, pl.LazyFrame]], pl.LazyFrame],
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self.schema = schema
        self._batch_rows = batch_rows
        self._frames: Mapping[str, pl.LazyFrame] | None = frames
        self._streams = streams
        self._make = make
        self._cancelled = False
        self._reason: BallistaError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of at most 65,536, none of them empty.

        Raises `SqlError` for a statement that fails on its data, `TransportError` after `cancel`, and whatever a
        stream of the query raised.
        """
        frames, self._frames = self._frames, None
        if frames is None and not self._cancelled:
            raise ConfigError("the batches of a query can be read once")
        return self._run(frames)

    def cancel(self, reason: BallistaError | None = None) -> None:
        """Make the query end with `TransportError`, or the `reason`, before its next batch.

        From any thread, more than once.
        """
        self._reason = self._reason or reason
        self._cancelled = True

    def _run(self, frames: Mapping[str, pl.LazyFrame] | None) -> Iterator[pa.RecordBatch]:
        self._check_not_cancelled()
        assert frames is not None
        read = {name: self._read(stream).lazy() for name, stream in self._streams.items()}
        query = self._make({**frames, **read})
        chunks = query.collect_batches(
            chunk_size=self._batch_rows, maintain_order=True, lazy=True, engine="streaming"
        )
        try:
            for chunk in chunks:
                for part in chunk.iter_slices(self._batch_rows):
                    self._check_not_cancelled()
                    if part.height:
                        yield to_batch(part, self.schema)
            self._check_not_cancelled()
        except BallistaError as error:
            raise _first_line(error) from None
        except (pl.exceptions.PolarsError, pa.ArrowException) as error:
            raise SqlError(f"the statement fails on its data: {str(error).splitlines()[0]}") from None

    def _read(self, stream: Stream) -> pl.DataFrame:
        """The rows of a stream, all of them: Polars asks for them from threads of its own, a stream has one."""
        parts = []
        for batch in stream.to_batches() if isinstance(stream, pa.Table) else stream:
            self._check_not_cancelled()
            parts.append(to_frame(pa.Table.from_batches([batch])))
        return pl.concat(parts) if parts else to_frame(stream.schema.empty_table())

    def _check_not_cancelled(self) -> None:
        if self._cancelled:
            raise self._reason or TransportError("The query was cancelled")


def require_held(name: str, schema: pa.Schema) -> None:
    """Raises `SqlError` for a relation with a column that this engine does not hold."""
    reason = why_not_held(schema)
    if reason is not None:
        raise SqlError(f"relation '{name}' cannot be read by the polars engine: {reason}")


def _first_line(error: BallistaError) -> BallistaError:
    """Polars appends the expression to the message of an error that was raised inside of it."""
    return type(error)(str(error).split("\n")[0], **error.details)
