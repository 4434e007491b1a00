"""An answer in rows that is whole leaves its connection as it was, however late its thread hears of that."""

from __future__ import annotations

import asyncio
import http.client
import time
from types import SimpleNamespace

import pyarrow as pa
from litestar import Request, get

from ballista_py.node.http import app as http_app
from ballista_py.node.http import door as http_door
from ballista_py.node.http.answering import StreamedAnswer
from ballista_py.node.http.forms import form_for
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.security.access import Access

ROWS = pa.record_batch({"n": [1, 2]})
PAUSE_S = 0.3


def test_a_thread_that_stands_still_behind_its_last_piece_closes_no_connection(serve, monkeypatch):
    """To whoever waits for a client to go, a server says the same when an answer has been sent to its end."""
    access = Access("test", {"GET /rows": ["anyone"]})
    doors = []

    class Late:
        """What a thread that is paused has of a piece on its way; meanwhile the port looks whose client is gone."""

        def __init__(self, coroutine, loop):
            self._sent = asyncio.run_coroutine_threadsafe(coroutine, loop)

        def result(self, timeout):
            found = self._sent.result(timeout)
            time.sleep(PAUSE_S)
            doors[0].statements.tick()
            return found

    made = http_app.HttpApp.__init__

    def with_rows(self, door, handlers, header_bytes):
        doors.append(door)

        async def handler(request: object) -> object:
            def answer(_opened):
                return StreamResult(schema=ROWS.schema, batches=[ROWS])

            return StreamedAnswer(door, door.call(request), answer, form_for("text/csv"), 0)

        handler.__annotations__ = {"request": Request, "return": StreamedAnswer}
        made(self, door, [get("/rows")(handler)], header_bytes)

    monkeypatch.setattr(http_app.HttpApp, "__init__", with_rows)
    late = SimpleNamespace(run_coroutine_threadsafe=Late, get_running_loop=asyncio.get_running_loop)
    monkeypatch.setattr(http_door, "asyncio", late)
    link = http.client.HTTPConnection("127.0.0.1", serve({"/rows": lambda: None}, access).port, timeout=30)
    link.connect()
    link.auto_open = False  # another connection would hide that this one is gone
    for _ in range(2):
        link.request("GET", "/rows")
        answer = link.getresponse()
        assert answer.read() == b'"n"\r\n1\r\n2\r\n'
        time.sleep(2 * PAUSE_S)
    link.close()
