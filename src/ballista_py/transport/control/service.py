"""The rpcs of the control port, and the streams that are open on it. Everything here runs on one event loop.

What waits to be written to one executor: the newest answer, the newest update of each table, and requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from attrs import frozen

from ballista_py.errors import BallistaError, InvalidData, TransportError, TryLater, Unauthenticated, to_wire
from ballista_py.secret import Secret
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import (
    AppDefinition,
    Grant,
    Heartbeat,
    NodeReport,
    Refusal,
    ReportRequest,
    TaskRecord,
    UpdatePartitions,
)
from ballista_py.transport.control.codec import (
    ToExecutor,
    definition_to_message,
    heard_message,
    report_from_message,
    report_to_message,
    scheduler_to_message,
    task_to_message,
    to_executor_message,
    update_to_message,
)
from ballista_py.transport.control.control_gate import Peers
from ballista_py.transport.control.grpc import StatusCode, aio, parsed
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.heartbeat_checks import check_name, checked_report
from ballista_py.transport.control.held_messages import HeldReader
from ballista_py.transport.security.connection_guard import Calls
from ballista_py.transport.sockets import parse_peer, sever

MAX_TABLES_WAITING = 1_024
MAX_REQUESTS_WAITING = 1_024


@frozen
class Letter:
    """What is to be said, and the same as a message; a bare number says that the heartbeat of it was heard."""

    value: ToExecutor | int
    message: pb.SchedulerMessage

    @classmethod
    def of(cls, value: ToExecutor | int) -> Letter:
        """The letter that says `value`. Takes milliseconds for thousands of partitions: write it off the loop."""
        return cls(value, heard_message(value) if isinstance(value, int) else to_executor_message(value))


class Outbox:
    """Letters for a reader that may be slow. Used on one event loop.

    A newer answer replaces one that was not taken, a newer revision of a table replaces an older one, and an older
    one is dropped: all of them are level-triggered, so the newest says everything. A request that waits already is
    not put in again. So the box is bounded by the number of tables and of requests; above `MAX_TABLES_WAITING` or
    `MAX_REQUESTS_WAITING` putting raises `TryLater`.
    """

    def __init__(self) -> None:
        self._answer: Letter | None = None
        self._updates: dict[str, tuple[UpdatePartitions, Letter]] = {}
        self._requests: dict[ToExecutor, Letter] = {}
        self._filled = asyncio.Event()

    def put(self, letter: Letter) -> None:
        """Leave a letter."""
        value = letter.value
        if isinstance(value, UpdatePartitions):
            self._put_update(value, letter)
        elif not isinstance(value, Grant | Refusal | int):
            self._put_request(value, letter)
        elif self._answer is None or _says_more(value, self._answer.value):
            self._answer = letter
        self._filled.set()

    async def take(self) -> pb.SchedulerMessage:
        """The next message, answers first, then requests; waits for one."""
        while self._answer is None and not self._updates and not self._requests:
            self._filled.clear()
            await self._filled.wait()
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer.message
        if self._requests:
            return self._requests.pop(next(iter(self._requests))).message
        return self._updates.pop(next(iter(self._updates)))[1].message

    def _put_request(self, request: ToExecutor, letter: Letter) -> None:
        if request not in self._requests and len(self._requests) >= MAX_REQUESTS_WAITING:
            raise TryLater(f"the executor reads too slowly: {MAX_REQUESTS_WAITING} requests wait for it")
        self._requests[request] = letter

    def _put_update(self, update: UpdatePartitions, letter: Letter) -> None:
        table = update.table.folder
        if table not in self._updates:
            if len(self._updates) >= MAX_TABLES_WAITING:
                raise TryLater(
                    f"the executor reads too slowly: updates of {MAX_TABLES_WAITING} tables wait for it"
                )
            self._updates[table] = update, letter
            return
        waiting, _ = self._updates[table]
        if waiting.revision <= update.revision or waiting.instance_id != update.instance_id:
            self._updates[table] = update, letter


def _says_more(answer: Grant | Refusal | int, waiting: ToExecutor | int) -> bool:
    if not isinstance(waiting, Grant | Refusal):
        return True
    return not isinstance(answer, int) and answer.sequence >= waiting.sequence


LAST_WRITE_S = 0.1
LOOKS = 8  # at each stream within the shortest time after which it may be cut off
REPORT_S = 2.0
MAX_TASKS = 1_000
SMALL_BYTES = 64 << 10  # what is read at once
MAX_STREAMS_OF_NODE = 4  # one, and those that it left and that are not known to be broken

_log = logging.getLogger(__name__)


class ControlHandler(Protocol):
    """What a scheduler does with what it hears. Called on the workers, so it may block, say on the store."""

    def heard(self, heartbeat: Heartbeat) -> Grant | Refusal | None:
        """The answer to a heartbeat; None: there will be one later, by `push` or to a later heartbeat."""
        ...

    def schedulers(self) -> Sequence[SchedulerInfo]:
        """The schedulers of the cluster, this one included."""
        ...

    def leave(self, executor_id: str, instance_id: str) -> None:
        """Give up what that executor owns; it has stopped serving for good."""
        ...

    def definition(self) -> AppDefinition:
        """What the cluster serves."""
        ...

    def secret(self, key: str) -> Secret | None:
        """The secret of that key, if there is one and the definition references it."""
        ...

    def allocate(self, executor_id: str, instance_id: str) -> Sequence[UpdatePartitions]:
        """Assign all that waits; what that executor is to hold then."""
        ...

    def report(self, tasks: int) -> NodeReport:
        """How this scheduler is, and what it did last."""
        ...


class Peer:
    """One stream. It belongs to nobody until its first heartbeat.

    `reading_since` and `writing_since` are on the loop's clock, None while nothing is waited for: one look at all
    peers now and then costs less than a timer for each message.
    """

    def __init__(self, address: str, node_id: str | None = None) -> None:
        """`node_id` is the node that its certificate names, where nodes have certificates."""
        self.address = address
        self.node_id = node_id
        self.executor_id = ""
        self.instance_id = ""
        self.outbox = Outbox()
        self.reader = HeldReader()
        self.ended: asyncio.Future[BallistaError] = asyncio.get_running_loop().create_future()
        self.reading_since: float | None = None
        self.writing_since: float | None = None

    def end(self, reason: BallistaError) -> None:
        """Ask the stream to end; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(reason)


