"""Answers on their way to clients, counted: chunks, rows, bytes, and how long a client took for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from attrs import evolve

from ballista_py.figures import Figures
from ballista_py.runtime import Runtime
from ballista_py.transport.flight.server import StreamResult


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
