"""A small HTTP port for people and probes: `GET` of a few paths, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import orjson
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError

SLOW_CLIENT_S = 10.0
JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


@frozen
class Reply:
    """What a path answers."""

    body: bytes
    content_type: str = JSON
    status: int = 200


Routes = Mapping[str, Callable[[], Reply]]


def json_reply(value: Any, status: int = 200) -> Reply:
    """`value` as JSON."""
    return Reply(
        orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS), JSON, status
    )


class HttpPort:
    """Listens from construction until `close`; port 0 takes a free one. Raises `ConfigError` for one in use.

    An error of our tree in a route is answered as 503 with its message, any other as 500 with none. A client that
    is slow is dropped after `SLOW_CLIENT_S`.
    """

    def __init__(self, host: str, port: int, routes: Routes) -> None:
        try:
            self._server = _Server((host, port), _handler(routes))
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or sent nonsense, is none of the node's trouble."""


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOW_CLIENT_S
        server_version = "ballista_py"
        sys_version = ""

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            reply = json_reply({"error": "no such path", "paths": sorted(routes)}, 404)
            if route is not None:
                try:
                    reply = route()
                except BallistaError as error:
                    reply = json_reply({"error": error.message, "code": error.code}, 503)
                except Exception as error:
                    reply = json_reply({"error": f"internal error ({type(error).__name__})"}, 500)
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Probes come every few seconds; they are not worth a line each."""

    return Handler
