"""The `PartServer` of an executor: tickets are checked here, and who may have how much at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.errors import TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.status.tasks import Task, Tasks
from ballista_py.owner.part_reads import PartReads
from ballista_py.runtime import Runtime
from ballista_py.storage.reads.files import ReadFiles
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.security.signed_tickets import TicketCheck
from ballista_py.transport.table_read.exchange import OnHold, Outcome, PartAnswer, PartRequest, Rejected, TooBusy
from ballista_py.transport.table_read.tickets import ReadTicket
from ballista_py.transport.table_read.tokens.positions import Position

# More at once take memory and are no faster. One whose rows nobody takes holds up its client, and nobody else.
PROCESSED_OF_CLIENT = max(4, 2 * (os.cpu_count() or 1))
BUSY_TASKS = OPEN_OF_CLIENT = 4 * PROCESSED_OF_CLIENT
RETRY_AFTER_MS = 200
ROOM_MS = 1_000.0  # to wait for room in the memory of the node


@define
class ExecutorParts:
    """Gives parts of read jobs. It is there a moment before its `reads`. Safe to share between threads.

    At most `PROCESSED_OF_CLIENT` of one client are processed at once, and none where `BUSY_TASKS` compute anything,
    legs of statements among them: others are refused, and given as they are. Of one client at most `OPEN_OF_CLIENT` are
    open: further ones are put on hold, as are those whose rows have no room in the `budget` of the node.
    """

    node_id: str
    tickets: TicketCheck
    tasks: Tasks
    runtime: Runtime
    budget: MemoryBudget
    engine_name: str = ""
    reads: PartReads | None = None
    _lock: Any = field(init=False)
    _opened: dict[object, tuple[str, bool]] = field(init=False, factory=dict)  # whose, and whether processed

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def open_part(self, request: PartRequest, context: CallContext) -> Outcome:
        """See `PartServer`."""
        reads = self.reads
        if reads is None:
            raise TryLater(f"executor '{self.node_id}' is starting")
        ticket = ReadTicket.from_json(self.tickets.values(request.ticket))
        read = reads.files(ticket.read_id, ticket.digest)
        if not ticket.anywhere and not reads.holds(read, ticket.part):
            return Rejected(f"executor '{self.node_id}' holds none of these partitions any more")
        place = object()
        said = self._placed(place, ticket.client, request.process)
        if said is not None:
            return said
        with ExitStack() as up:
            up.callback(self._opened.pop, place, None)
            if not request.process:
                try:
                    takes = reads.takes(read, ticket.part, request.encodings)
                    room = self.budget.begin(takes, ticket.client, wait_ms=ROOM_MS)
                except TryLater:
                    return OnHold(RETRY_AFTER_MS)
                up.callback(room.end)
            task = self.tasks.begin("read", read.plan if request.process else read.table, engine=self.engine_name)
            try:
                answer = _answer(reads, read, ticket.part, request)
            except BaseException as error:
                task.failed(error)
                raise
            up.callback(answer.cancel)
            task.attach(up.pop_all().close)
        return evolve(answer, batches=_followed(task, answer), cancel=task.cancelled)

    def _placed(self, place: object, client: str, process: bool) -> TooBusy | OnHold | None:
        """Take the place of an exchange, or say why there is none."""
        with self._lock:
            opened = self._opened.values()
            own = [processed for other, processed in opened if other == client]
            if len(own) >= OPEN_OF_CLIENT:
                return OnHold(RETRY_AFTER_MS)
            computed = self.tasks.running() - sum(not processed for _, processed in opened)
            if process and (sum(own) >= PROCESSED_OF_CLIENT or computed >= BUSY_TASKS):
                return TooBusy()
            self._opened[place] = (client, process)
        return None


def _answer(reads: PartReads, read: ReadFiles, part: int, request: PartRequest) -> PartAnswer:
    if request.process:
        return reads.processed(read, part)
    if request.encodings:
        return reads.encoded(read, part, request.begin, request.encodings)
    return reads.unprocessed(read, part, request.begin)


def _followed(task: Task, answer: PartAnswer) -> Iterator[tuple[Position, pa.RecordBatch]]:
    """The same rows; the task counts them, and ends with them."""
    begins: deque[Position] = deque()

    def rows() -> Iterator[pa.RecordBatch]:
        for begin, batch in answer.batches:
            begins.append(begin)
            yield batch

    for batch in task.follow(rows()):
        yield begins.popleft(), batch
