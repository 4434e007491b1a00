"""The `RowsTaker` of an executor: tickets are checked here, and who may send how much at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from ballista_py.errors import TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.executor.part_server import OPEN_OF_CLIENT
from ballista_py.node.status.tasks import Tasks
from ballista_py.owner.staged_rows import StagedRows
from ballista_py.runtime import Runtime
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.security.signed_tickets import TicketCheck
from ballista_py.transport.table_write.exchange import PutStream
from ballista_py.transport.table_write.messages import pb
from ballista_py.transport.table_write.tickets import PutTicket


@define
class ExecutorRows:
    """Takes rows of writes in. It is there a moment before its `staged`. Safe to share between threads.

    Of one client at most `OPEN_OF_CLIENT` send at once; others are told to try later, as are those whose rows have no
    room in the `budget` of the node.
    """

    node_id: str
    tickets: TicketCheck
    tasks: Tasks
    runtime: Runtime
    budget: MemoryBudget
    engine_name: str = ""
    staged: StagedRows | None = None
    _lock: Any = field(init=False)
    _open: Counter[str] = field(init=False, factory=Counter)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def take(self, ticket: Mapping[str, Any], rows: PutStream, context: CallContext) -> Any:
        """See `RowsTaker`."""
        staged = self.staged
        if staged is None:
            raise TryLater(f"executor '{self.node_id}' is starting")
        told = PutTicket.from_json(self.tickets.values(ticket))
        write = staged.begun(told.write_id, told.client)
        with self._place(told.client):
            room = self.budget.begin(staged.spool_bytes, told.client)
            try:
                with self.tasks.begin("put", write.table.name, engine=self.engine_name).whole() as task:
                    kept = staged.keep(told.write_id, write, rows.schema, rows)
                    task.rows = kept.rows
            finally:
                room.end()
        return pb.Receipt(write_id=kept.write_id, sender=kept.sender, digest=kept.digest, rows=kept.rows)

    @contextmanager
    def _place(self, client: str) -> Iterator[None]:
        with self._lock:
            if self._open[client] >= OPEN_OF_CLIENT:
                raise TryLater(
                    f"{OPEN_OF_CLIENT} tasks of this client send rows here already: send them elsewhere"
                )
            self._open[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[client] -= 1
                if not self._open[client]:
                    del self._open[client]
