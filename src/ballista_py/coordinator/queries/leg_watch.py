"""Legs that a scheduler has sent: which of them wait to be accepted, and the span of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.figures import UNSEEN, Figures
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.traces import Span, current_span, within
from ballista_py.transport.flight.leg_streams import LegStream


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
