"""The stages of a plan that runs: a round of legs, a broadcast, a merge; each counted, timed and a span of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from attrs import define, field

from ballista_py.figures import Figures
from ballista_py.runtime import Runtime
from ballista_py.traces import Span, current_span, within

LEGS, BROADCAST, MERGE = "legs", "broadcast", "merge"


@define(eq=False)
class Stage:
    """One stage, from construction until all of its `parts` have ended, one failed, or nobody reads them any more.

    Its parts end in the thread that reads the answer, or in those of an engine, one at a time. `legs` is how many legs
    it has; a merge has none.
    """

    kind: str
    figures: Figures
    runtime: Runtime
    legs: int = 0
    parts: int = 1
    span: Span | None = field(init=False, default=None)
    _began_ms: float = field(init=False)
    _over: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._began_ms = self.runtime.monotonic_ms()
        self.figures.add("scheduler_stages_total", kind=self.kind)
        if self.kind != MERGE:  # also of none, where everything was pruned: as many as there are stages
            self.figures.record("scheduler_tasks_per_stage", self.legs)
        outer = current_span()
        if outer is not None and outer.recorded:
            self.span = outer.child("stage", kind=self.kind, legs=self.legs)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around a piece of it; what raises there is the end of the stage."""
        try:
            with within(self.span or current_span()):
                yield
        except BaseException as error:
            self.end(error)
            raise

    def follow(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one of its parts, which ends with them."""
        try:
            yield from batches
        except GeneratorExit:
            self.end(None)
            raise
        except BaseException as error:
            self.end(error)
            raise
        self.part_ended()

    def part_ended(self) -> None:
        """One of the parts is complete."""
        self.parts -= 1
        if self.parts <= 0:
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        """The stage is over; only the first time counts."""
        if self._over:
            return
        self._over = True
        if error is not None:
            self.figures.add("scheduler_stage_failures", kind=self.kind)
        took_ms = self.runtime.monotonic_ms() - self._began_ms
        self.figures.record("scheduler_stage_duration_ms", took_ms, kind=self.kind)
        if self.span is not None:
            self.span.end(error)
