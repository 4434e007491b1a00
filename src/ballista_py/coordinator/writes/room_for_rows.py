"""Rows that come in have their place in the memory of the node, or wait for one, from the first large batch on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ballista_py.coordinator.writes.kept_rows import REPEATABLE_BYTES
from ballista_py.engines.apart.shares import MIN_SHARE_BYTES, PROCESS_BYTES
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
