"""Rows of a task on their way to an executor that keeps them; while they are few to another one, if the first goes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
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
KEPT_BYTES = 32 << 20  # of rows that can be sent once more


@define
class SentRows:
    """Puts the rows of one sender: at one executor after the other, for `PATIENCE_MS`."""

    source: ReadSource
    write_id: str
    locations: tuple[str, ...]
    ticket: bytes
    runtime: Runtime
    _kept: list[pa.RecordBatch] = field(init=False, factory=list)
    _kept_bytes: int = field(init=False, default=0)
    _error: BallistaError | None = field(init=False, default=None)

    def put(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
        """The `Receipt`. Raises as `WriteTask.write`."""
        until_ms = self.runtime.monotonic_ms() + PATIENCE_MS
        with self.source.pool(self.runtime, of_nodes=True) as pool:
            while True:
                for uri in self._turned():
                    found = self._put_at(pool, uri, schema, batches)
                    if found is not None:
                        return found
                self._look_again(until_ms)

    def _turned(self) -> list[str]:
        """The locations, another one first each time."""
        at = int(self.runtime.random() * len(self.locations))
        return [*self.locations[at:], *self.locations[:at]]

    def _put_at(self, pool: FlightPool, uri: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
        """The receipt of the executor there; None if it does not take the rows, and another one may be asked."""
        sender: RowSender | None = None
        try:
            sender = RowSender(pool, uri, self.ticket, schema)
            for batch in chain(list(self._kept), map(self._noted, batches)):
                sender.send(batch)
            return sender.finish()
        except BallistaError as error:
            is_link = isinstance(error, TransportError) and is_link_failure(error, uri.partition("://")[2])
            if self._kept_bytes > KEPT_BYTES or not (is_link or type(error) in (TryLater, Unauthenticated)):
                raise
            self._error = error
            return None
        finally:
            if sender is not None:
                sender.cancel()

    def _noted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, kept to be sent once more while all together are few."""
        self._kept_bytes += batch.nbytes
        self._kept.append(batch)
        if self._kept_bytes > KEPT_BYTES:
            self._kept.clear()
        return batch

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
        if isinstance(self._error, Unauthenticated) and found.ticket == self.ticket:
            raise self._error
        self.locations, self.ticket = tuple(found.locations), found.ticket
