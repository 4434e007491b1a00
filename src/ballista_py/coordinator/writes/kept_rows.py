"""Rows of a stream that are kept for another try while they are few, and their place in the memory of the node.

Rows have their place in the memory of the node: those that come in, and those that one statement brings together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ballista_py.engines.apart.shares import MIN_SHARE_BYTES, PROCESS_BYTES
from ballista_py.errors import MergeTooLarge, TryLater
from ballista_py.memory_budget import MemoryBudget, Reservation
from ballista_py.work import current_client

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


SMALL_BYTES = 64 << 10
ON_THE_WAY_BYTES = 32 << 20  # of what is split, sent on and read ahead
WAIT_MS = 120_000.0  # as long as a stream of rows may say nothing
COPIES = 4  # of a batch: as it came, split, as messages, in gRPC
# What is merged in a process of the engine is given the room for that at once: who holds a part waits for nothing.
MERGED_BYTES = PROCESS_BYTES + MIN_SHARE_BYTES


@contextmanager
def room_for_rows(
    rows: Iterable[pa.RecordBatch],
    budget: MemoryBudget | None,
    merged: bool = False,
    wait_ms: float = WAIT_MS,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows, lazily; the place of many is held until the block ends, because they are kept to be sent again.

    Rows that are `merged` need room for that, too. Iterating raises as `MemoryBudget.begin`.
    """
    held: list[Reservation] = []
    client = current_client()
    least = max(REPEATABLE_BYTES + ON_THE_WAY_BYTES, MERGED_BYTES if merged else 0)

    def passed() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            size = REPEATABLE_BYTES + COPIES * batch.nbytes
            if budget is not None and held:
                held[0].grow(size)
            elif budget is not None and batch.nbytes > SMALL_BYTES:
                most = budget.ledger.max_bytes // 2  # the other half may be messages, of which this has one
                held.append(budget.begin(min(max(least, size), most), client, wait_ms=wait_ms))
            yield batch
            del batch  # its memory takes the next one

    try:
        yield passed()
    finally:
        for reservation in held:
            reservation.end()


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
