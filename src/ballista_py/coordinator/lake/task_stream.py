"""The legs of a fragment's tasks as one stream: handed to executors one after the other, each row of a task once.

The rows of an attempt wait until it has ended. Of one that gives more than `HELD_BYTES` they are given out as they
come: from then on no other attempt of the task counts, and what fails it fails the fragment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa
from attrs import evolve

from ballista_py.coordinator.lake.board import TaskAttempt, TaskBoard
from ballista_py.errors import (
    BallistaError,
    LeaseExpired,
    NotOwner,
    PartitionsUnassigned,
    StoreUnavailable,
    TransportError,
    TryLater,
)
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg, LegProgress
from ballista_py.transport.flight.errors import is_link_failure
from ballista_py.transport.flight.leg_streams import LegStream
from ballista_py.transport.spawn import Spawn
from ballista_py.work import carried

HELD_BYTES = 8 << 20  # of one attempt
AHEAD_BYTES = 32 << 20  # of all tasks together, that wait to be read
SLOTS = 2  # tasks at once of one executor
LOOK_MS = 100.0
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
    ) -> None:
        queues: dict[str, list[int]] = {}
        for number, leg in enumerate(legs):
            queues.setdefault(leg.executor_id, []).append(number)
        self.board = TaskBoard(queues=queues)
        self._legs, self._addresses, self._sends, self._moved = legs, addresses, sends, moved
        self._runtime, self._held_bytes = runtime, held_bytes
        self._task_id = runtime.new_id()
        self._changed = runtime.condition()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._waiting_bytes = 0
        self._streams: dict[int, LegStream] = {}  # by the identity of the attempt
        self._given = [LegProgress(rows=0, bytes=0, took_ms=0.0) for _ in legs]
        self._schema: pa.Schema | None = None
        self._error: BaseException | None = None
        self._last: BaseException | None = None  # of an attempt that was repeated
        self._workers = 0
        for worker in addresses if len(queues) < len(legs) else queues:
            queues.setdefault(worker, [])
        work = carried(self._work)
        for worker, own in tuple(queues.items()):
            for _ in range(min(slots, max(1, len(own)))):
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

    def _take(self) -> pa.RecordBatch | None:
        with self._changed:
            while not self._waiting and not self.board.is_over and self._error is None:
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
                self._run(attempt)
        except BaseException as error:
            self._fail(error)
        finally:
            with self._changed:
                self._workers -= 1
                left = self._workers == 0 and not self.board.is_over and self._error is None
            if left:
                none = PartitionsUnassigned("no executor is left that could run the tasks of a scan")
                self._fail(self._last or none)

    def _next(self, worker: str) -> TaskAttempt | None:
        with self._changed:
            while not self.board.is_over and self._error is None and worker not in self.board.removed:
                found = self.board.next_for(worker, self._runtime.monotonic_ms())
                if found is not None:
                    return found
                self._changed.wait(LOOK_MS)
            return None

    def _run(self, attempt: TaskAttempt) -> None:
        leg = self._legs[attempt.task]
        if leg.executor_id != attempt.worker:
            leg = self._moved(leg, attempt.worker)
        held: list[pa.RecordBatch] = []
        size = 0
        try:
            stream = self._sends.send(leg, self._addresses[attempt.worker], self._task_id)
            self._streams[id(attempt)] = stream
            self._require_schema(stream.schema)
            for batch in stream.batches():
                size += batch.nbytes
                held.append(batch)
                if size > self._held_bytes:
                    if not self._claimed(attempt) or not self._give(attempt, held):
                        stream.cancel()
                        return
                    held = []
            self._finish(attempt, held)
        except BaseException as error:
            self._failed(attempt, error)
        finally:
            self._streams.pop(id(attempt), None)

    def _require_schema(self, schema: pa.Schema) -> None:
        with self._changed:
            if self._schema is None:
                self._schema = schema
                self._changed.notify_all()
            elif schema.names != self._schema.names or schema.types != self._schema.types:
                raise TransportError("two legs of one fragment answered with different columns")

    def _claimed(self, attempt: TaskAttempt) -> bool:
        with self._changed:
            counts = self.board.claim(attempt)
            others = self.board.others(attempt) if counts else ()
        self._stop(others)
        return counts

    def _give(self, attempt: TaskAttempt, batches: Sequence[pa.RecordBatch]) -> bool:
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

    def _note(self, attempt: TaskAttempt, batch: pa.RecordBatch) -> None:
        before = self._given[attempt.task]
        took_ms = self._runtime.monotonic_ms() - attempt.began_ms
        self._given[attempt.task] = LegProgress(
            rows=before.rows + batch.num_rows, bytes=before.bytes + batch.nbytes, took_ms=took_ms
        )

    def _finish(self, attempt: TaskAttempt, held: Sequence[pa.RecordBatch]) -> None:
        if not self._claimed(attempt) or not self._give(attempt, held):
            with self._changed:
                self.board.failed(attempt, gone=False)
            return
        with self._changed:
            now_ms = self._runtime.monotonic_ms()
            if self.board.finished(attempt, now_ms):
                given = self._given[attempt.task]
                self._given[attempt.task] = evolve(given, took_ms=now_ms - attempt.began_ms, ended=True)
            self._changed.notify_all()

    def _failed(self, attempt: TaskAttempt, error: BaseException) -> None:
        gone = isinstance(error, BallistaError) and is_link_failure(error, self._addresses[attempt.worker])
        with self._changed:
            may_repeat = gone or isinstance(error, _ELSEWHERE)
            if attempt.task in self.board.done or self.board.given.get(attempt.task, attempt) is not attempt:
                may_repeat = True  # it was stopped, because another one counts
            goes_on = self.board.failed(attempt, gone=gone) and may_repeat
            self._last = error
            self._changed.notify_all()
        if not goes_on:
            self._fail(error)

    def _stop(self, attempts: Sequence[TaskAttempt]) -> None:
        for one in attempts:
            stream = self._streams.get(id(one))
            if stream is not None:
                stream.cancel()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is not None or (self.board.is_over and not self._waiting):
                return
            self._error = error
            self._waiting.clear()
            self._changed.notify_all()
            streams = tuple(self._streams.values())
        for stream in streams:
            stream.cancel()
        self._sends.give_up(self._task_id)
