"""Opens legs at executors, all at once, and opens those that fail before anybody saw a row of them anew elsewhere.

Legs that a scheduler has sent: which of them wait to be accepted, and the span of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.figures import UNSEEN, Figures
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.sql.plan import Leg
from ballista_py.traces import Span, current_span, within
from ballista_py.transport.flight.client import FlightStream
from ballista_py.transport.flight.commands import leg_command
from ballista_py.transport.flight.leg_streams import LegStream, LegStreams
from ballista_py.transport.spawn import Spawn


@define
class LegWatch:
    """The legs of one scheduler. Thread-safe."""

    runtime: Runtime = field(factory=SystemRuntime)
    figures: Figures = UNSEEN
    _waiting: set[int] = field(factory=set, init=False)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def waiting(self) -> int:
        """How many legs were sent and are not accepted yet."""
        return len(self._waiting)

    def sent_again(self, legs: int) -> None:
        """So many legs take the place of one whose executor is gone."""
        self.figures.add("node_task_retries", legs)

    def opened(self, executor_id: str, send: Callable[[], LegStream]) -> WatchedLeg:
        """The stream that `send` opens, watched until it ends."""
        outer, span = current_span(), None
        if outer is not None and outer.recorded:
            span = outer.child("leg", executor=executor_id)
        try:
            with within(span or outer):
                leg = WatchedLeg(self, send(), span)
        except BaseException as error:
            if span is not None:
                span.end(error)
            raise
        with self._lock:
            self._waiting.add(id(leg))
        return leg

    def _accepted(self, leg: WatchedLeg) -> None:
        with self._lock:
            self._waiting.discard(id(leg))


@define(eq=False)
class WatchedLeg:
    """As its stream."""

    _watch: LegWatch
    _stream: LegStream
    _span: Span | None
    _is_accepted: bool = field(default=False, init=False)

    @property
    def schema(self) -> pa.Schema:
        """As the stream's."""
        if self._is_accepted:
            return self._stream.schema
        try:
            found = self._stream.schema
        except BaseException as error:
            self._ended(error)
            raise
        self._is_accepted = True
        self._watch._accepted(self)
        return found

    @property
    def trailer(self) -> Mapping[str, Any]:
        """As the stream's."""
        return self._stream.trailer

    def batches(self) -> Iterator[pa.RecordBatch]:
        """As the stream's."""
        try:
            yield from self._stream.batches()
        except GeneratorExit:
            self._ended()
            raise
        except BaseException as error:
            self._ended(error)
            raise
        self._ended()

    def cancel(self) -> None:
        """As the stream's."""
        self._stream.cancel()
        self._ended()

    def __del__(self) -> None:
        self._ended()

    def _ended(self, error: BaseException | None = None) -> None:
        if not self._is_accepted:
            self._watch._accepted(self)
        span, self._span = self._span, None
        if span is not None:
            span.end(error)


Elsewhere = Callable[[Leg, BaseException], Sequence[Leg]]
"""The legs that give, at other executors, what a leg would have given that failed; none where there are no copies."""


class LegConnections(Protocol):
    """Connections to executors; `FlightPool` is one."""

    def open_stream(
        self, address: str, command: Mapping[str, object], *, peer_id: str | None = None
    ) -> FlightStream: ...


@frozen
class LegOpener:
    """Opens the legs of statements. `give_up` is told the task whose streams were cancelled before their end."""

    pool: LegConnections
    runtime: Runtime
    spawn: Spawn
    give_up: Callable[[str], None]
    watch: LegWatch = field(factory=LegWatch)

    def send(self, leg: Leg, address: str, task_id: str) -> WatchedLeg:
        """Start one leg at the executor there, as a part of that task."""
        command = leg_command(leg, task_id)
        return self.watch.opened(
            leg.executor_id, lambda: self.pool.open_stream(address, command, peer_id=leg.executor_id)
        )

    def open(
        self, fragments: Sequence[Sequence[Leg]], addresses: Mapping[str, str], elsewhere: Elsewhere
    ) -> list[LegStreams]:
        """Start all legs of all fragments at once and return when every executor has accepted its own.

        A leg that fails later, and of which nothing was taken, is opened again where `elsewhere` says.
        """
        alone = len(fragments) == 1 and len(fragments[0]) == 1
        tasks = [_Task(self, addresses, elsewhere, self.runtime.new_id()) for _ in fragments]
        streams: list[list[LegStream]] = [[] for _ in fragments]
        found: list[LegStreams] = []
        try:
            for task, legs, opened in zip(tasks, fragments, streams, strict=True):
                for leg in legs:
                    opened.append(task.open(leg))
            for task, opened in zip(tasks, streams, strict=True):
                give_up = partial(self.give_up, task.task_id)
                found.append(
                    LegStreams(opened, self.runtime, self.spawn, alone=alone, given_up=give_up, again=task.again)
                )
        except BaseException:
            cancelled: list[LegStreams | LegStream] = [*found, *(one for opened in streams for one in opened)]
            for one in cancelled:
                one.cancel()
            raise
        return found


class _Task:
    """The legs of one fragment: which stream is whose."""

    def __init__(
        self, opener: LegOpener, addresses: Mapping[str, str], elsewhere: Elsewhere, task_id: str
    ) -> None:
        self.task_id = task_id
        self._opener = opener
        self._addresses = addresses
        self._elsewhere = elsewhere
        self._legs: dict[int, Leg] = {}
        self._span = current_span()

    def open(self, leg: Leg) -> LegStream:
        stream = self._opener.send(leg, self._addresses[leg.executor_id], self.task_id)
        self._legs[id(stream)] = leg
        return stream

    def again(self, failed: LegStream, error: BaseException) -> list[LegStream]:
        """The streams that take the place of one that failed; all of them or an error."""
        opened: list[LegStream] = []
        try:
            legs = self._elsewhere(self._legs.pop(id(failed)), error)
            self._opener.watch.sent_again(len(legs))
            with within(self._span):
                opened.extend(map(self.open, legs))
        except BaseException:
            for stream in opened:
                stream.cancel()
            raise
        return opened
