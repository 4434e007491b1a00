"""The `PartServer` of an executor: tickets are checked here, and who may have how much at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.errors import InvalidData, SnapshotGone, TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.executor.granted_parts import GrantDesk
from ballista_py.node.status.tasks import DONE, Task, Tasks
from ballista_py.owner.part_reads import PartReads
from ballista_py.runtime import Runtime
from ballista_py.storage.reads.files import ReadFiles
from ballista_py.storage.reads.leases import ReadDocument
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.security.signed_tickets import TicketCheck
from ballista_py.transport.table_read.exchange import OnHold, Outcome, PartAnswer, PartRequest, Rejected, TooBusy
from ballista_py.transport.table_read.tickets import ReadTicket
from ballista_py.transport.table_read.tokens.exchange import (
    OpenRead,
    ReadAccepted,
    ReadOnHold,
    ReadPreempted,
    ReadRefused,
    ReadSnapshotGone,
    StaleAttempt,
)
from ballista_py.transport.table_read.tokens.positions import Position
from ballista_py.transport.table_read.tokens.serving import MAX_STREAMS, HeldPartition, ServedReads

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
    grants: GrantDesk = field(init=False)
    _opened: dict[object, tuple[str, bool]] = field(init=False, factory=dict)  # whose, and whether processed

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()
        served = ServedReads(self.runtime, max_streams=max(MAX_STREAMS, OPEN_OF_CLIENT))
        self.grants = GrantDesk(self.runtime, served)

    def open_part(self, request: PartRequest, context: CallContext) -> Outcome:
        """See `PartServer`."""
        reads = self.reads
        if reads is None:
            raise TryLater(f"executor '{self.node_id}' is starting")
        ticket = ReadTicket.from_json(self.tickets.values(request.ticket))
        if request.token:
            return self._open_granted(reads, ticket, request, context)
        read = reads.files(ticket.read_id, ticket.digest)
        if not ticket.anywhere and not reads.holds(read, ticket.part):
            return Rejected(f"executor '{self.node_id}' holds none of these partitions any more")
        return self._begun(reads, read, ticket, request)

    def tick(self) -> None:
        """End exchanges under grants that nobody wants any more. A node calls it about once a second."""
        if self.reads is not None:
            self.grants.tick(self.reads.lease)

    def load(self) -> int:
        """How much is computed here, in percent of `BUSY_TASKS`; at 100 nothing more is processed for anybody."""
        with self._lock:
            return min(100, 100 * self._computed() // BUSY_TASKS)

    def shown(self) -> dict[str, int]:
        """The exchanges that are open under grants now, and of how many grants something is remembered."""
        return {"exchanges": self.grants.exchanges, "grants": self.grants.served.remembered}

    def _open_granted(
        self, reads: PartReads, ticket: ReadTicket, request: PartRequest, context: CallContext
    ) -> Outcome:
        """An exchange under a grant, as `ServedReads` decides."""
        lease: ReadDocument | None = None
        read: ReadFiles | None = None
        try:
            lease, read = reads.lease(ticket.read_id), reads.files(ticket.read_id, ticket.digest)
        except SnapshotGone:
            lease = None
        asked = OpenRead(
            job=ticket.read_id,
            token=request.token,
            ancestors=request.ancestors,
            partition=ticket.part,
            snapshot=ticket.read_id,
            attempt=request.attempt,
            start=request.begin,
            wants_plan=request.process,
            needs_order=request.needs_order,
        )
        has_places = read is not None and reads.has_places(read, request.process)
        if read is not None and request.needs_order and not has_places:
            raise InvalidData("what is processed as a whole has no order: ask for all of it, or for its columns")
        held = HeldPartition(
            is_held=read is not None and (ticket.anywhere or reads.holds(read, ticket.part)),
            is_busy=self._is_busy(ticket.client),
            in_order=has_places,
        )
        reply = self.grants.open(asked, held, lease)
        if isinstance(reply, ReadPreempted | StaleAttempt | ReadSnapshotGone):
            return reply
        if isinstance(reply, ReadOnHold):
            return OnHold(int(reply.retry_after_ms))
        if isinstance(reply, ReadRefused):
            return TooBusy()
        if not isinstance(reply, ReadAccepted) or read is None:
            return Rejected(f"executor '{self.node_id}' holds none of these partitions any more")
        return self._begun_granted(reads, read, ticket, request, asked, context)

    def _begun_granted(
        self,
        reads: PartReads,
        read: ReadFiles,
        ticket: ReadTicket,
        request: PartRequest,
        asked: OpenRead,
        context: CallContext,
    ) -> Outcome:
        with ExitStack() as up:
            up.callback(self.grants.over, asked)
            answer = self._begun(reads, read, ticket, request)
            if not isinstance(answer, PartAnswer):
                return answer
            up.pop_all()
        self.grants.began(asked, context)
        end = answer.cancel

        def cancel() -> None:
            self.grants.over(asked, context)
            end()

        return evolve(answer, cancel=cancel, goes_on=lambda: self.grants.goes_on(asked))

    def _begun(self, reads: PartReads, read: ReadFiles, ticket: ReadTicket, request: PartRequest) -> Outcome:
        """The rows, if there is room for one more who reads."""
        place = object()
        said = self._placed(place, ticket.client, request.process)
        if said is not None:
            return said
        with ExitStack() as up:
            up.callback(self._opened.pop, place, None)
            if not request.process:
                try:
                    takes = reads.takes(read, ticket.part, () if request.token else request.encodings)
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
        done = partial(task.end, DONE)
        return evolve(answer, batches=_followed(task, answer), cancel=task.cancelled, done=done)

    def _is_busy(self, client: str) -> bool:
        with self._lock:
            return self._refuses(client)

    def _refuses(self, client: str) -> bool:
        """Whether nothing more is processed for a client now."""
        own = sum(processed for other, processed in self._opened.values() if other == client)
        return own >= PROCESSED_OF_CLIENT or self._computed() >= BUSY_TASKS

    def _computed(self) -> int:
        """What computes anything; who is given rows as they are does not."""
        return max(0, self.tasks.running() - sum(not processed for _, processed in self._opened.values()))

    def _placed(self, place: object, client: str, process: bool) -> TooBusy | OnHold | None:
        """Take the place of an exchange, or say why there is none."""
        with self._lock:
            if sum(other == client for other, _ in self._opened.values()) >= OPEN_OF_CLIENT:
                return OnHold(RETRY_AFTER_MS)
            if process and self._refuses(client):
                return TooBusy()
            self._opened[place] = (client, process)
        return None


def _answer(reads: PartReads, read: ReadFiles, part: int, request: PartRequest) -> PartAnswer:
    if request.token:
        return reads.granted(read, part, request.begin, request.process, request.encodings)
    if request.process:
        return reads.processed(read, part)
    if request.encodings:
        return reads.encoded(read, part, request.begin, request.encodings, request.only_matching)
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
