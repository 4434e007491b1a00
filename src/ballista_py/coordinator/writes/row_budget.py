"""How many bytes of rows one statement may bring together: all that it reads counts, whatever stream it comes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ballista_py.errors import MergeTooLarge


class RowBudget:
    """Counts the rows that pass. Used by one statement; its streams may be read in turn.

    >>> budget = RowBudget(100)
    >>> batch = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    >>> sum(found.num_rows for found in budget.counted([batch]))
    10
    >>> list(budget.counted([batch]))
    Traceback (most recent call last):
    ballista_py.errors.MergeTooLarge: the statement reads more than 100 bytes: narrow it, or raise max_merge_bytes
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, lazily. Raises `MergeTooLarge` when those of all streams together exceed the bound."""
        for batch in batches:
            self._bytes += batch.nbytes
            if self._bytes > self._max_bytes:
                raise MergeTooLarge(
                    f"the statement reads more than {self._max_bytes} bytes: narrow it, or raise max_merge_bytes"
                )
            yield batch
