"""Rows of a task on their way to executors that keep them: gathered, and put at one that takes all of them at once.

No exchange is open while the task waits for rows: it may be slow, and whoever takes rows does not wait for ever. And
what was gathered can be put at another executor where the first one goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.agents.agent import Agent, ReadSource
from ballista_py.errors import BallistaError, TransportError, TryLater, Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.errors import is_link_failure
from ballista_py.transport.table_write.messages import PACKAGE, known_of_write, pb
from ballista_py.transport.table_write.row_sender import RowSender

PATIENCE_MS = 60_000.0
LOOK_AGAIN_MS = 200.0
PUT_BYTES = 64 << 20  # of rows that are put together


def gathered(batches: Iterable[pa.RecordBatch], most_bytes: int | None = None) -> Iterator[list[pa.RecordBatch]]:
    """The batches in groups of `most_bytes` or a little more (default: `PUT_BYTES`); those without rows are left out.

    >>> one = pa.record_batch({"a": [1]})
    >>> [len(group) for group in gathered([one, one.slice(1), one, one], 9)]
    [2, 1]
    """
    most_bytes = PUT_BYTES if most_bytes is None else most_bytes
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        group.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


@define
class SentRows:
    """Puts the rows of a task: at one executor after the other, for `PATIENCE_MS` each time."""

    source: ReadSource
    write_id: str
    locations: tuple[str, ...]
    ticket: bytes
    runtime: Runtime
    _error: BallistaError | None = field(init=False, default=None)

    def put(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[Any]:
        """The `Receipt` messages of all rows. Raises as `WriteTask.write`."""
        with self.source.pool(self.runtime, of_nodes=True) as pool:
            return [self._put(pool, schema, group) for group in gathered(batches)]

    def _put(self, pool: FlightPool, schema: pa.Schema, group: Sequence[pa.RecordBatch]) -> Any:
        until_ms = self.runtime.monotonic_ms() + PATIENCE_MS
        while True:
            for uri in self._turned():
                found = self._put_at(pool, uri, schema, group)
                if found is not None:
                    return found
            self._look_again(until_ms)

    def _turned(self) -> list[str]:
        """The locations, another one first each time."""
        at = int(self.runtime.random() * len(self.locations))
        return [*self.locations[at:], *self.locations[:at]]

    def _put_at(self, pool: FlightPool, uri: str, schema: pa.Schema, group: Sequence[pa.RecordBatch]) -> Any:
        """The receipt of the executor there; None if it does not take the rows, and another one may be asked."""
        sender: RowSender | None = None
        try:
            sender = RowSender(pool, uri, self.ticket, schema)
            for batch in group:
                sender.send(batch)
            return sender.finish()
        except BallistaError as error:
            is_link = isinstance(error, TransportError) and is_link_failure(error, uri.partition("://")[2])
            if not is_link and type(error) not in (TryLater, Unauthenticated):
                raise
            self._error = error
            return None
        finally:
            if sender is not None:
                sender.cancel()

    def _look_again(self, until_ms: float) -> None:
        """Ask a scheduler who takes rows by now, after a moment. Raises when the time is over."""
        if self.runtime.monotonic_ms() > until_ms:
            raise self._error or TryLater("no executor takes rows: look whether any is there")
        self.runtime.sleep_ms(LOOK_AGAIN_MS)
        agent = Agent(self.source, self.runtime)
        try:
            said = agent.ask_bytes(f"{PACKAGE}.RenewWrite", pb.RenewWrite(write_id=self.write_id))
        finally:
            agent.close()
        found = known_of_write("WriteRenewed", said)
        self.locations, self.ticket = tuple(found.locations), found.ticket
