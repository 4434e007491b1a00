"""The control port of a scheduler: it hears executors and tells them what they are to hold.

Carries values and decides nothing: every heartbeat is handed to the handler, whose answer goes back, and what the
node pushes goes to the executor instance it is meant for. Reconnecting heals everything, because the next cycle
says again whatever the executor does not report to hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from attrs import evolve

from ballista_py.errors import TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import MAX_EXECUTORS
from ballista_py.state.members.control import NodeReport
from ballista_py.transport.control.codec import ToExecutor
from ballista_py.transport.control.control_gate import ControlGate, Peers
from ballista_py.transport.control.grpc import CONTROL_METHODS, aio, rpc
from ballista_py.transport.control.service import ControlHandler, ControlService, Letter
from ballista_py.transport.endpoints import CONTROL_SERVER_OPTIONS, Address, listen_grpc
from ballista_py.transport.security.access import CONTROL
from ballista_py.transport.security.callers import Refusals
from ballista_py.transport.security.connection_guard import Calls, ConnectionGuard, ConnectionLimits
from ballista_py.transport.security.credentials import Removed, Tls

SILENCE_MS = 60_000
WRITE_TIMEOUT_MS = 10_000
STOP_GRACE_MS = 1_000
GUARD_S = 0.2


class ControlServer:
    """A control port. `start` it, then keep `run` running on the same loop; `push` may be called from any thread.

    `address` is the bind address as `host:port`, port 0 takes a free one. `workers` run the handler. A stream over
    which nothing came for `silence_ms`, or that took longer than `write_timeout_ms` to accept one message, is cut
    off; the executor opens a new one.

    With `tls` every peer must show a certificate of its authority that names its id and its role. `access.CONTROL`
    says what each role may ask for, an executor speaks for itself alone, and one in `removed` is not heard. Nor is
    one that names another cluster than `cluster_id`. There are as many `connections` as those limits allow.
    """

    def __init__(
        self,
        address: str,
        scheduler_id: str,
        handler: ControlHandler,
        workers: Executor,
        *,
        silence_ms: float = SILENCE_MS,
        write_timeout_ms: float = WRITE_TIMEOUT_MS,
        tls: Tls | None = None,
        removed: Removed | None = None,
        cluster_id: str = "",
        connections: ConnectionLimits | None = None,
    ) -> None:
        self._address = Address.parse(address)
        self._tls = tls
        peers = Peers(None if tls is None else removed or Removed())
        self._refusals = Refusals(SystemRuntime())
        self._gate = ControlGate(cluster_id, CONTROL, peers, self._refusals)
        self._service = ControlService(
            scheduler_id, handler, workers, silence_ms, write_timeout_ms, peers, cluster_id, self._refusals.note
        )
        limits = (connections or ConnectionLimits()).among_nodes()
        self._guard = ConnectionGuard(limits, SystemRuntime())
        self._workers = workers
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None

    async def start(self) -> Address:
        """Listen from now on; returns the address with the real port.

        Raises `ConfigError` naming the address when it cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        self._server = aio.server(
            interceptors=[self._gate],
            options=CONTROL_SERVER_OPTIONS,
            maximum_concurrent_rpcs=2 * MAX_EXECUTORS,
        )
        CONTROL.check_registered(f"rpc {method.name}" for method in CONTROL_METHODS)
        rpc.add_ControlServicer_to_server(self._service, self._server)
        bound = listen_grpc(self._server, self._address, self._tls)
        await self._server.start()
        self._port = bound.port
        return bound

    async def run(self) -> None:
        """Answer until cancelled; then end all streams within `STOP_GRACE_MS` and release the port."""
        watching = [asyncio.create_task(work) for work in (self._service.watch(), self._guard_connections())]
        try:
            await self._server.wait_for_termination()
        finally:
            for task in watching:
                task.cancel()
            self._service.end_all(TryLater("the scheduler is shutting down: use another one"))
            await self._server.stop(STOP_GRACE_MS / 1e3)
            # Results that nobody takes are printed by the garbage collector, amid whatever it interrupts.
            await asyncio.gather(*watching, return_exceptions=True)

    async def _guard_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(GUARD_S)
            self._refusals.tick()
            await loop.run_in_executor(self._workers, self._guard.tick, self._port, self._calls)

    def _calls(self) -> Calls:
        return evolve(self._service.calls(), refused=self._refusals.take())

    def push(self, instance_id: str, message: ToExecutor) -> bool:
        """Send a message to an executor instance soon. False if it has no stream here now.

        True promises nothing: only what the executor reports in its heartbeats says that a message arrived.
        """
        if self._loop is None or instance_id not in self._service.peers:
            return False
        try:
            self._loop.call_soon_threadsafe(self._service.put, instance_id, Letter.of(message))
        except RuntimeError:  # the loop has ended
            return False
        return True

    async def reports(self, instances: Sequence[str], tasks: int, wait_s: float) -> dict[str, NodeReport]:
        """See `ControlService.reports`. On the loop of the server only."""
        return await self._service.reports(instances, tasks, wait_s)

    def connected(self) -> tuple[str, ...]:
        """The executor instances that have a stream here now."""
        return tuple(self._service.peers)
