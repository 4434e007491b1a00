"""What is said with a process of the engine about one statement, and the rows that come of it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from attrs import define

from ballista_py.engines.apart.frames import FAILED, TOO_LARGE, Frames, Message, portions
from ballista_py.engines.apart.shares import MAX_TRIAL_S
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    MergeTooLarge,
    SqlError,
    TransportError,
    from_wire,
)
from ballista_py.memory_budget import Reservation
from ballista_py.runtime import Runtime
from ballista_py.work import current_work

_log = logging.getLogger(__name__)
UNATTENDED_MS = 60_000.0  # for what nobody can cancel
ENDING_MS, ENDING_LOOK_MS = 1_000.0, 5.0  # of a process whose socket is closed already

Relation: TypeAlias = pa.RecordBatchReader | pa.Table
Release: TypeAlias = Callable[
    ["PooledProcess", bool], None
]  # of a process, and whether another statement may have it


class Process(Protocol):
    """A process that serves at the other end of `frames`."""

    frames: Frames

    def own_bytes(self) -> int:
        """Its resident memory that is not shared with other processes; 0 when it has ended."""
        ...

    def kill(self) -> None:
        """End it at once; more than once is fine."""
        ...

    def step_back(self) -> None:
        """Let it compute when the node has nothing to do, from now on."""
        ...

    def returncode(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        ...

    def remove(self) -> None:
        """Remove what it left, once it has ended."""
        ...


@define(eq=False)
class PooledProcess:
    """A process, and what it has of the memory of the node."""

    process: Process
    ready: bool = False
    share: int = 0
    reservation: Reservation | None = None
    since_ms: float = 0.0
    is_trial: bool = False
    beside: bool = False  # it has stepped back behind the node, and can come forward no more
    killed_for: BallistaError | None = None

    def end(self, reason: BallistaError | None) -> None:
        if self.killed_for is None:
            self.killed_for = reason
        self.process.kill()


class Conversation:
    """What is said with one process about one command. For one thread; `cancel` may come from any."""

    def __init__(
        self, worker: PooledProcess, relations: Mapping[str, Relation], runtime: Runtime, release: Release
    ) -> None:
        self._runtime = runtime
        self._release = release
        self._worker = worker
        self._batches = {name: iter(_batches_of(one)) for name, one in relations.items()}
        self._work = current_work()
        self._attended_ms = runtime.monotonic_ms()
        self._failed: BaseException | None = None
        self._done = False
        self._closed = False
        self._closing = runtime.lock()

    def send(self, values: Mapping[str, Any], max_bytes: int = 0) -> None:
        """Send values, once the process is ready."""
        try:
            if not self._worker.ready:
                self._worker.process.frames.receive(self._look)
                self._worker.ready, self._worker.since_ms = True, self._runtime.monotonic_ms()
            self._worker.process.frames.send({**values, "max_bytes": max_bytes})
        except EOFError:
            raise self._end() from None

    def next(self) -> Message:
        """What the process says next, after all that it asked for in between. Raises how the command failed."""
        while True:
            try:
                message = self._worker.process.frames.receive(self._look)
                if isinstance(message, pa.RecordBatch):
                    return message
                if "need" not in message:
                    break
                self._give(message["need"])
            except EOFError:
                raise self._end() from None
        if "error" in message:
            error = from_wire(message["error"])
            # What else than the statement may be at fault, such as memory that the system refused, may have broken that
            # process for all that comes later.
            self._done = isinstance(error, SqlError)
            raise self._failed or error
        self._done = bool(message.get("end"))
        return message

    def next_values(self) -> dict[str, Any]:
        """As `next`, where no rows can come."""
        message = self.next()
        assert isinstance(message, dict)
        return message

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Rows until something else comes."""
        while isinstance(message := self.next(), pa.RecordBatch):
            yield message

    def cancel(self) -> None:
        """End the process, if it still serves this command."""
        if not self._closed:
            self._worker.end(TransportError("The query was cancelled"))

    def close(self) -> None:
        """Give the process back, or end it amid what it does. Closing twice is fine, from two threads, too."""
        with self._closing:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            self._release(self._worker, self._done)

    def _give(self, name: str) -> None:
        frames = self._worker.process.frames
        try:
            batch = next(self._batches[name], None)
        except KeyError:
            raise EOFError from None
        except BaseException as error:
            self._failed = error
            frames.send({"failed": True})
            if not isinstance(error, Exception):
                raise
            return
        if batch is None:
            frames.send({"over": True})
        else:
            frames.send_rows(batch)

    def _look(self) -> None:
        """See whether anybody still waits; what nobody can cancel has its own limit."""
        if self._work is not None:
            self._work.check()
        elif self._runtime.monotonic_ms() - self._attended_ms > UNATTENDED_MS:
            self._attended_ms = float("inf")
            self._worker.end(BallistaError("The engine took too long for this statement"))

    def attended(self) -> None:
        """From now on somebody can cancel it."""
        self._attended_ms = float("inf")

    def _end(self) -> BaseException:
        """Why the process is gone."""
        if self._failed is not None:
            return self._failed
        if self._worker.killed_for is not None:
            return self._worker.killed_for
        self._worker.process.kill()
        until_ms = self._runtime.monotonic_ms() + ENDING_MS
        while (code := self._worker.process.returncode()) is None and self._runtime.monotonic_ms() < until_ms:
            self._runtime.sleep_ms(ENDING_LOOK_MS)
        _log.warning("an engine's process ended by itself (%s)", code)
        if code == -signal.SIGXCPU:
            return SqlError(f"reading and planning the statement took more than {MAX_TRIAL_S} s: make it smaller")
        if code in (None, -signal.SIGABRT, -signal.SIGKILL):  # by an allocation that failed, or by the system
            return MergeTooLarge(TOO_LARGE)
        return BallistaError(FAILED)


