"""Answers that are larger than a message or two have their place in the memory of the node, or wait for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ballista_py.memory_budget import MemoryBudget, Reservation

SMALL_BYTES = 64 << 10
ANSWER_BYTES = 32 << 20  # of what is read ahead of it, on its way through the node and out of it
COPIES = 8  # of a batch, at most, in legs that are read ahead, in messages, in gRPC


def paced(batches: Iterable[pa.RecordBatch], budget: MemoryBudget | None, client: str) -> Iterator[pa.RecordBatch]:
    """The batches, lazily; from the first large one on they come as far as the client's answers have room.

    So a small answer waits for nobody. Raises as `MemoryBudget.begin`.
    """
    held: Reservation | None = None
    try:
        for batch in batches:
            if budget is not None:
                size = batch.nbytes
                if held is not None:
                    held.grow(COPIES * size)
                elif size > SMALL_BYTES:
                    held = budget.begin(max(ANSWER_BYTES, COPIES * size), client)
            yield batch
            del batch  # its memory takes the next one
    finally:
        if held is not None:
            held.end()
