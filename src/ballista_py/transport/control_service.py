"""The rpcs of the control port, and the streams that are open on it. Everything here runs on one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from ballista_py.errors import BallistaError, TransportError, TryLater, Unauthenticated, to_wire
from ballista_py.state.control import Grant, Heartbeat, Refusal
from ballista_py.state.documents import SchedulerInfo
from ballista_py.transport.control_codec import (
    heartbeat_from_message,
    scheduler_to_message,
)
from ballista_py.transport.credentials import Removed, check_identity
from ballista_py.transport.grpc_door import StatusCode, aio
from ballista_py.transport.grpc_door import messages as pb
from ballista_py.transport.outbox import Letter, Outbox
from ballista_py.transport.sockets import sever

LAST_WRITE_S = 0.1

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


class Peer:
    """One stream. It belongs to nobody until its first heartbeat."""

    def __init__(self) -> None:
        self.executor_id = ""
        self.instance_id = ""
        self.outbox = Outbox()
        self.ended: asyncio.Future[BallistaError] = asyncio.get_running_loop().create_future()
        self._write: asyncio.Future[None] | None = None

    def end(self, reason: BallistaError) -> None:
        """Ask the stream to end; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(reason)

    async def write(self, context: Any, message: pb.SchedulerMessage, timeout_s: float) -> bool:
        """Send a message; False when the executor did not take it in time. Cancelling this leaves it under way."""
        self._write = asyncio.ensure_future(context.write(message))
        done, _ = await asyncio.wait([self._write], timeout=timeout_s)
        for write in done:
            write.result()
        return bool(done)

    async def last_write_ends(self) -> bool:
        """Give the message under way a moment; False when it is stuck, and then it is given up."""
        if self._write is None:
            return True
        await asyncio.wait([self._write], timeout=LAST_WRITE_S)
        if self._write.done():
            return self._write.cancelled() or self._write.exception() is None
        self._write.cancel()
        return False


class ControlService:
    """`peers` holds, by executor instance, the newest stream of each. `removed` (None: without TLS) are the nodes
    that may not speak although their certificate is good.
    """

    def __init__(
        self,
        scheduler_id: str,
        handler: ControlHandler,
        workers: Executor,
        silence_ms: float,
        write_timeout_ms: float,
        removed: Removed | None = None,
    ) -> None:
        self.peers: dict[str, Peer] = {}
        self._scheduler_id = scheduler_id
        self._handler = handler
        self._workers = workers
        self._silence_ms = silence_ms
        self._write_timeout_ms = write_timeout_ms
        self._removed = removed

    async def GetSchedulers(self, _request: Any, context: Any) -> pb.GetSchedulersReply:  # noqa: N802
        """The rpc of that name."""
        found = await self._answer(context, self._handler.schedulers)
        return pb.GetSchedulersReply(
            scheduler_id=self._scheduler_id, schedulers=[scheduler_to_message(scheduler) for scheduler in found]
        )

    async def Leave(self, request: Any, context: Any) -> pb.LeaveReply:  # noqa: N802
        """The rpc of that name."""
        try:
            self._check(context, request.executor_id)
        except Unauthenticated as error:
            _log.warning("a leave was refused: %s", error)
            await context.abort(StatusCode.UNAUTHENTICATED, _said(error))
        await self._answer(context, self._handler.leave, request.executor_id, request.instance_id)
        return pb.LeaveReply()

    async def ControlStream(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """The rpc of that name: hear and tell until one side ends, then say why."""
        peer = Peer()
        tasks = [asyncio.create_task(work) for work in (self._hear(peer, context), self._tell(peer, context))]
        waited_for: list[asyncio.Future[Any]] = [*tasks, peer.ended]
        try:
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self.peers.get(peer.instance_id) is peer:
                del self.peers[peer.instance_id]
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            written = await peer.last_write_ends()
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

    def end_all(self, reason: BallistaError) -> None:
        """Ask every stream to end."""
        for peer in self.peers.values():
            peer.end(reason)

    async def _hear(self, peer: Peer, context: Any) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(self._silence_ms / 1e3):
                    message = await context.read()
            except TimeoutError:
                raise TransportError(f"nothing was heard for {self._silence_ms / 1e3:g} s") from None
            if message is aio.EOF:
                return
            heartbeat = heartbeat_from_message(message)
            if heartbeat is None:
                continue
            self._check(context, heartbeat.executor.executor_id)
            self._register(peer, heartbeat)
            answer = await loop.run_in_executor(self._workers, self._handler.heard, heartbeat)
            peer.outbox.put(Letter.of(heartbeat.sequence if answer is None else answer))

    async def _tell(self, peer: Peer, context: Any) -> None:
        while True:
            message = await peer.outbox.take()
            if not await peer.write(context, message, self._write_timeout_ms / 1e3):
                raise TryLater(
                    f"the executor reads too slowly: a message waited for {self._write_timeout_ms / 1e3:g} s"
                )

    def _check(self, context: Any, executor_id: str) -> None:
        """That the peer may speak for this executor. Raises `Unauthenticated`."""
        if self._removed is not None:
            names = context.auth_context().get("x509_subject_alternative_name") or [b""]
            check_identity(names[0].decode(errors="replace"), executor_id, self._removed)

    def _register(self, peer: Peer, heartbeat: Heartbeat) -> None:
        """Make this the stream of the instance. An older stream of it is ended; one of another instance stays."""
        instance_id = heartbeat.executor.instance_id
        if peer.instance_id == instance_id:
            return
        if self.peers.get(peer.instance_id) is peer:
            del self.peers[peer.instance_id]
        older = self.peers.get(instance_id)
        if older is not None:
            older.end(TransportError("a newer stream of the same executor replaced this one"))
        peer.executor_id = heartbeat.executor.executor_id
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
