"""A statement under way: its rows, how to stop it, and what it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from attrs import define

from ballista_py.planning.explain import explain_text, plan_as_dict
from ballista_py.planning.query_plan import Leg, LegProgress, QueryPlan
from ballista_py.runtime import Runtime
from ballista_py.work import current_work


class LegStreams(Protocol):
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


def read_as_work(running: Statement) -> Statement:
    """The statement, as part of what this thread does for a call: it ends with that."""
    work = current_work()
    if work is not None:
        work.add_stop(running.cancel)
    return running


@define
class Statement:
    """One statement under way. Read `batches` once; `stats` is complete after the last one."""

    schema: pa.Schema
    _batches: Iterator[pa.RecordBatch]
    _plan: QueryPlan
    _legs: tuple[Leg, ...]
    _streams: Sequence[LegStreams]
    _started_ms: float
    _runtime: Runtime
    _cancel_merge: Callable[[], None]
    replans: int
    _sent_bytes: int = 0
    _of_streams: Sequence[Sequence[Leg]] = ()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, lazily; every error of a leg or of the merge comes out here."""
        return self._batches

    def cancel(self) -> None:
        """Stop the legs and the merge. Safe from any thread, also after the end."""
        self._cancel_merge()  # first, or it is a link that fails
        for stream in self._streams:
            stream.cancel()

    def explained(self) -> dict[str, Any]:
        """The plan as `QueryService.explain` gives it, with what every leg has given."""
        measured = {
            (leg.fragment, leg.executor_id): given
            for legs, stream in zip(self._of_streams, self._streams, strict=True)
            for leg, given in zip(legs, stream.progress, strict=True)
        }
        text = explain_text(self._plan, self._legs, measured)
        return {**plan_as_dict(self._plan, self._legs, measured), "text": text, "stats": self.stats()}

    def stats(self) -> dict[str, Any]:
        """What the statement touched: partitions, executors, legs, bytes shipped by and with legs, milliseconds."""
        split = [t for fragment in self._plan.fragments for t in fragment.tables if not t.whole]
        return {
            "partitions": len({(t.table, p) for t in split for p in t.partitions}),
            "partitions_total": sum({t.table: t.total for t in split}.values()),
            "executors": sorted({leg.executor_id for leg in self._legs}),
            "legs": len(self._legs),
            "shipped_bytes": self._sent_bytes + sum(stream.bytes_received for stream in self._streams),
            "took_ms": self._runtime.monotonic_ms() - self._started_ms,
            "replans": self.replans,
        }
