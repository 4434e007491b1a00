"""An answer in rows on its way to a client of HTTP: a piece at a time, as far as it is read, and never short and whole.

What goes wrong before the first piece is an error with its status. After that the answer breaks off: the connection is
closed without the end of a chunked body, which every client of HTTP/1.1 takes for an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from typing import Any

import pyarrow as pa
from attrs import frozen
from litestar import Response

from ballista_py.node.http.door import HttpCall, HttpDoor, Outlet
from ballista_py.node.http.errors import HttpRefused, error_reply, told
from ballista_py.node.http.forms import Form
from ballista_py.transport.arrow.frames import answer_portions
from ballista_py.transport.flight.calls import OpenCall
from ballista_py.transport.flight.holdings import paced
from ballista_py.transport.flight.listener import forget_places
from ballista_py.transport.flight.server import StreamResult
from ballista_py.work import each_working

BREAK_S = 1.0
Run = Callable[[OpenCall], StreamResult]


class StreamedAnswer(Response[bytes]):
    """What a handler gives back for rows that are still to be made."""

    def __init__(self, door: HttpDoor, call: HttpCall, run: Run, form: Form, held_bytes: int) -> None:
        super().__init__(b"")
        self._sending = _Sending(door=door, call=call, run=run, form=form, held_bytes=held_bytes)

    def to_asgi_response(self, *_arguments: Any, **_named: Any) -> Any:
        return self._sending


@frozen(kw_only=True)
class _Sending:
    door: HttpDoor
    call: HttpCall
    run: Run
    form: Form
    held_bytes: int

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["http_version"] == "1.0":
            raise HttpRefused(505, "an answer in rows needs HTTP/1.1: in 1.0 one that breaks off would look whole")
        outlet = Outlet(send, self.call, asyncio.get_running_loop())
        watching = asyncio.create_task(self._until_gone(receive, outlet))
        try:
            await self.door.run_call(self.call, lambda opened: self._send(opened, outlet), self.held_bytes)
        except Exception as error:
            if outlet.has_ended:
                pass  # it was whole before something ended the call: there is nothing to break off
            elif outlet.has_begun:
                await self._break_off(error, send)
            else:
                await _refuse(error, send)
            forget_places(error)
        finally:
            watching.cancel()

    async def _until_gone(self, receive: Any, outlet: Outlet) -> None:
        """Until the client goes away. The server says so, too, when it has sent an answer to its end."""
        while (await receive())["type"] != "http.disconnect":
            pass
        if not outlet.is_ending:
            self.call.gone = True

    def _send(self, opened: OpenCall, outlet: Outlet) -> None:
        result = self.run(opened)
        form = self.form
        with ExitStack() as over:
            opened.attach(result.cancel)
            batches = self._batches(result, opened, over)
            over.callback(result.cancel)
            first = next(batches, None)  # until there is one, an error has a status
            head = form.begin(result.schema)
            data = head if first is None else head + form.rows(first)
            outlet.begin(opened, 200, [(b"content-type", form.media_type.encode())])
            if data:
                outlet.write(opened, data)
            for batch in batches:
                data = form.rows(batch)
                if data:
                    outlet.write(opened, data)
            if opened.reason is not None:
                raise opened.reason
            outlet.write(opened, form.end(), more=False)

    def _batches(self, result: StreamResult, opened: OpenCall, over: ExitStack) -> Iterator[pa.RecordBatch]:
        """The batches of the answer. They are closed when it is `over`, here and now: what is left to the collector of
        garbage holds memory until then, and ends wherever it happens to be looked for.
        """
        reserved = paced(result.batches, opened.budget, opened.context.caller)
        made = each_working(opened.context.work, reserved)
        for one in (result.batches, reserved, made):
            if isinstance(one, Generator):
                over.callback(one.close)
        size = int(opened.message_bytes() * self.form.wants_bytes)
        return chain.from_iterable(answer_portions(batch, size) for batch in made)

    async def _break_off(self, error: Exception, send: Any) -> None:
        """Say what can be said, and close without an end."""
        said = told(error)
        last = self.form.broken(said)
        connection = self.call.connection
        if last and not self.call.gone:
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    send({"type": "http.response.body", "body": last, "more_body": True}), BREAK_S
                )
                await asyncio.sleep(0)
        connection.finish()


async def _refuse(error: Exception, send: Any) -> None:
    reply = error_reply(error)
    headers = {"content-type": "application/json", "content-length": str(len(reply.body)), **reply.headers}
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
    await send({"type": "http.response.body", "body": reply.body, "more_body": False})