class ControlService:
    """`peers` holds, by executor instance, the newest stream of each. `nodes` knows from which node a call comes;
    whether one of its role may make it was decided before.
    """

    def __init__(
        self,
        scheduler_id: str,
        handler: ControlHandler,
        workers: Executor,
        silence_ms: float,
        write_timeout_ms: float,
        nodes: Peers | None = None,
        cluster_id: str = "",
        refused: Callable[[str, object], None] = lambda _peer, _reason: None,
    ) -> None:
        self._refused = refused
        self.peers: dict[str, Peer] = {}
        self._open: dict[Peer, None] = {}  # in the order of opening
        self._scheduler_id = scheduler_id
        self._cluster_id = cluster_id
        self._handler = handler
        self._workers = workers
        self._silence_ms = silence_ms
        self._write_timeout_ms = write_timeout_ms
        self._nodes = nodes or Peers()
        self._reports: dict[tuple[str, int], asyncio.Future[NodeReport]] = {}
        self._asked = 0

    async def GetSchedulers(self, _request: Any, context: Any) -> pb.GetSchedulersReply:  # noqa: N802
        """The rpc of that name."""
        found = await self._answer(context, self._handler.schedulers)
        return pb.GetSchedulersReply(
            scheduler_id=self._scheduler_id,
            schedulers=[scheduler_to_message(scheduler) for scheduler in found],
            cluster_id=self._cluster_id,
        )

    async def Leave(self, request: Any, context: Any) -> pb.LeaveReply:  # noqa: N802
        """The rpc of that name."""
        await self._admit(context, request.executor_id)
        await self._answer(context, self._handler.leave, request.executor_id, request.instance_id)
        return pb.LeaveReply()

    async def GetAppDefinition(self, _request: Any, context: Any) -> pb.GetAppDefinitionReply:  # noqa: N802
        """The rpc of that name."""
        return definition_to_message(await self._answer(context, self._handler.definition))

    async def ExpandSecret(self, request: Any, context: Any) -> pb.ExpandSecretReply:  # noqa: N802
        """The rpc of that name. Nothing tells a secret that may not be asked for from one that is missing."""
        found: Secret | None = None
        if self._nodes.removed is None:
            _log.warning("a secret was asked for over plain TCP, where none is given out")
        else:
            found = await self._answer(context, self._handler.secret, request.key)
        if found is None:
            await context.abort(StatusCode.NOT_FOUND, "the definition references no such secret")
            raise AssertionError("abort raises")
        return pb.ExpandSecretReply(value=found.reveal())

    async def AllocateInitialPartitions(  # noqa: N802
        self, request: Any, context: Any
    ) -> pb.AllocateInitialPartitionsReply:
        """The rpc of that name."""
        await self._admit(context, request.executor_id)
        found = await self._answer(context, self._handler.allocate, request.executor_id, request.instance_id)
        return pb.AllocateInitialPartitionsReply(updates=[update_to_message(update) for update in found])

    async def GetTaskHistory(self, request: Any, context: Any) -> pb.GetTaskHistoryReply:  # noqa: N802
        """The rpc of that name."""
        limit = min(request.limit, MAX_TASKS)
        own = await self._answer(context, self._handler.report, limit)
        others = {} if request.own_only else await self.reports(tuple(self.peers), limit)
        reports = [own, *others.values()]
        tasks: list[TaskRecord] = sorted(
            (task for report in reports for task in report.tasks), key=lambda task: -task.started_at_ms
        )
        return pb.GetTaskHistoryReply(tasks=[task_to_message(task) for task in tasks[:limit]])

    async def GetMetrics(self, request: Any, context: Any) -> pb.GetMetricsReply:  # noqa: N802
        """The rpc of that name. An executor that does not answer in `REPORT_S` is left out."""
        reports = [await self._answer(context, self._handler.report, 0)]
        if request.include_executors:
            reports += (await self.reports(tuple(self.peers), 0)).values()
        return pb.GetMetricsReply(reports=[report_to_message(report) for report in reports])

    async def reports(
        self, instances: Sequence[str], tasks: int, wait_s: float = REPORT_S
    ) -> dict[str, NodeReport]:
        """By instance, the reports of those executors that have a stream here and answer in time."""
        waiting: dict[str, tuple[tuple[str, int], asyncio.Future[NodeReport]]] = {}
        for instance_id in instances:
            if instance_id not in self.peers:
                continue
            self._asked += 1
            question = instance_id, self._asked
            report = self._reports[question] = asyncio.get_running_loop().create_future()
            waiting[instance_id] = question, report
            self.put(instance_id, Letter.of(ReportRequest(request_id=self._asked, tasks=tasks)))
        try:
            if waiting:
                await asyncio.wait([report for _, report in waiting.values()], timeout=wait_s)
            return {name: report.result() for name, (_, report) in waiting.items() if report.done()}
        finally:
            for question, _ in waiting.values():
                self._reports.pop(question, None)

    def _take_report(self, peer: Peer, message: pb.NodeReport) -> None:
        """Whatever the report says, it is that of the executor whose stream it came over, if that one was asked."""
        waiting = self._reports.get((peer.instance_id, message.request_id))
        if waiting is not None and not waiting.done():
            waiting.set_result(checked_report(report_from_message(message), peer.executor_id))

    async def ControlStream(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """The rpc of that name: hear and tell until one side ends, then say why."""
        identity = self._nodes.identity(context)
        peer = Peer(context.peer(), None if identity is None else identity.node_id)
        self._open[peer] = None
        self._end_oldest_of(peer.node_id)
        hear, tell = (asyncio.create_task(work) for work in (self._hear(peer, context), self._tell(peer, context)))
        waited_for: list[asyncio.Future[Any]] = [hear, tell, peer.ended]
        try:
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._open[peer]
            if self.peers.get(peer.instance_id) is peer:
                del self.peers[peer.instance_id]
            hear.cancel()
            if peer.writing_since is not None:  # the message under way gets a moment, and no other is begun
                await asyncio.wait([tell], timeout=LAST_WRITE_S)
            written = peer.writing_since is None
            tell.cancel()
            results = await asyncio.gather(hear, tell, return_exceptions=True)
        reason = peer.ended.result() if peer.ended.done() else _first_error(results)
        if reason is not None:
            _log.warning("control stream of '%s' ended: %s", peer.executor_id, _said(reason))
            if not written:  # gRPC takes no status behind a message that is stuck
                sever([context.peer()])
                raise asyncio.CancelledError
            known = not isinstance(reason, Unauthenticated)
            await context.abort(StatusCode.UNAVAILABLE if known else StatusCode.UNAUTHENTICATED, _said(reason))

    def put(self, instance_id: str, letter: Letter) -> None:
        """Leave a letter for an instance; one without a stream misses it."""
        peer = self.peers.get(instance_id)
        if peer is not None:
            try:
                peer.outbox.put(letter)
            except TryLater as slow:
                peer.end(slow)

    def calls(self) -> Calls:
        """Where the open streams lead to."""
        places = (parse_peer(peer.address) for peer in tuple(self._open))
        return Calls(busy={place for place in places if place is not None})

    def end_all(self, reason: BallistaError) -> None:
        """Ask every stream to end."""
        for peer in self.peers.values():
            peer.end(reason)

    async def watch(self) -> None:
        """Cut off, until cancelled, the streams over which nothing came for too long or a message is stuck."""
        loop = asyncio.get_running_loop()
        silence_s, write_s = self._silence_ms / 1e3, self._write_timeout_ms / 1e3
        while True:
            await asyncio.sleep(min(silence_s, write_s) / LOOKS)
            now = loop.time()
            for peer in tuple(self._open):
                self._end_if_removed(peer)
                if peer.writing_since is not None and now - peer.writing_since > write_s:
                    peer.end(TryLater(f"the executor reads too slowly: a message waited for {write_s:g} s"))
                elif peer.reading_since is not None and now - peer.reading_since > silence_s:
                    peer.end(TransportError(f"nothing was heard for {silence_s:g} s"))

    def _end_oldest_of(self, node_id: str | None) -> None:
        """End the oldest streams of a node that has opened more than it needs."""
        if node_id is not None:
            for peer in [one for one in self._open if one.node_id == node_id][:-MAX_STREAMS_OF_NODE]:
                peer.end(TransportError("the node has opened newer streams"))

    def _end_if_removed(self, peer: Peer) -> None:
        try:
            if self._nodes.removed is not None:
                self._nodes.removed.check(peer.executor_id)
        except Unauthenticated as error:
            peer.end(error)

    async def _hear(self, peer: Peer, context: Any) -> None:
        loop = asyncio.get_running_loop()
        while True:
            peer.reading_since = loop.time()
            data = await context.read()
            peer.reading_since = None
            if data is aio.EOF:
                return
            if len(data) > SMALL_BYTES:  # others are heard meanwhile
                message = await loop.run_in_executor(self._workers, parsed, pb.ExecutorMessage, data)
            else:
                message = parsed(pb.ExecutorMessage, data)
            del data
            body = message.WhichOneof("body")
            if body == "report":
                self._take_report(peer, message.report)
            elif body == "heartbeat":
                executor = message.heartbeat.executor
                self._check(context, executor.executor_id)
                self._register(peer, executor.executor_id, executor.instance_id)
                peer.outbox.put(await loop.run_in_executor(self._workers, self._answer_to, peer, message))

    def _answer_to(self, peer: Peer, message: pb.ExecutorMessage) -> Letter:
        """What the handler says to a heartbeat; on a worker, with all that it takes to read and write."""
        heartbeat = peer.reader.heartbeat(message)
        answer = self._handler.heard(heartbeat)
        return Letter.of(heartbeat.sequence if answer is None else answer)

    async def _tell(self, peer: Peer, context: Any) -> None:
        loop = asyncio.get_running_loop()
        while not peer.ended.done():
            message = await peer.outbox.take()
            peer.writing_since = loop.time()
            await context.write(message)
            peer.writing_since = None

    def _check(self, context: Any, executor_id: str) -> None:
        """That the peer may speak for this executor. Raises `Unauthenticated`, or `InvalidData` if that is no name."""
        check_name("the id of an executor", executor_id)
        self._nodes.check_speaks_for(context, executor_id)

    async def _admit(self, context: Any, executor_id: str) -> None:
        """As `_check`, for a single call: it ends there."""
        try:
            self._check(context, executor_id)
        except Unauthenticated as error:
            self._refused(context.peer(), error)
            await context.abort(StatusCode.UNAUTHENTICATED, _said(error))
        except InvalidData as error:
            await context.abort(StatusCode.INVALID_ARGUMENT, _said(error))

    def _register(self, peer: Peer, executor_id: str, instance_id: str) -> None:
        """Make this the stream of the instance. An older stream of it is ended; one of another instance stays."""
        if (peer.executor_id, peer.instance_id) == (executor_id, instance_id):
            return
        if self.peers.get(peer.instance_id) is peer:
            del self.peers[peer.instance_id]
        older = self.peers.get(instance_id)
        if older is not None and older.executor_id != executor_id:
            raise Unauthenticated(f"the instance is one of executor '{older.executor_id}', not of '{executor_id}'")
        if older is not None:
            older.end(TransportError("a newer stream of the same executor replaced this one"))
        peer.executor_id = executor_id
        peer.instance_id = instance_id
        self.peers[instance_id] = peer

    async def _answer(self, context: Any, function: Any, *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)
        except Exception as error:
            await context.abort(StatusCode.UNAVAILABLE, _said(error))


def _first_error(results: Sequence[Any]) -> Exception | None:
    """Why a task ended by itself; None when the executor ended the stream, or went away."""
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, aio.AioRpcError | aio.BaseError):
            return result
    return None


def _said(error: BaseException) -> str:
    """What a peer may read of an error: nothing of this process but the messages of our tree."""
    return str(to_wire(error)["message"])
