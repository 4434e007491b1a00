"""Server-sent events: what a page shows, as it changes, until the page is closed or may look no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from attrs import frozen
from litestar import Response

from ballista_py.errors import BallistaError, Unauthenticated
from ballista_py.node.http.door import HttpCall, HttpDoor
from ballista_py.node.http.errors import HttpRefused, told
from ballista_py.transport.security.access import Caller

TICK_S = 1.0
QUIET_TICKS = 5  # after which it is said that nothing has changed
TAKEN_S = 20.0  # in which what was sent has to be taken
HEAD = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]

Look = Callable[[str | None], Mapping[str, bytes]]


class LiveAnswer(Response[bytes]):
    """What a handler gives back for events. `known` says again who looks, and raises when nobody may any more."""

    def __init__(
        self, door: HttpDoor, call: HttpCall, look: Look, known: Callable[[], Caller], hello: Mapping[str, Any]
    ) -> None:
        super().__init__(b"")
        self._sending = _Sending(door=door, call=call, look=look, known=known, hello=hello)

    def to_asgi_response(self, *_arguments: Any, **_named: Any) -> Any:
        return self._sending


@frozen(kw_only=True)
class _Sending:
    door: HttpDoor
    call: HttpCall
    look: Look
    known: Callable[[], Caller]
    hello: Mapping[str, Any]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["http_version"] == "1.0":
            raise HttpRefused(505, "events need HTTP/1.1")
        with self.door.live.enter(self.call.claimed) as end:
            watching = asyncio.create_task(_until_gone(receive, end))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": HEAD})
                await self._send(send, event("hello", orjson.dumps(self.hello)))
                await self._tell(send, end)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                self.call.connection.cut()
            finally:
                watching.cancel()

    async def _tell(self, send: Any, end: asyncio.Event) -> None:
        """Send what has changed, again and again."""
        sent: dict[str, bytes] = {}
        quiet = 0
        while not end.is_set():
            try:
                found = await self._looked()
            except Unauthenticated as error:
                await self._send(send, event("bye", orjson.dumps(told(error))))
                return
            except BallistaError as error:  # the node is busy: the next look may be better
                found = {"trouble": orjson.dumps(told(error))}
            else:
                sent.pop("trouble", None)
            changed = {name: data for name, data in found.items() if sent.get(name) != data}
            sent |= changed
            quiet = 0 if changed else quiet + 1
            text = b"".join(event(name, data) for name, data in changed.items())
            if quiet >= QUIET_TICKS:
                text, quiet = event("same", b"{}"), 0
            if text:
                await self._send(send, text)
            with suppress(TimeoutError):
                await asyncio.wait_for(end.wait(), TICK_S)

    async def _looked(self) -> Mapping[str, bytes]:
        """What there is to see now. Raises `Unauthenticated` when whoever looks may not any more."""
        caller = self.known()
        if caller != self.call.caller:
            raise Unauthenticated("the token belongs to somebody else by now: send it again")
        return await self.door.run_call(
            self.call,
            lambda opened: self.look(None if caller.kind == "viewer" else opened.context.work.client),
        )

    async def _send(self, send: Any, data: bytes) -> None:
        """Raises `TimeoutError` when nobody takes it."""
        await asyncio.wait_for(send({"type": "http.response.body", "body": data, "more_body": True}), TAKEN_S)


def event(name: str, data: bytes) -> bytes:
    """One event, whose data is JSON: that has no line ends.

    >>> event("same", b"{}")
    b'event: same\\ndata: {}\\n\\n'
    """
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


async def _until_gone(receive: Any, end: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    end.set()
