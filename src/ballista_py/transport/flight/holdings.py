"""What clients have in the memory of a node: messages that came, of every call the one worked on, and answers.

Answers that are larger than a message or two have their place there, or wait for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ballista_py.errors import TryLater
from ballista_py.memory_budget import OF_THE_REST, MemoryBudget, Reservation
from ballista_py.runtime import Runtime

CLIENT_BYTES = 1 << 30
LARGE_BYTES = 1 << 20  # smaller messages are not worth a place in the memory of the node
SMALL_BYTES = 64 << 10
ANSWER_BYTES = 32 << 20  # of what is read ahead of it, on its way through the node and out of it
COPIES = 8  # of a batch, at most, in legs that are read ahead, in messages, in gRPC


class ClientBytes:
    """At most `max_bytes` of one client over all its calls; one message alone is always let in. For many threads.

    With the `budget` of the node all clients together have half of it, and one that has some gets more as long as it
    then has three times at most what is left. Large messages have their place there.
    """

    def __init__(
        self, runtime: Runtime, max_bytes: int = CLIENT_BYTES, budget: MemoryBudget | None = None
    ) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._all_bytes = None if budget is None else budget.ledger.max_bytes // 2
        self._lock = runtime.lock()
        self._held: Counter[str] = Counter()

    def exchange(self, client: str, before: int, after: int) -> None:
        """A call of `client` has let go of a message of `before` bytes, and has one of `after` bytes now.

        Raises `TryLater` when all its messages together, or those of all clients, are too much; then the call has none.
        """
        with self._lock:
            others, rest = self._held[client] - before, self._held.total() - before
            refusal = self._refusal(others, rest, after)
            self._held[client] = others + (0 if refusal else after)
            if not self._held[client]:
                del self._held[client]
        if refusal is not None:
            raise TryLater(refusal)

    @contextmanager
    def holding(self, client: str) -> Iterator[Callable[[int], None]]:
        """Around what `client` has here besides messages: gives what is told how many bytes it takes from now on.

        That raises as `exchange`, and then nothing counts.
        """
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            before, held = held, 0
            self.exchange(client, before, size)
            held = size

        try:
            yield hold
        finally:
            hold(0)

    def reserved(self, client: str, size: int) -> Reservation | None:
        """The place of a message that was let in, to be given back with it. It is there: nobody waits."""
        if self._budget is None or size < LARGE_BYTES:
            return None
        # Not under the name of the client: what is done with its messages does not wait for them.
        return self._budget.begin(size, f"messages of {client}", waits=False)

    def of(self, client: str) -> int:
        """The bytes that are counted of a client now."""
        return self._held[client]

    def _refusal(self, others: int, rest: int, after: int) -> str | None:
        """Why a message is one too many for a client that has `others` already, where all have `rest`."""
        if after == 0 or rest == 0:
            return None
        if others > 0 and others + after > self._max_bytes:
            return (
                f"the messages of this client take {(others + after) >> 20} MiB together, and may take "
                f"{self._max_bytes >> 20}: send fewer at once, or smaller ones"
            )
        if self._all_bytes is None or after < LARGE_BYTES:
            return None
        left = self._all_bytes - rest - after
        if left < 0 or (others > 0 and others + after > OF_THE_REST * left):
            return (
                f"the messages that this node is given now take {(rest + after) >> 20} MiB, and may take "
                f"{self._all_bytes >> 20}: send fewer at once, or smaller ones, or try again later"
            )
        return None


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
