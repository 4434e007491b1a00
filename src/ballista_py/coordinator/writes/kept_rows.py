"""Rows of a stream that can be gone through again while they are few: what a statement is tried again with."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ballista_py.errors import TryLater

REPEATABLE_BYTES = 64 << 20


class KeptRows:
    """Goes through `rows`, keeping what it has seen up to `max_bytes`, so that it can be gone through again.

    Batches are handed on as they come. `repeatable` turns False when there were too many, or when the stream itself
    failed: what came of it is not all. Used by one thread, one iteration at a time.

    >>> rows = KeptRows(iter([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2]})]))
    >>> first = next(iter(rows))
    >>> [batch["a"][0].as_py() for batch in rows], rows.repeatable
    ([1, 2], True)
    """

    def __init__(self, rows: Iterator[pa.RecordBatch], max_bytes: int = REPEATABLE_BYTES) -> None:
        self._rows = rows
        self._room = max_bytes
        self._kept: list[pa.RecordBatch] = []
        self._error: BaseException | None = None
        self._begun = False

    @property
    def repeatable(self) -> bool:
        """Whether another iteration would give all rows."""
        return self._room >= 0 and self._error is None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises what the stream raises, then and ever after; `TryLater` when the rows were not kept."""
        if self._error is not None:
            raise self._error
        if self._begun and not self.repeatable:
            raise TryLater("the rows were too many to be kept: send the statement again with the same token")
        self._begun = True
        yield from list(self._kept)
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        try:
            batch = next(self._rows, None)
        except BaseException as error:
            self._error = error
            self._kept.clear()
            raise
        if batch is not None and self._room >= 0:
            self._room -= batch.nbytes
            self._kept.append(batch)
            if self._room < 0:
                self._kept.clear()
        return batch
