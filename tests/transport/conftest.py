"""Real servers on real sockets, with the threads that a node would give them."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import define, field

from ballista_py.errors import NotOwner, SqlError
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.server import FlightServer, StreamResult
from ballista_py.transport.security.access import Access


class EveryVerb(dict):
    """Lets everybody ask everything: these tests are about other things."""

    def get(self, verb, default=None):
        return ("anyone",)

    def __contains__(self, verb):
        return True


NUMBERS = pa.schema([("n", pa.int64()), ("x", pa.float64())])


def spawn(function: Callable[[], None]) -> None:
    threading.Thread(target=function, daemon=True).start()


def wait_until(condition: Callable[[], Any], within_s: float = 30.0) -> Any:
    """What `condition` gave once it was true; fails when it stayed false."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


def still(value: Callable[[], int]) -> int:
    """`value` once it has not changed for half a second; it must stop changing, as whoever is held back does."""
    before = -1
    while before != (before := value()):
        time.sleep(0.5)
    return before


def numbers(first: int, rows: int) -> pa.RecordBatch:
    n = np.arange(first, first + rows)
    return pa.record_batch([pa.array(n), pa.array(n * 0.5)], schema=NUMBERS)


class HandClock(SystemRuntime):
    """A machine whose clock stands still until a test moves it."""

    now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms


@define
class Numbers:
    """A handler that answers with numbers, and misbehaves when told to."""

    verbs = ()

    cancelled: threading.Event = field(factory=threading.Event)
    sent: Counter[str] = field(factory=Counter)
    commands: list[dict[str, Any]] = field(factory=list)

    def stream(self, command: Any, context: Any) -> StreamResult:
        self.commands.append(dict(command))
        if command.get("refuse"):
            raise NotOwner("executor e1 does not own partition 3 of table 't'", partitions=[3])
        if command.get("crash"):
            raise ValueError("secret in /root/key")
        while command.get("think") and not context.cancelled():
            time.sleep(0.01)
        if command.get("think"):
            self.cancelled.set()
        return StreamResult(
            schema=NUMBERS,
            batches=self._batches(command),
            trailer=lambda: {"touched": command.get("batches", 0)},
            cancel=self.cancelled.set,
        )

    def _batches(self, command: Any) -> Iterator[pa.RecordBatch]:
        rows = command.get("rows", 10)
        for number in range(command.get("batches", 0)):
            if command.get("pause_s") and self.cancelled.wait(command["pause_s"]):
                return
            if number == command.get("fail_at"):
                raise SqlError("division by zero in 'x / 0'", line=1, column=8)
            if number == command.get("crash_at"):
                raise RuntimeError("Traceback: secret in /root/key")
            if number == command.get("odd_at"):
                yield pa.record_batch({"other": [1]})
            self.sent[command.get("name", "")] += 1
            yield numbers(number * rows, rows)

    def action(self, name: str, body: Any, context: Any) -> dict[str, Any]:
        if name == "refuse":
            raise NotOwner("no", body=body)
        if name == "crash":
            raise ValueError("secret in /root/key")
        if name == "wait":
            self.cancelled.wait(body["s"])
        return {"name": name, "body": body}


@define
class Served:
    server: FlightServer
    handler: Any
    stopped: bool = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def tick_for_ever(self) -> None:
        while not self.stopped:
            self.server.tick()
            time.sleep(0.05)

    def stop(self) -> None:
        self.stopped = True
        assert self.server.shutdown(spawn, 4_000)


class Wiretap:
    """A TCP proxy that keeps every byte that the server sends, and can cut every link."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.seen = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Wiretap:
        spawn(self._accept)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.cut()

    def cut(self) -> None:
        """End all links, and accept no other."""
        for link in (self._listener, *self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._links += [near, far]
                spawn(partial(self._pump, near, far, keep=False))
                spawn(partial(self._pump, far, near, keep=True))

    def _pump(self, source: socket.socket, sink: socket.socket, keep: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if keep:
                    self.seen += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def kit() -> Any:
    """The helpers of this file, for tests that need them by name."""
    return sys.modules[__name__]


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start a data port; all are shut down at the end."""
    started: list[Served] = []

    def start(handler: Any = None, address: str = "127.0.0.1:0", clock: Any = None, **options: Any) -> Served:
        handler = Numbers() if handler is None else handler
        options = {"spawn": spawn, "access": Access("test", EveryVerb()), **options}
        served = Served(FlightServer(address, handler, clock or SystemRuntime(), **options), handler)
        if clock is None:  # who brings a clock ticks by hand
            spawn(served.tick_for_ever)
        started.append(served)
        return served

    yield start
    for served in started:
        if not served.stopped:
            served.stop()


@pytest.fixture
def pool() -> Iterator[FlightPool]:
    with FlightPool(SystemRuntime()) as made:
        yield made
