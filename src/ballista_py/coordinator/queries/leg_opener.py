"""Opens legs at executors, all at once, and opens those that fail before anybody saw a row of them anew elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from attrs import field, frozen

from ballista_py.coordinator.queries.leg_watch import LegWatch
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg
from ballista_py.traces import current_span, within
from ballista_py.transport.flight.client import FlightStream
from ballista_py.transport.flight.commands import leg_command
from ballista_py.transport.flight.leg_streams import LegStream, LegStreams
from ballista_py.transport.spawn import Spawn

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
        command = leg_command(leg, self.task_id)
        address = self._addresses[leg.executor_id]
        stream = self._opener.watch.opened(
            leg.executor_id, lambda: self._opener.pool.open_stream(address, command, peer_id=leg.executor_id)
        )
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
