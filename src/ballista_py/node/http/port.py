"""One HTTP port: accepts, shakes hands and hands each connection to uvicorn's protocol, with bounds on all of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from typing import Any

from uvicorn.server import ServerState

from ballista_py.errors import ConfigError
from ballista_py.node.http.connections import HttpConnection, HttpConnections, HttpLimits
from ballista_py.node.http.protocol import HttpProtocol, protocol_config
from ballista_py.runtime import Runtime
from ballista_py.threads import EventLoopThread
from ballista_py.transport.front.server_certificate import ServerCertificate
from ballista_py.transport.security.callers import Refusals
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.sockets import peer_of

HANDSHAKE_S = 10.0
GOODBYE_S = 1.0
TICK_S = 0.25
END_S = 3.0
BACKLOG = 128
NO_FILES_S = 0.1
_HEADERS = (
    (b"server", b"ballista_py"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


class HttpPort:
    """Listens from construction until `close`, on the loop of `thread`; port 0 takes a free one.

    `app` is an ASGI application that raises nothing. With `tls` the port speaks nothing else; files that are replaced
    count for the next connection. `tick` is called several times a second on the loop. Raises `ConfigError` for a port
    in use and for files that cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        app: Any,
        thread: EventLoopThread,
        runtime: Runtime,
        *,
        tls: Tls | None = None,
        limits: HttpLimits | None = None,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        limits = limits or HttpLimits()
        self.connections = HttpConnections(limits, runtime)
        self._certificate = None
        if tls is not None:
            self._certificate = ServerCertificate(tls, runtime, protocols=("http/1.1",), look_ms=0.0)
        self._config = protocol_config(app, limits.header_bytes)
        self._state = ServerState()
        self._refusals = Refusals(runtime)
        self._also_tick = tick
        self._thread = thread
        self._serving: set[asyncio.Task[None]] = set()
        self._listener = _listener(host, port)
        self.port: int = self._listener.getsockname()[1]
        thread.call(self._open())

    def close(self) -> None:
        """Release the port. Answers under way have `END_S` to end; then they are cut."""
        self._thread.call(self._close())

    async def _open(self) -> None:
        self._note_date()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._accept(loop)), loop.create_task(self._tick())]

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                link, place = await loop.sock_accept(self._listener)
            except OSError:  # no file can be opened: those that are open go in their time
                await asyncio.sleep(NO_FILES_S)
                continue
            connection = self.connections.admit(link, peer_of(place))
            if connection is None:
                link.close()
                continue
            task = loop.create_task(self._serve(loop, connection))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, loop: asyncio.AbstractEventLoop, connection: HttpConnection) -> None:
        """Shake hands, which holds up nobody else; from then on the protocol is called."""
        context = None if self._certificate is None else self._certificate.context()
        waits = (
            {} if context is None else {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}
        )
        try:
            await loop.connect_accepted_socket(
                lambda: HttpProtocol(self._config, self._state, self.connections, connection),
                connection.link,
                ssl=context,
                **waits,
            )
        except OSError as error:
            self.connections.forget(connection)
            host, port = connection.peer
            reason = getattr(error, "reason", None) or type(error).__name__
            self._refusals.note(f"ip:{host}:{port}", f"its handshake failed: {reason}")
            with suppress(OSError):
                connection.link.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.connections.tick()
            self._refusals.tick()
            self._also_tick()
            self._note_date()

    def _note_date(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode()), *_HEADERS]

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await _ended(self._tasks)
        self._listener.close()
        for one in self.connections.all():
            if not one.answering:
                one.cut()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=END_S)
        for one in self.connections.all():
            one.cut()
        await _ended([*self._serving, *self._state.tasks])


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(_gathered(tasks), GOODBYE_S)


def _gathered(tasks: list[asyncio.Task[None]]) -> Awaitable[Any]:
    return asyncio.gather(*tasks, return_exceptions=True)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError:
        raise ConfigError(
            f"cannot listen on {host}:{port}: the port is in use or the address is not of this machine; "
            "take another one, or port 0 for any free one"
        ) from None
    made.setblocking(False)
    return made