class ApartQuery:
    """A `RunningQuery` in a process of its own."""

    def __init__(self, schema: pa.Schema, talk: Conversation, close: Callable[[], None]) -> None:
        self.schema = schema
        self._talk = talk
        self._close = close
        self._begun = False
        self._running = False
        self._waits = False  # for its reader, who may never come back
        self._cancelled: BallistaError | None = None
        talk.attended()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of at most 65,536, none of them empty. See `DuckDBQuery.batches`."""
        if self._begun and self._cancelled is None:
            raise ConfigError("the batches of a query can be read once")
        self._begun = True
        return self._run()

    def cancel(self, reason: BallistaError | None = None) -> None:
        """Make the query end at once. From any thread, more than once; fine after its end."""
        self._cancelled = self._cancelled or reason or TransportError("The query was cancelled")
        self._talk.cancel()
        if not self._running or self._waits:  # nobody else may ever give back what it has
            self._finish()

    def _run(self) -> Iterator[pa.RecordBatch]:
        self._running = True  # a generator that was never asked for a row ends nothing
        try:
            if self._cancelled is not None:
                raise self._cancelled
            for batch in self._talk.rows():
                if batch.num_rows:
                    self._waits = True  # before the look, so that one of the two sees what the other did
                    if self._cancelled is None:
                        yield batch
                    self._waits = False
                if self._cancelled is not None:
                    raise self._cancelled
        except BallistaError:
            if self._cancelled is not None:
                raise self._cancelled from None
            raise
        finally:
            self._finish()

    def _finish(self) -> None:
        self._talk.close()
        self._close()

    def __del__(self) -> None:  # one whose rows nobody read
        if not self._running:
            self._finish()


def _batches_of(relation: Relation) -> Iterator[pa.RecordBatch]:
    """The rows, each batch small enough for one message: a second one, for which nobody waits, blocks both ends."""
    for batch in relation.to_batches() if isinstance(relation, pa.Table) else relation:
        yield from portions(batch)
