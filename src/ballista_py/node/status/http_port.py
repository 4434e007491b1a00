"""A small HTTP port for people and probes: `GET` of a few paths, nothing else; over TLS, for who may, and with bounds
on everything that a client can make it hold: connections, threads, bytes, time.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import orjson
from attrs import evolve, field, frozen

from ballista_py.errors import BallistaError, ConfigError, Unauthenticated, to_wire
from ballista_py.node.status.http_connections import HttpConnections, HttpLimits
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.transport.security.access import Access, Caller
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.security.refusals import Refusals
from ballista_py.transport.security.tokens import TokenVerifier, bearer_token
from ballista_py.transport.sockets import peer_of

SLOW_CLIENT_S = 10.0
LINE_BYTES = 64 << 10
JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


@frozen
class Reply:
    """What a path answers."""

    body: bytes
    content_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)


Routes = Mapping[str, Callable[[], Reply]]


def _told(error: Exception, status: int) -> Reply:
    wire = to_wire(error)
    return json_reply({"error": wire["message"], "code": wire["code"]}, status)


def json_reply(value: Any, status: int = 200) -> Reply:
    """`value` as JSON."""
    return Reply(
        orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS), JSON, status
    )


class HttpPort:
    """Listens from construction until `close`; port 0 takes a free one.

    With `tls` it speaks nothing else; files that are replaced count for the next connection. `access` says who may
    see which path; with a `verifier` a client is whoever shows a token. Raises `ConfigError` for a port in use
    and for files that cannot be used, and `AssertionError` for a route that `access` does not have.

    An error of our tree in a route is answered as 503 with its message, any other as 500 with none. A client that
    is slow is dropped after `SLOW_CLIENT_S`, and after the time of `limits` in any case.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Routes,
        *,
        access: Access,
        tls: Tls | None = None,
        verifier: TokenVerifier | None = None,
        limits: HttpLimits | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.paths = tuple(routes)
        access.check_registered(f"GET {path}" for path in routes)
        shield = None if tls is None else _Shield(tls)
        limits = limits or HttpLimits()
        runtime = runtime or SystemRuntime()
        self.connections = HttpConnections(limits, runtime)
        handler = _handler(routes, verifier, access, limits, self.connections)
        try:
            self._server = _Server((host, port), handler, shield, self.connections, runtime)
        except OSError:
            raise ConfigError(
                f"cannot listen on {host}:{port}: the port is in use or the address is not of this machine; "
                "take another one, or port 0 for any free one"
            ) from None
        self.port: int = self._server.server_address[1]
        Thread(target=self._server.serve_forever, name=f"http-{self.port}", daemon=True).start()

    def close(self) -> None:
        """Release the port."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        shield: _Shield | None,
        connections: HttpConnections,
        runtime: Runtime,
    ) -> None:
        self._refusals = Refusals(runtime)
        self._shield = shield
        self._connections = connections
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Before there is a thread for it."""
        return self._connections.admit(request, client_address[0])

    def service_actions(self) -> None:
        """Between two requests, and twice a second."""
        self._connections.tick()
        self._refusals.tick()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """On the thread of the request, so that a slow handshake holds up nobody."""
        try:
            self._finish(request, client_address)
        finally:
            self._connections.forget(request)

    def _finish(self, request: Any, client_address: Any) -> None:
        if self._shield is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(SLOW_CLIENT_S)
        shielded = self._shield.wrap(request)
        self._connections.wrapped(request, shielded)
        try:
            shielded.do_handshake()
        except OSError as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            host, port = peer_of(client_address)
            self._refusals.note(f"ip:{host}:{port}", f"its handshake failed: {reason}")
            shielded.close()
            raise
        try:
            super().finish_request(shielded, client_address)
        finally:
            with suppress(OSError, ValueError):
                shielded.unwrap()  # says that there is no more; a client that has gone need not hear it
            shielded.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or sent nonsense, is none of the node's trouble."""


class _Shield:
    """TLS on accepted connections, with the files as they are now."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._in_use = tls.fingerprint(), self._load()

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection, before its handshake. Raises `OSError`."""
        files, context = self._in_use
        now = self._tls.fingerprint()
        if now != files:
            with suppress(ConfigError):  # amid a replacement: look again next time
                context = self._load()
                self._in_use = now, context
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _load(self) -> ssl.SSLContext:
        self._tls.check()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(str(self._tls.certificate_file), self._tls.key_file)
        return context


class _Bounded:
    """A file of which a client can make the reader read no more than `left` bytes."""

    def __init__(self, file: Any, left: int) -> None:
        self._file = file
        self._left = left

    def readline(self, size: int) -> bytes:
        """Raises `LineTooLong` beyond the bound."""
        line: bytes = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("request")
        return line

    def close(self) -> None:
        self._file.close()


def _handler(
    routes: Routes,
    verifier: TokenVerifier | None,
    access: Access,
    limits: HttpLimits,
    connections: HttpConnections,
) -> type[BaseHTTPRequestHandler]:
    def may(path: str, authorization: str | None) -> None:
        caller = Caller("")
        if verifier is not None:
            open_to_all = "anyone" in access.verbs.get(f"GET {path}", ())
            name = "" if open_to_all else verifier.verify(bearer_token(authorization or ""))
            caller = Caller(name, "anyone" if open_to_all else "client")
        access.check(f"GET {path}", caller)

    class Handler(BaseHTTPRequestHandler):
        timeout = SLOW_CLIENT_S
        server_version = "ballista_py"
        default_request_version = "HTTP/1.0"  # before that an answer had no status, and an error looks like a page
        sys_version = ""

        def setup(self) -> None:
            super().setup()
            self.rfile = _Bounded(self.rfile, limits.request_bytes)  # type: ignore[assignment]

        def do_GET(self) -> None:
            connections.answering(self.connection)
            path = self.path.partition("?")[0]
            route = routes.get(path)
            reply = json_reply({"error": "no such path", "paths": sorted(routes)}, 404)
            if route is not None:
                try:
                    may(path, self.headers.get("Authorization"))
                    reply = route()
                except Unauthenticated as error:
                    reply = evolve(_told(error, 401), headers={"WWW-Authenticate": "Bearer"})
                except Exception as error:
                    reply = _told(error, 503 if isinstance(error, BallistaError) else 500)
            self._send(reply)

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """What the library itself refuses, without what the client wrote."""
            self.close_connection = True
            self._send(json_reply({"error": HTTPStatus(code).phrase}, code))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Probes come every few seconds; they are not worth a line each."""

    return Handler
