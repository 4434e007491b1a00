"""HTTP/1.1 over one connection: uvicorn's protocol over h11, told what a stranger may make it hold.

uvicorn reads and writes HTTP; what is added here is who is counted, what is refused before the application sees it, and
that nothing of it is logged: strangers would fill the log.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from typing import Any

import h11
import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ballista_py.node.http.connections import HttpConnection, HttpConnections
from ballista_py.node.http.strict import StrictConnection

KEEP_ALIVE_S = 10
CONNECTION = "connection"  # where the application finds its connection in the state of a request
_SILENT = logging.Logger("silent", logging.CRITICAL + 1)
_PHRASES = {
    400: "the request is not valid HTTP, or can be read in two ways: one length, each header of its kind once",
    431: "the head of the request is too large",
    505: "this port speaks HTTP/1.1",
}


def protocol_config(app: Any, header_bytes: int) -> Config:
    """What uvicorn needs to know: no WebSockets, no headers of proxies that anybody can send, no logs."""
    config = Config(
        app,
        interface="asgi3",
        http=H11Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=header_bytes,
    )
    config.load()
    return config


class HttpProtocol(H11Protocol):
    """One connection that was let in, until it is lost."""

    def __init__(
        self, config: Config, state: ServerState, connections: HttpConnections, connection: HttpConnection
    ) -> None:
        super().__init__(config, state, {CONNECTION: connection})
        assert config.h11_max_incomplete_event_size is not None
        self.conn = StrictConnection(h11.SERVER, config.h11_max_incomplete_event_size)
        self.logger = _SILENT
        self._counted = connections
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._connection.abort, self._connection.close = transport.abort, self._finish
        super().connection_made(transport)

    def _finish(self) -> None:
        self._counted.answered(self._connection)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._counted.forget(self._connection)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._counted.asked(self._connection)

    def on_response_complete(self) -> None:
        self._counted.answered(self._connection)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What h11 refuses, with the status that it has for that, and without what the client wrote."""
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        status = status if status in _PHRASES else 400
        body = orjson.dumps({"error": _PHRASES[status], "code": "invalid_data"})
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # amid an answer: nothing else can be said
            return
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *self.server_state.default_headers,
        ]
        with suppress(
            h11.LocalProtocolError
        ):  # the answer to a HEAD, and of what h11 has read so far, has no body
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
