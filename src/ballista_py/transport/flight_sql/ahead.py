"""Batches that are made on another thread, so that whoever sends them can say meanwhile that there are none yet."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from attrs import frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.flight.server import ALIVE_MS
from ballista_py.transport.spawn import Spawn


@frozen(kw_only=True)
class KeepAlive:
    """How the reader of a `do_get` is told that the work goes on: at the latest after `alive_ms` of silence."""

    runtime: Runtime
    spawn: Spawn
    alive_ms: float = ALIVE_MS


class Ahead:
    """`batches`, read one ahead of whoever takes them, on a thread that `spawn` gives. One reader.

    Their end, or the error that they end with, comes in its turn. After `close` no further batch is asked for.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], keep: KeepAlive) -> None:
        self._alive_ms = keep.alive_ms
        self._changed = keep.runtime.condition()
        self._waiting: pa.RecordBatch | None = None
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        keep.spawn(lambda: self._read(batches))

    def take(self) -> tuple[bool, pa.RecordBatch | None]:
        """Whether there is an answer yet, and the next batch; None for their end.

        Waits for `alive_ms` at most. Raises what the batches raised.
        """
        with self._changed:
            if self._waiting is None and not self._ended:
                self._changed.wait(self._alive_ms)
            batch, self._waiting = self._waiting, None
            self._changed.notify_all()
            if batch is not None:
                return True, batch
            if self._error is not None:
                raise self._error
            return self._ended, None

    def close(self) -> None:
        """Give up what was not taken."""
        with self._changed:
            self._closed = True
            self._waiting = None
            self._changed.notify_all()

    def _read(self, batches: Iterator[pa.RecordBatch]) -> None:
        error: BaseException | None = None
        try:
            for batch in batches:
                if not self._put(batch):
                    break
        except BaseException as raised:
            error = raised
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()

    def _put(self, batch: pa.RecordBatch) -> bool:
        with self._changed:
            while self._waiting is not None and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._waiting = batch
            self._changed.notify_all()
            return True
