"""The control port of a scheduler: it hears executors and tells them what they are to hold.

Carries values and decides nothing: every heartbeat is handed to the handler, whose answer goes back, and what the
node pushes goes to the executor instance it is meant for. Reconnecting heals everything, because the next cycle
says again whatever the executor does not report to hold.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from ballista_py.errors import TryLater
from ballista_py.state.documents import MAX_EXECUTORS
from ballista_py.transport.control_codec import ToExecutor
from ballista_py.transport.control_gate import ControlGate
from ballista_py.transport.control_service import ControlHandler, ControlService
from ballista_py.transport.credentials import Removed, Tls
from ballista_py.transport.endpoints import CONTROL_SERVER_OPTIONS, Address, listen_control
from ballista_py.transport.grpc_door import aio, rpc
from ballista_py.transport.outbox import Letter

SILENCE_MS = 60_000
WRITE_TIMEOUT_MS = 10_000
STOP_GRACE_MS = 1_000


class ControlServer:
    """A control port. `start` it, then keep `run` running on the same loop; `push` may be called from any thread.

    `address` is the bind address as `host:port`, port 0 takes a free one. `workers` run the handler. A stream over
    which nothing came for `silence_ms`, or that took longer than `write_timeout_ms` to accept one message, is cut
    off; the executor opens a new one.

    With `tls` every peer must show a certificate of its authority, and the first name in it must be the id of the
    executor that it speaks for; one in `removed` is not heard. Nor is one that names another cluster than
    `cluster_id`.
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
    ) -> None:
        self._address = Address.parse(address)
        self._tls = tls
        identities = None if tls is None else removed or Removed()
        self._cluster_id = cluster_id
        self._service = ControlService(
            scheduler_id, handler, workers, silence_ms, write_timeout_ms, identities, cluster_id
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None

    async def start(self) -> Address:
        """Listen from now on; returns the address with the real port.

        Raises `ConfigError` naming the address when it cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        self._server = aio.server(
            interceptors=[ControlGate(self._cluster_id)],
            options=CONTROL_SERVER_OPTIONS,
            maximum_concurrent_rpcs=2 * MAX_EXECUTORS,
        )
        rpc.add_ControlServicer_to_server(self._service, self._server)
        bound = listen_control(self._server, self._address, self._tls)
        await self._server.start()
        return bound

    async def run(self) -> None:
        """Answer until cancelled; then end all streams within `STOP_GRACE_MS` and release the port."""
        watching = asyncio.create_task(self._service.watch())
        try:
            await self._server.wait_for_termination()
        finally:
            watching.cancel()
            self._service.end_all(TryLater("the scheduler is shutting down: use another one"))
            await self._server.stop(STOP_GRACE_MS / 1e3)

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

    def connected(self) -> tuple[str, ...]:
        """The executor instances that have a stream here now."""
        return tuple(self._service.peers)
