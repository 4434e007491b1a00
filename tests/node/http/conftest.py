"""HTTP ports of this process, with routes of a test."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from litestar import get

from ballista_py.node.http.app import HttpApp, json_response
from ballista_py.node.http.callers import HttpCallers
from ballista_py.node.http.connections import HttpLimits
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.port import HttpPort
from ballista_py.runtime import SystemRuntime
from ballista_py.threads import EventLoopThread, spawn
from ballista_py.transport.flight.calls import OpenCalls
from ballista_py.transport.flight.listener import CallThreads
from ballista_py.transport.security.access import Access
from ballista_py.transport.security.callers import Refusals


def route(path, answer, door):
    """A `GET` whose answer is made on a thread, as those of a node are."""

    async def handler(request: object) -> object:
        return json_response(await door.run(request, lambda _: answer()))

    from litestar import Request, Response

    handler.__annotations__ = {"request": Request, "return": Response[bytes]}
    return get(path)(handler)


@pytest.fixture
def serve():
    """Ports with such routes: `serve({"/a": function}, access=…)`."""
    with ExitStack() as up:

        def start(
            answers,
            access=None,
            *,
            verifier=None,
            tls=None,
            limits=None,
            calls=None,
            port=0,
            more=None,
            viewers=None,
        ):
            runtime = SystemRuntime()
            access = access or Access("test", {f"GET {path}": ["anyone"] for path in answers})
            calls = calls or OpenCalls(64, 60_000, runtime, access=access)
            door = HttpDoor(
                access=access,
                callers=HttpCallers(verifier, viewers or verifier),
                statements=calls,
                looks=calls,
                threads=CallThreads(spawn, 80),
                refusals=Refusals(runtime),
            )
            thread = EventLoopThread("http")
            up.callback(thread.stop)
            limits = limits or HttpLimits()
            handlers = [route(path, answer, door) for path, answer in answers.items()]
            app = HttpApp(door, [*handlers, *(more(door) if more else ())], limits.header_bytes)
            made = HttpPort("127.0.0.1", port, app, thread, runtime, tls=tls, limits=limits)
            up.callback(made.close)
            up.callback(door.close)
            made.door = door
            return made

        yield start
