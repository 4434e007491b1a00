"""Rows have their place in the memory of the node: those that come in, and those that one statement brings together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ballista_py.coordinator.writes.kept_rows import REPEATABLE_BYTES
from ballista_py.engines.apart.shares import MIN_SHARE_BYTES, PROCESS_BYTES
from ballista_py.errors import MergeTooLarge
from ballista_py.memory_budget import MemoryBudget, Reservation
from ballista_py.work import current_client

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
