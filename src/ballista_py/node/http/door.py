"""The way from a request to the thread that answers it, and back: the same door that calls of Flight go through.

A handler runs on the loop of the port and does nothing that waits; what does is given to `HttpDoor`, which lets it run
on a thread, as a call among those of the node: with its caller, limits and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from attrs import define, field, frozen
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import NotFoundException
from litestar.handlers import BaseRouteHandler

from ballista_py.errors import TransportError, TryLater, Unauthenticated
from ballista_py.node.http.asked_as import QUERY, require_known_query, require_plain_body
from ballista_py.node.http.callers import HttpCallers, Shown, require_own_site, required
from ballista_py.node.http.connections import HttpConnection
from ballista_py.node.http.errors import HttpRefused
from ballista_py.node.http.live_streams import LiveStreams
from ballista_py.node.http.posted import read_body
from ballista_py.traces import TRACE_HEADER, TraceContext, read_parent
from ballista_py.transport.flight.calls import Door, OpenCall, OpenCalls
from ballista_py.transport.flight.listener import CallThreads
from ballista_py.transport.security.access import Access, Caller
from ballista_py.transport.security.callers import Refusals

T = TypeVar("T")
LOOK_S = 0.1
CALLER, VERB = "caller", "verb"


@define(eq=False)
class HttpCall:
    """One request as a call. `gone` is set on the loop once its client went away.

    `trace` is what its client said that it is part of.
    """

    caller: Caller
    verb: str
    connection: HttpConnection
    trace: TraceContext | None = None
    gone: bool = False

    @property
    def claimed(self) -> str:
        return self.caller.name

    def peer(self) -> str:
        host, port = self.connection.peer
        return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def is_cancelled(self) -> bool:
        return self.gone


@frozen(kw_only=True)
class HttpDoor:
    """Lets requests in. `statements` are the calls of the node among which those of clients count; who only looks is
    counted among `looks`, so that a node can be looked at while it answers as many statements as it may.
    """

    access: Access
    callers: HttpCallers
    statements: OpenCalls
    looks: OpenCalls
    threads: CallThreads
    refusals: Refusals
    live: LiveStreams = field(init=False, factory=LiveStreams)
    _running: set[OpenCall] = field(init=False, factory=set)
    _door: Door = field(init=False)

    @_door.default
    def _by_http(self) -> Door:
        return Door(self.access, Shown())

    def guard(self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        """Before every handler: who it is, whether he may, and that he says nothing beside that nobody would read.

        Raises `Unauthenticated` and `HttpRefused`.
        """
        scope: Any = connection.scope
        if scope["method"] == "OPTIONS":  # says which methods there are, and no more
            return
        verb = verb_of(scope["method"], scope["path_template"])
        who = required(self.access, verb)
        if not who:
            raise NotFoundException
        link: HttpConnection = connection.scope["state"]["connection"]
        try:
            caller = self.callers.caller(who, connection.headers.get("authorization", ""), link.peer[0])
            try:
                self.access.check(verb, caller)
            except Unauthenticated as error:
                wanted = " or a ".join(sorted(who))
                raise HttpRefused(
                    403, f"this is not for a {caller.kind}: it takes the token of a {wanted}", error.code
                ) from None
            if "anyone" not in who:
                origin, fetched, host = (
                    connection.headers.get(n, "") for n in ("origin", "sec-fetch-site", "host")
                )
                require_own_site(origin, fetched, host, caller.kind is not None)
        except Exception as error:
            self.refusals.note("ip:{}:{}".format(*link.peer), error)
            raise
        if "anyone" not in who:
            require_known_query(scope["query_string"], handler.opt.get(QUERY, {}))
            require_plain_body(connection.headers)
        connection.scope["state"] |= {CALLER: caller, VERB: verb}

    def call(self, request: Request[Any, Any, Any]) -> HttpCall:
        """The request that the guard let in, as a call."""
        state = request.scope["state"]
        trace = read_parent(request.headers.get(TRACE_HEADER, ""))
        return HttpCall(state[CALLER], state[VERB], state["connection"], trace)

    def looks_as(self, request: Request[Any, Any, Any]) -> str | None:
        """The client who asks, of no name where clients prove none; None for a viewer: see `seen_tasks`."""
        caller: Caller = request.scope["state"][CALLER]
        return None if caller.kind == "viewer" else caller.name if caller.kind == "client" else ""

    async def body(self, request: Request[Any, Any, Any], most: int) -> bytes:
        """The body of a request, which counts among the calls of its client and among their messages as it comes.

        Raises as `read_body`, and `TryLater` when too many calls or bytes are here already.
        """
        call = self.call(request)
        calls = self._calls_of(call)
        calls.begin(call.claimed)
        try:
            with calls.holding(call.claimed) as hold:
                return await read_body(request, most, hold)
        finally:
            calls.end(call.claimed)

    async def run(self, request: Request[Any, Any, Any], work: Callable[[OpenCall], T]) -> T:
        """What `work` gives, on a thread, as a call. Raises what it raises, and as `OpenCalls.enter`."""
        return await self.run_call(self.call(request), work)

    async def run_call(self, call: HttpCall, work: Callable[[OpenCall], T], held_bytes: int = 0) -> T:
        """As `run`; what the request holds counts among the messages of its client."""
        calls = self._calls_of(call)

        def answered() -> T:
            with calls.enter(call, call.verb, self._door) as opened, ExitStack() as over:
                over.enter_context(calls.holding(call.claimed))(held_bytes)
                self._running.add(opened)
                over.callback(self._running.discard, opened)
                return work(opened)

        calls.begin(call.claimed)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, answered)
        finally:
            calls.end(call.claimed)

    def _calls_of(self, call: HttpCall) -> OpenCalls:
        return self.looks if "viewer" in required(self.access, call.verb) else self.statements

    def close(self) -> None:
        """Ask all that were let in to end."""
        self.live.close()
        for opened in list(self._running):
            opened.ask_to_end(TryLater("the node is shutting down: ask another one"))


class Outlet:
    """What a thread sends to the client of one request: a piece waits until the one before it is taken."""

    def __init__(self, send: Callable[[Any], Any], call: HttpCall, loop: asyncio.AbstractEventLoop) -> None:
        self._send = send
        self._call = call
        self._loop = loop
        self.has_begun = False
        self.is_ending = (
            False  # its last piece is on its way: to its watcher a whole answer looks like a client gone
        )
        self.has_ended = False

    def begin(self, opened: OpenCall, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the head of the answer. From now on an error can be said only by breaking off."""
        self.has_begun = True
        self._put(opened, {"type": "http.response.start", "status": status, "headers": headers})

    def write(self, opened: OpenCall, data: bytes, more: bool = True) -> None:
        """Send a piece. Raises `TransportError` when nobody reads any more, and why the call is to end."""
        self.is_ending = not more
        self._put(opened, {"type": "http.response.body", "body": data, "more_body": more})

    def _put(self, opened: OpenCall, message: dict[str, Any]) -> None:
        if self._call.gone:
            raise TransportError("the reader of the answer went away")
        with opened.sending():
            sent = asyncio.run_coroutine_threadsafe(self._send(message), self._loop)
            while True:
                with suppress(TimeoutError):
                    sent.result(LOOK_S)
                    self.has_ended = self.is_ending
                    return
                if opened.reason is not None or self._call.gone:
                    sent.cancel()
                    return


def verb_of(method: str, path: str) -> str:
    """The verb as the table of access writes it: names in paths without their types.

    >>> verb_of("DELETE", "/v1/tasks/{task_id:str}")
    'DELETE /v1/tasks/{task_id}'
    """
    parts = (part.strip("{}").partition(":")[0].join("{}") if "{" in part else part for part in path.split("/"))
    return f"{method} {'/'.join(parts)}"
