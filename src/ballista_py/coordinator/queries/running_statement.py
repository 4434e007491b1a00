"""A statement under way: its rows, how to stop it, and what it took.

Answers on their way to clients, counted: chunks, rows, bytes, and how long a client took for each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.errors import BallistaError
from ballista_py.figures import Figures
from ballista_py.runtime import Runtime
from ballista_py.sql.explain import explain_text, plan_as_dict
from ballista_py.sql.plan import Leg, LegProgress, QueryPlan
from ballista_py.transport.flight.server import StreamResult
from ballista_py.work import current_work


def given_out(answer: StreamResult, figures: Figures, runtime: Runtime) -> StreamResult:
    """The same answer; whoever sends it asks for the next batch when the client has taken the last one.

    Bytes are those of the batches in memory, before they are packed for the way.
    """
    return evolve(answer, batches=_counted(answer.batches, figures, runtime))


def _counted(batches: Iterable[pa.RecordBatch], figures: Figures, runtime: Runtime) -> Iterator[pa.RecordBatch]:
    iterator = iter(batches)
    try:
        for batch in iterator:
            rows, size = batch.num_rows, batch.nbytes
            began_ms = runtime.monotonic_ms()
            yield batch
            del batch  # its memory takes the next one
            figures.add("scheduler_result_fetch_count")
            figures.add("scheduler_result_fetch_rows", rows)
            figures.add("scheduler_result_fetch_bytes", size)
            figures.record("scheduler_result_fetch_duration_ms", runtime.monotonic_ms() - began_ms)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


class FragmentStream(Protocol):
    """The open legs of one fragment as one stream: every one of their executors has accepted its leg."""

    schema: pa.Schema

    @property
    def error(self) -> BaseException | None: ...
    @property
    def bytes_received(self) -> int: ...
    @property
    def progress(self) -> tuple[LegProgress, ...]: ...
    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def cancel(self) -> None: ...


def read_as_work(running: RunningStatement) -> RunningStatement:
    """The statement, as part of what this thread does for a call: it ends with that."""
    work = current_work()
    if work is not None:
        work.add_stop(running.cancel)
    return running


def _nothing() -> None:
    """There is nothing to stop first."""


@define(kw_only=True, eq=False)
class Running:
    """What of a statement is at work: its legs and its merge. Another run may take their place."""

    plan: QueryPlan
    legs: tuple[Leg, ...]
    streams: Sequence[FragmentStream]
    cancel_merge: Callable[[], None]
    replans: int
    sent_bytes: int = 0
    of_streams: Sequence[Sequence[Leg]] = ()
    _over: bool = field(default=False, init=False)

    def cancel(self) -> None:
        """Stop all of it, and whatever takes its place. Safe from any thread, also after the end."""
        self._over = True
        self.cancel_merge()  # first, or it is a link that fails
        for stream in self.streams:
            stream.cancel()

    def stats(self, took_ms: float) -> dict[str, Any]:
        """See `RunningStatement.stats`."""
        split = [t for fragment in self.plan.fragments for t in fragment.tables if not t.whole]
        if self.plan.guarded:  # how many partitions hold which values, and how much, is of hidden rows, too
            return {"took_ms": took_ms, "replans": self.replans}
        return {
            "partitions": len({(t.table, p) for t in split for p in t.partitions}),
            "partitions_total": sum({t.table: t.total for t in split}.values()),
            "executors": sorted({leg.executor_id for leg in self.legs}),
            "legs": len(self.legs),
            "shipped_bytes": self.sent_bytes + sum(stream.bytes_received for stream in self.streams),
            "took_ms": took_ms,
            "replans": self.replans,
        }

    def become(self, other: Running) -> None:
        """Let another run take the place of this one."""
        self.plan, self.legs, self.replans = other.plan, other.legs, other.replans
        self.streams, self.of_streams = other.streams, other.of_streams
        self.cancel_merge, self.sent_bytes = other.cancel_merge, self.sent_bytes + other.sent_bytes
        if self._over:
            other.cancel()


@define
class RunningStatement:
    """One statement under way. Read `batches` once; `stats` is complete after the last one."""

    schema: pa.Schema
    _batches: Iterator[pa.RecordBatch]
    running: Running
    _started_ms: float
    _runtime: Runtime
    _cancel_first: Callable[[], None] = _nothing

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, lazily; every error of a leg or of the merge comes out here."""
        return self._batches

    def cancel(self) -> None:
        """Stop the legs and the merge. Safe from any thread, also after the end."""
        self._cancel_first()
        self.running.cancel()

    def explained(self) -> dict[str, Any]:
        """The plan as `QueryService.explain` gives it, with what every leg has given."""
        running = self.running
        measured: dict[tuple[str, str], LegProgress] = {}
        for legs, stream in zip(running.of_streams, running.streams, strict=True):
            for leg, given in zip(legs, stream.progress, strict=True):
                key = (leg.fragment, leg.executor_id)
                measured[key] = given if key not in measured else measured[key].beside(given)
        text = explain_text(running.plan, running.legs, measured)
        return {**plan_as_dict(running.plan, running.legs, measured), "text": text, "stats": self.stats()}

    def stats(self) -> dict[str, Any]:
        """What the statement touched: partitions, executors, legs, bytes shipped by and with legs, milliseconds."""
        return self.running.stats(self._runtime.monotonic_ms() - self._started_ms)


def until_given(
    first: RunningStatement,
    again: Callable[[BallistaError], RunningStatement | None],
    has_rows: Callable[[], None] = _nothing,
) -> Iterator[pa.RecordBatch]:
    """The rows of the statement; while none was given out, an error may be answered by another run of it.

    `again` gives that, or None where the error has to stand. `has_rows` is called when the first of them are there.
    """
    batches, given = first.batches(), False
    while True:
        try:
            for batch in batches:
                if not given:
                    given = True
                    has_rows()
                yield batch
            return
        except BallistaError as error:
            other = None if given else again(error)
            if other is None:
                raise
        finally:
            if isinstance(batches, Generator):
                batches.close()
        first.running.become(other.running)
        batches = other.batches()
