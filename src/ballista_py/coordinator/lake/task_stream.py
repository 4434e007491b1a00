"""The legs of a fragment's tasks as one stream: handed to executors one after the other, each row of a task once.

The rows of an attempt wait until it has ended (`ScanRun`). Of one that gives more than `HELD_BYTES` they are given out
as they come: it counts as ended for the others then, no other attempt of its task does, and what fails it fails the
fragment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import (
    BallistaError,
    InvalidData,
    LeaseExpired,
    NotOwner,
    PartitionsUnassigned,
    StoreUnavailable,
    TransportError,
    TryLater,
)
from ballista_py.runtime import Runtime
from ballista_py.scans.scan_run import ScanAttempt, ScanLimits, ScanRun
from ballista_py.scans.task import ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker
from ballista_py.sql.plan import Leg, LegProgress
from ballista_py.transport.flight.errors import is_link_failure
from ballista_py.transport.flight.leg_streams import LegStream
from ballista_py.transport.spawn import Spawn
from ballista_py.work import carried

HELD_BYTES = 8 << 20  # of one attempt
AHEAD_BYTES = 32 << 20  # of all tasks together, that wait to be read
SLOTS = 2  # tasks at once of one executor
LOOK_MS = 100.0
AGAIN_MS = 200.0
_ELSEWHERE = (NotOwner, LeaseExpired, TryLater, StoreUnavailable, TransportError)


class SendsLegs(Protocol):
    """What opens a leg at an executor, and tells all that nobody waits for a task of theirs any more."""

    def send(self, leg: Leg, address: str, task_id: str) -> LegStream: ...
    @property
    def give_up(self) -> Callable[[str], None]: ...


class TaskStream:
    """As `FragmentStream`. `legs` has one leg a task, each at the executor that is to run it.

    It exists once an attempt was accepted; the constructor raises what the first one raised that nobody may repeat.
    `moved` is the leg of a task at another executor.
    """

    def __init__(
        self,
        legs: Sequence[Leg],
        addresses: Mapping[str, str],
        sends: SendsLegs,
        moved: Callable[[Leg, str], Leg],
        runtime: Runtime,
        spawn: Spawn,
        *,
        held_bytes: int = HELD_BYTES,
        slots: int = SLOTS,
        limits: ScanLimits | None = None,
    ) -> None:
        self._legs = {_task_of(leg).name: (number, leg) for number, leg in enumerate(legs)}
        workers = [ScanWorker(id=name, slots=slots) for name in sorted(addresses)]
        self.run = ScanRun([_task_of(leg) for leg in legs], workers, limits)
        self._addresses, self._sends, self._moved = addresses, sends, moved
        self._runtime, self._held_bytes = runtime, held_bytes
        self._task_id = runtime.new_id()
        self._changed = runtime.condition()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._waiting_bytes = 0
        self._streams: dict[int, LegStream] = {}  # by the number of the attempt
        self._given = [LegProgress(rows=0, bytes=0, took_ms=0.0) for _ in legs]
        self._schema: pa.Schema | None = None
        self._error: BaseException | None = None
        self._last: BaseException | None = None  # of an attempt that was repeated
        self._giving: set[int] = set()  # attempts that count and have rows left
        self._gone: set[str] = set()
        self._workers = 0
        work = carried(self._work)
        for worker in sorted(addresses):
            for _ in range(min(slots, len(legs))):
                self._workers += 1
                spawn(partial(work, worker))
        self.schema = self._accepted()

    @property
    def error(self) -> BaseException | None:
        """The first error, or that it was cancelled before its end."""
        return self._error

    @property
    def bytes_received(self) -> int:
        """Bytes of Arrow data that have arrived of attempts that count."""
        return sum(one.bytes for one in self._given)

    @property
    def progress(self) -> tuple[LegProgress, ...]:
        """What each task has given so far, in the order of `legs`."""
        return tuple(self._given)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, lazily, once. Raises the first error. Closing the iterator cancels all."""
        try:
            while (batch := self._take()) is not None:
                yield batch
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give up what was not read. From any thread, harmless after the end."""
        self._fail(TransportError("the legs were cancelled"))

    def _accepted(self) -> pa.Schema:
        with self._changed:
            while self._schema is None and self._error is None:
                self._changed.wait()
            if self._schema is None:
                assert self._error is not None
                raise self._error
            return self._schema

    @property
    def _is_over(self) -> bool:
        """Whether all rows that there are were handed over, to be called under the lock."""
        return self.run.is_done and not self._giving

    def _take(self) -> pa.RecordBatch | None:
        with self._changed:
            while not self._waiting and not self._is_over and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            self._waiting_bytes -= batch.nbytes
            self._changed.notify_all()
            return batch

    def _work(self, worker: str) -> None:
        """Run tasks at an executor until there are none for it."""
        try:
            while (attempt := self._next(worker)) is not None:
                self._try(attempt)
        except BaseException as error:
            self._fail(error)
        finally:
            with self._changed:
                self._workers -= 1
                left = self._workers == 0 and not self._is_over and self._error is None
            if left:
                none = PartitionsUnassigned("no executor is left that could run the tasks of a scan")
                self._fail(self._last or none)

    def _next(self, worker: str) -> ScanAttempt | None:
        with self._changed:
            while not self.run.is_done and self._error is None and worker not in self._gone:
                found = self.run.next_for(worker, self._runtime.monotonic_ms())
                if found is not None:
                    return found
                self._changed.wait(LOOK_MS)
            return None

    def _try(self, attempt: ScanAttempt) -> None:
        _, leg = self._legs[attempt.task.name]
        held: list[pa.RecordBatch] = []
        size, counts = 0, False
        try:
            if leg.executor_id != attempt.worker:
                leg = self._moved(leg, attempt.worker)
            stream = self._sends.send(leg, self._addresses[attempt.worker], self._task_id)
            self._streams[attempt.id] = stream
            self._require_schema(stream.schema)
            for batch in stream.batches():
                size += batch.nbytes
                held.append(batch)
                if size > self._held_bytes:
                    counts = counts or self._counts(attempt)
                    if not counts or not self._give(attempt, held):
                        stream.cancel()
                        return
                    held = []
            if counts or self._counts(attempt):
                self._give(attempt, held)
                self._ended(attempt)
        except BaseException as error:
            self._failed(attempt, error)
        finally:
            with self._changed:
                self._streams.pop(attempt.id, None)
                self._giving.discard(attempt.id)
                self._changed.notify_all()

    def _require_schema(self, schema: pa.Schema) -> None:
        with self._changed:
            if self._schema is None:
                self._schema = schema
                self._changed.notify_all()
            elif schema.names != self._schema.names or schema.types != self._schema.types:
                raise InvalidData("two legs of one fragment answered with different columns")

    def _counts(self, attempt: ScanAttempt) -> bool:
        """Whether the rows of an attempt count from now on, and no other's of its task."""
        with self._changed:
            end = self.run.finished(attempt.id, self._runtime.monotonic_ms())
            if end.counts:
                self._giving.add(attempt.id)
            others = [self._streams[one.id] for one in end.cancel if one.id in self._streams]
        for stream in others:
            stream.cancel()
        return end.counts

    def _give(self, attempt: ScanAttempt, batches: Sequence[pa.RecordBatch]) -> bool:
        """Hand rows of an attempt that counts to the reader, once there is room; whether anybody wants them."""
        for batch in batches:
            with self._changed:
                while self._error is None and self._waiting and self._waiting_bytes > AHEAD_BYTES:
                    self._changed.wait()
                if self._error is not None:
                    return False
                self._waiting.append(batch)
                self._waiting_bytes += batch.nbytes
                self._note(attempt, batch)
                self._changed.notify_all()
        return True

    def _note(self, attempt: ScanAttempt, batch: pa.RecordBatch) -> None:
        place, _ = self._legs[attempt.task.name]
        before, took_ms = self._given[place], self._runtime.monotonic_ms() - attempt.began_ms
        self._given[place] = evolve(
            before, rows=before.rows + batch.num_rows, bytes=before.bytes + batch.nbytes, took_ms=took_ms
        )

    def _ended(self, attempt: ScanAttempt) -> None:
        place, _ = self._legs[attempt.task.name]
        took_ms = self._runtime.monotonic_ms() - attempt.began_ms
        with self._changed:
            self._given[place] = evolve(self._given[place], took_ms=took_ms, ended=True)

    def _failed(self, attempt: ScanAttempt, error: BaseException) -> None:
        gone = isinstance(error, BallistaError) and is_link_failure(error, self._addresses[attempt.worker])
        with self._changed:
            if attempt.id in self._giving:  # rows of it were given out, and nobody can say which
                fatal = True
            elif all(one.id != attempt.id for one in self.run.running):
                return  # it was stopped, because another one counts
            else:
                self._last = error
                repeatable = gone or isinstance(error, _ELSEWHERE)
                self.run.failed(attempt.id, str(error), final=not repeatable)
                if gone:
                    self._gone.add(attempt.worker)
                    self.run.lost(attempt.worker, str(error))
                fatal = self.run.error is not None
            self._changed.notify_all()
        if fatal:
            self._fail(error)
        elif not gone:  # it answers, so it may have others, in a moment
            with self._changed:
                self._changed.wait(AGAIN_MS)
                self.run.heartbeat(attempt.worker)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is not None or (self._is_over and not self._waiting):
                return
            self._error = error
            self._waiting.clear()
            self._changed.notify_all()
            streams = tuple(self._streams.values())
        for stream in streams:
            stream.cancel()
        self._sends.give_up(self._task_id)


def _task_of(leg: Leg) -> ScanTask:
    ((task,),) = leg.scans.values()
    return task
