"""One conversation of an executor with one scheduler, from the first heartbeat until the link breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from ballista_py.errors import Fenced, ObjectMissing, TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import (
    AppDefinition,
    Heartbeat,
    NodeReport,
    PollNow,
    ReportRequest,
    UpdatePartitions,
)
from ballista_py.transport.control.codec import (
    ToExecutor,
    definition_from_message,
    from_scheduler_message,
    report_to_message,
    scheduler_from_message,
    update_from_message,
)
from ballista_py.transport.control.grpc import StatusCode, aio, rpc
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.held_messages import HeldWriter
from ballista_py.transport.endpoints import open_control
from ballista_py.transport.security.callers import CLUSTER_HEADER, check_cluster
from ballista_py.transport.security.credentials import Tls

CALL_TIMEOUT_S = 5.0
ALLOCATE_TIMEOUT_S = 30.0
LOOKS = 8  # at a link within the time after which its silence breaks it
_log = logging.getLogger(__name__)
LINK_FAILURES = (aio.AioRpcError, aio.BaseError, asyncio.InvalidStateError)


async def until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run all of `work` together until one of them ends or raises; then none of it runs any more."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ControlledExecutor(Protocol):
    """What an executor says and hears. Called on the workers, from several links at once."""

    def heartbeat(self) -> Heartbeat:
        """The next heartbeat; it is sent at once. `Fenced` means that there is nothing to say now."""
        ...

    def received(self, message: ToExecutor) -> None:
        """Take in what a scheduler said. Those of one scheduler come one after the other, in its order."""
        ...

    def report(self, tasks: int) -> NodeReport:
        """How this executor is, and what its last `tasks` tasks were."""
        ...


class ControlLink:
    """A channel to the control port at `address`. Enter it, ask who answers, then `converse` until it breaks.

    With `tls` the scheduler must prove that it is `peer_id`; None: that it is the host in `address`. One of another
    cluster than `cluster_id` refuses every call, and is not believed.
    """

    def __init__(
        self,
        address: str,
        executor: ControlledExecutor,
        workers: Executor,
        heartbeat_ms: float,
        silence_ms: float,
        *,
        tls: Tls | None = None,
        peer_id: str | None = None,
        cluster_id: str = "",
    ) -> None:
        self.address = address
        self._cluster_id = cluster_id
        self._says = ((CLUSTER_HEADER, cluster_id),) if cluster_id else ()
        self.peer_id = peer_id
        self.answered = False
        self._tls = tls
        self._executor = executor
        self._workers = workers
        self._heartbeat_ms = heartbeat_ms
        self._silence_ms = silence_ms
        self._poked = asyncio.Event()
        self._waiting_since: dict[str, float] = {}
        self._answers: list[pb.ExecutorMessage] = []
        self._writer = HeldWriter()
        self._writing = SystemRuntime().lock()

    async def __aenter__(self) -> ControlLink:
        self._channel = open_control(self.address, self._tls, self.peer_id)
        self._stub: Any = rpc.ControlStub(self._channel)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._channel.close()

    async def schedulers(self) -> tuple[str, Sequence[SchedulerInfo]]:
        """The id of the scheduler that answers here, and all schedulers that it knows.

        Raises `WrongCluster` for a scheduler of another one.
        """
        reply = await self._call("GetSchedulers", pb.GetSchedulersRequest())
        check_cluster(reply.cluster_id, self._cluster_id)
        return reply.scheduler_id, [scheduler_from_message(scheduler) for scheduler in reply.schedulers]

    async def leave(self, executor_id: str, instance_id: str) -> None:
        """Tell the scheduler that this executor serves no longer; returns once that is committed."""
        request = pb.LeaveRequest(executor_id=executor_id, instance_id=instance_id)
        await self._call("Leave", request)

    async def definition(self) -> AppDefinition:
        """What the cluster serves."""
        reply = await self._call("GetAppDefinition", pb.GetAppDefinitionRequest())
        return definition_from_message(reply)

    async def expand_secret(self, key: str) -> Secret:
        """A secret that the definition references. Raises `ObjectMissing` for every other, whether it exists or not."""
        try:
            reply = await self._call("ExpandSecret", pb.ExpandSecretRequest(key=key))
        except aio.AioRpcError as error:
            if error.code() is StatusCode.NOT_FOUND:
                raise ObjectMissing(str(error.details()), key=key) from None
            raise
        return Secret(reply.value)

    async def allocate(self, executor_id: str, instance_id: str) -> tuple[UpdatePartitions, ...]:
        """Have all that waits assigned; what this executor is to hold then."""
        request = pb.AllocateInitialPartitionsRequest(executor_id=executor_id, instance_id=instance_id)
        reply = await self._call("AllocateInitialPartitions", request, ALLOCATE_TIMEOUT_S)
        found = (update_from_message(update) for update in reply.updates)
        return tuple(update for update in found if update is not None)

    def poke(self) -> None:
        """Send a heartbeat now. On the loop of the link only."""
        self._poked.set()

    async def converse(self) -> None:
        """Send heartbeats, the first at once, and take in what comes back, until either side ends it.

        Raises `TransportError` when nothing came back for `silence_ms`, or one of `LINK_FAILURES`.
        """
        stream = self._stub.ControlStream(metadata=self._says)
        self._waiting_since = {}
        await until_one_ends(self._tell(stream), self._hear(stream), self._watch())

    async def _tell(self, stream: Any) -> None:
        while True:
            self._poked.clear()
            messages, self._answers = self._answers, []
            with suppress(Fenced):
                messages.append(await self._work(self._next_heartbeat))
            for message in messages:
                with self._waiting("write"):
                    await stream.write(message)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_ms / 1e3):
                    await self._poked.wait()

    async def _hear(self, stream: Any) -> None:
        while True:
            with self._waiting("read"):
                message = await stream.read()
            if message is aio.EOF:
                raise TransportError(f"the scheduler at {self.address} ended the stream", peer=self.address)
            self.answered = True
            if message.WhichOneof("body") == "heard":
                continue  # nothing else is said, so no worker need look at it
            answer = await self._work(self._take_in, message)
            if answer is not None:
                self._answers.append(answer)
                self._poked.set()

    def _next_heartbeat(self) -> pb.ExecutorMessage:
        heartbeat = self._executor.heartbeat()
        with self._writing:  # an answer to a question may be written meanwhile
            return self._writer.message(heartbeat)

    def _take_in(self, message: pb.SchedulerMessage) -> pb.ExecutorMessage | None:
        """What is to be answered at once, if anything."""
        try:
            value = from_scheduler_message(message)
            if isinstance(value, ReportRequest):
                report = report_to_message(self._executor.report(value.tasks), value.request_id)
                return pb.ExecutorMessage(report=report)
            if value is not None:
                self._executor.received(value)
            if isinstance(value, PollNow):
                return self._next_heartbeat()
        except Fenced:
            return None
        except Exception:  # one bad message must not cost the lease that the next one may carry
            _log.exception("a message of the scheduler at %s could not be taken in", self.address)
        return None

    async def _watch(self) -> None:
        """Raise `TransportError` once the scheduler has said or taken nothing for `silence_ms`.

        One look now and then at both ways costs less than a timer for each message.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._silence_ms / 1e3 / LOOKS)
            long_ago = loop.time() - self._silence_ms / 1e3
            if any(since < long_ago for since in self._waiting_since.values()):
                raise TransportError(f"the scheduler at {self.address} is silent", peer=self.address)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Around a wait for the scheduler; a wait that fails fails the conversation."""
        self._waiting_since[what] = asyncio.get_running_loop().time()
        yield
        del self._waiting_since[what]

    async def _call(self, name: str, request: Any, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        return await getattr(self._stub, name)(request, timeout=timeout_s, metadata=self._says)

    async def _work(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)
