"""The page of a node: its files, which say nothing of anybody, and the events that fill it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Annotated, Any

from attrs import frozen
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter

from ballista_py.node.http.callers import required
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.errors import HttpRefused
from ballista_py.node.http.feed import Feed, Part
from ballista_py.node.http.live import LiveAnswer
from ballista_py.node.http.routes_node import REFUSED
from ballista_py.runtime import Runtime

FOLDER = "page"
INDEX = "index.html"
TYPES: Mapping[str, str] = {  # texts are UTF-8, which the framework says
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
# Nothing but its own files, no script or style within the page, no frame around it, no form that is sent anywhere.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_NAME = Parameter(max_length=64, description="a file of the page")


@frozen(kw_only=True)
class PageShows:
    """Which node a page is of, and the parts that it is shown."""

    node_id: str
    role: str
    parts: Sequence[Part]


def routes(shows: PageShows, door: HttpDoor, runtime: Runtime) -> list[HTTPRouteHandler]:
    """`/`, the files below `/page`, and `/v1/events`."""
    known, feed = _names(), Feed(shows.parts, runtime)
    about = {"node_id": shows.node_id, "role": shows.role, "parts": [part.name for part in shows.parts]}

    @get("/", sync_to_thread=False, include_in_schema=False, media_type=TYPES["html"])
    def index() -> Response[bytes]:
        """The page."""
        return _file(INDEX)

    @get("/page/{name:str}", sync_to_thread=False, include_in_schema=False)
    def file(name: Annotated[str, _NAME]) -> Response[bytes]:
        """A file of the page."""
        if name not in known:
            raise HttpRefused(404, "the page has no such file")
        return _file(name)

    @get("/v1/events", responses=REFUSED, include_in_schema=False)
    async def events(request: Request[Any, Any, Any]) -> LiveAnswer:
        """What the page shows, as server-sent events that do not end."""
        call = door.call(request)
        authorization, who = request.headers.get("authorization", ""), required(door.access, call.verb)
        hello = {**about, "client": call.caller.name, "kind": call.caller.kind}
        host = call.connection.peer[0]
        return LiveAnswer(door, call, feed.look, lambda: door.callers.caller(who, authorization, host), hello)

    return [index, file, events]


def _names() -> frozenset[str]:
    """The files that there are; nothing else is looked for."""
    return frozenset(
        entry.name for entry in files(__package__).joinpath(FOLDER).iterdir() if _ending(entry.name) in TYPES
    )


def _file(name: str) -> Response[bytes]:
    """Read when it is asked for: pages are opened seldom, and a node need not hold them."""
    data = files(__package__).joinpath(FOLDER, name).read_bytes()
    return Response(data, media_type=TYPES[_ending(name)], headers=dict(HEADERS))


def _ending(name: str) -> str:
    return name.rpartition(".")[2]
