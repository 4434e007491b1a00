"""An HTTP proxy that stands between a client and one server and spoils replies, chosen by a seed.

The server always carries the request out; what goes wrong is the way back, which is where clients that repeat
requests lose updates. `Expect: 100-continue` is answered here. HTTP/1.1 without TLS, on this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from attrs import frozen

from ballista_py.runtime import Condition, SystemRuntime
from ballista_py.testing.faults.chance import Chance

Spawn = Callable[[Callable[[], None]], object]
MAX_HEAD_BYTES = 1 << 16
_START_MS = 10_000.0


@frozen(kw_only=True)
class ReplyFaults:
    """The shares of replies, from 0 to 1, that meet each fault; together at most 1.

    `dropped`: the connection is closed instead. `truncated`: closed amid the reply. `delayed`: it comes `delay_ms`
    late. `duplicated`: it comes twice, and then the connection is closed. `resent`: the request reaches the
    server twice, as middleboxes do, and the second reply is passed on.
    """

    dropped: float = 0.0
    truncated: float = 0.0
    delayed: float = 0.0
    duplicated: float = 0.0
    resent: float = 0.0
    delay_ms: float = 100.0

    def of(self, chance: float) -> str | None:
        """The fault that a number in [0, 1) stands for, or None.

        >>> [ReplyFaults(dropped=0.2, delayed=0.2).of(chance) for chance in (0.1, 0.3, 0.5)]
        ['dropped', 'delayed', None]
        """
        for name in ("dropped", "truncated", "delayed", "duplicated", "resent"):
            chance -= getattr(self, name)
            if chance < 0:
                return name
        return None


@frozen
class _Request:
    method: str
    raw: bytes
    last: bool


class HttpProxy:
    """Listens on a free port of 127.0.0.1 and passes requests on to `host`:`port`. A context manager.

    `spawn` runs a function beside the caller, as `lambda run: threading.Thread(target=run, daemon=True).start()`
    does; the proxy calls it once. `only` names the methods whose replies may be spoilt; None: all. The seed fixes
    the sequence of faults, not which of several concurrent requests meets which. `counts` says what happened.
    """

    def __init__(
        self,
        host: str,
        port: int,
        faults: ReplyFaults,
        *,
        seed: int,
        spawn: Spawn,
        only: frozenset[str] | None = None,
    ) -> None:
        self.faults = faults
        self.counts: dict[str, int] = {}
        self.port = 0
        self._target = (host, port)
        self._chance = Chance(seed)
        self._spawn = spawn
        self._only = only
        self._changed: Condition = SystemRuntime().condition()
        self._stop: Callable[[], object] | None = None

    @property
    def url(self) -> str:
        """Where clients find the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> HttpProxy:
        self._spawn(lambda: asyncio.run(self._serve()))
        with self._changed:
            while self._stop is None and self._changed.wait(_START_MS):
                pass
        assert self._stop is not None, "the proxy did not start"
        return self

    def __exit__(self, *exc: object) -> None:
        if self._stop is not None:
            self._stop()

    async def _serve(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._converse, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        with self._changed:
            self._stop = lambda: loop.call_soon_threadsafe(ended.set)
            self._changed.notify_all()
        await ended.wait()
        server.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                while await self._exchange(reader, writer):
                    pass
            finally:
                writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; whether the connection can carry another."""
        request = await _read_request(reader, writer)
        fault = self.faults.of(self._chance.random()) if self._may_spoil(request) else None
        self.counts[fault or "passed"] = self.counts.get(fault or "passed", 0) + 1
        reply = await self._ask(request)
        if fault == "resent":
            reply = await self._ask(request)
        if fault == "dropped":
            return False
        if fault == "delayed":
            await asyncio.sleep(self.faults.delay_ms / 1e3)
        if fault == "truncated":
            reply = reply[: int(len(reply) * self._chance.random())]
        writer.write(reply * 2 if fault == "duplicated" else reply)
        await writer.drain()
        return fault not in ("truncated", "duplicated") and not request.last

    def _may_spoil(self, request: _Request) -> bool:
        return self._only is None or request.method in self._only

    async def _ask(self, request: _Request) -> bytes:
        """The whole reply of the server, fit for a connection that stays open."""
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            writer.write(request.raw)
            await writer.drain()
            raw = await reader.read()
        finally:
            writer.close()
        return _kept_alive(raw, request.method)


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    headers = [tuple(part.strip() for part in line.split(b":", 1)) for line in lines]
    named = {name.lower(): value for name, value in headers}
    if named.get(b"expect", b"").lower() == b"100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if named.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(named.get(b"content-length", b"0")))
    kept = [b": ".join(header) for header in headers if header[0].lower() not in (b"connection", b"expect")]
    raw = b"\r\n".join([first, *kept, b"Connection: close", b"", body])
    return _Request(first.split(b" ", 1)[0].decode(), raw, named.get(b"connection", b"").lower() == b"close")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """A chunked body as it came."""
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if size == 0:
            return body


def _kept_alive(raw: bytes, method: str) -> bytes:
    """A reply that ended with its connection, rewritten so that its length is known."""
    head, _, body = raw.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head, _, body = body.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    names = {line.split(b":", 1)[0].lower() for line in kept}
    bodiless = method == "HEAD" or first.split(b" ")[1:2] in ([b"204"], [b"304"])
    if not bodiless and not names & {b"content-length", b"transfer-encoding"}:
        kept.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([first.replace(b"HTTP/1.0", b"HTTP/1.1", 1), *kept, b"", body])
