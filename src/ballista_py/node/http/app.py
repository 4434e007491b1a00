"""The ASGI application of an HTTP port: routes, one guard before all of them, one way in which errors are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from litestar import Litestar, Request, Response
from litestar.config.app import AppConfig
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp, Receive, Send

from ballista_py.node.http.door import HttpDoor, verb_of
from ballista_py.node.http.errors import JSON, HttpRefused, error_reply
from ballista_py.spared import without

ENTRY_BYTES = 32  # of a header besides its name and value
MAX_PATH_CHARS = 4_096
_REFUSED = {
    400: "the request is not one that this path takes",
    405: "this path does not answer that method",
    413: "the body of the request is too large",
}


class HttpApp:
    """Routes behind one `door`. `paths` and `verbs` are all that it answers.

    Raises `AssertionError` for a route that the table of access does not have.
    """

    def __init__(self, door: HttpDoor, handlers: Sequence[HTTPRouteHandler], header_bytes: int) -> None:
        self.verbs = frozenset(_verbs(handlers))
        self.paths = tuple(sorted({verb.partition(" ")[2] for verb in self.verbs}))
        door.access.check_registered(self.verbs)
        self._header_bytes = header_bytes
        with without("pydantic"):  # of which no route of ours has a model; its plugin for them would be 6 MB
            self._app: ASGIApp = Litestar(
                route_handlers=list(handlers),
                guards=[door.guard],
                exception_handlers={HTTPException: self._http_error, Exception: _error},
                openapi_config=_openapi(),
                logging_config=None,
                on_app_init=[_bare],
                debug=False,
            )

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request. No error gets out of here: who serves this would log it."""
        has_begun = False

        async def noting(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            self._measure(scope)
            if scope["method"] == "HEAD":  # the server sends no body then
                scope = {**scope, "method": "GET"}
            await self._app(scope, receive, noting)
        except Exception as error:
            if has_begun:
                scope["state"]["connection"].cut()
                return
            await _send(error_reply(error), send)

    def _measure(self, scope: Any) -> None:
        """Raises `HttpRefused` for a head that came at once and is larger than one that comes in pieces may be."""
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + ENTRY_BYTES for name, value in scope["headers"])
        if size > self._header_bytes or len(scope["raw_path"]) > MAX_PATH_CHARS:
            raise HttpRefused(431, "the head of the request is too large", "invalid_data")

    def _http_error(self, _request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
        """What the framework refuses, without what the client wrote."""
        status = error.status_code
        if status == 404:
            return _response(HttpRefused(404, "no such path", paths=list(self.paths)))
        if status >= 500:
            return _response(error)
        response = _response(HttpRefused(status, _REFUSED.get(status, _REFUSED[400])))
        response.headers.update({k: v for k, v in (error.headers or {}).items() if k.lower() == "allow"})
        return response


def json_bytes(value: Any) -> bytes:
    """`value` as JSON for people and programs."""
    return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def json_response(value: Any, status: int = 200) -> Response[bytes]:
    """An answer of JSON."""
    return Response(json_bytes(value), status_code=status, media_type=JSON)


def _error(_request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return _response(error)


def _response(error: Exception) -> Response[bytes]:
    reply = error_reply(error)
    return Response(reply.body, status_code=reply.status, media_type=JSON, headers=dict(reply.headers))


async def _send(reply: Any, send: Any) -> None:
    fields = {"content-type": JSON, "content-length": str(len(reply.body)), **reply.headers}
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body, "more_body": False})


def _verbs(handlers: Iterable[HTTPRouteHandler]) -> Iterable[str]:
    for handler in handlers:
        for path in handler.paths:
            for method in handler.http_methods:
                yield verb_of(HttpMethod(method).value, path)


def _bare(config: AppConfig) -> AppConfig:
    """Nothing that the framework adds by itself and nobody asked for."""
    config.cors_config = config.csrf_config = config.compression_config = None
    config.allowed_hosts = None
    return config


def _openapi() -> OpenAPIConfig:
    """The document is made when it is asked for first. Its own pages are in no table of access, so nobody sees them."""
    token = SecurityScheme(type="http", scheme="bearer", description="Where the cluster asks for tokens.")
    return OpenAPIConfig(
        title="ballista_py",
        version="1",
        description="Statements and the state of a cluster, at one of its nodes.",
        components=Components(security_schemes={"token": token}),
        security=[{"token": []}, {}],
        path="/openapi",
        render_plugins=[JsonRenderPlugin()],
        use_handler_docstrings=True,
    )
