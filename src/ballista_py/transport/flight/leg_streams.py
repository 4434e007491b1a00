"""Many streams of one fragment as one: read ahead on a thread each, bounded, all or nothing.

A stream that fails before anybody has taken a row of it may be replaced by others that give the same rows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.errors import TransportError
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import LegProgress
from ballista_py.transport.spawn import Spawn


class LegStream(Protocol):
    """One leg under way: `flight_client.FlightStream`, or anything that promises the same."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def trailer(self) -> Mapping[str, Any]: ...
    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def cancel(self) -> None: ...


@define(eq=False)
class LegReading:
    """A stream that is read for the leg with this number; `seen` once a batch of it was taken."""

    leg: int
    stream: LegStream
    batches: int = field(default=0, init=False)  # that wait
    bytes: int = field(default=0, init=False)
    seen: bool = field(default=False, init=False)

    def put(self, size: int) -> None:
        """One more batch waits."""
        self.batches += 1
        self.bytes += size

    def taken(self, size: int) -> None:
        """A batch that waited was taken."""
        self.batches -= 1
        self.bytes -= size
        self.seen = True


AHEAD_BATCHES = 4
AHEAD_BYTES = 16 << 20
SMALL_BYTES = 64 << 10
BEGUN_BATCHES = 2


Again = Callable[[LegStream, BaseException], Sequence[LegStream]]
"""Opens the streams that take the place of one that failed; none where the error has to stand."""


def _error_stands(_stream: LegStream, _error: BaseException) -> Sequence[LegStream]:
    return ()


class LegStreams:
    """The batches of all `streams` (one at least), in the order in which they come; complete, or an error.

    It exists once every stream is accepted: until then the constructor waits, and it raises what the first node
    that refused has raised, after cancelling all. Reading ahead starts at once: `spawn` runs one function per
    stream on a thread of its own, so that slow streams are slow together and not one after the other. Of each
    stream at most `ahead_batches` and about `ahead_bytes` wait to be read, and until `BEGUN_BATCHES` were taken not
    more than one batch or `SMALL_BYTES`: an answer may have to wait before anybody reads it. A stream that is further
    ahead waits, and its node with it. The first error of any stream cancels all and is raised before anything that
    still waits.

    A stream that is `alone`, because nobody waits for any other meanwhile, is read by the reader of the batches up to
    its first batch of more than `SMALL_BYTES`: for a small answer a thread costs more than it brings.

    `given_up` is called once if they are cancelled or one fails before all have ended. `again` is asked what takes the
    place of a stream of which no row was taken.

    `schema` is that of all batches. Read by one thread; `cancel` may come from any.
    """

    def __init__(
        self,
        streams: Sequence[LegStream],
        runtime: Runtime,
        spawn: Spawn,
        *,
        ahead_batches: int = AHEAD_BATCHES,
        ahead_bytes: int = AHEAD_BYTES,
        alone: bool = False,
        given_up: Callable[[], None] = lambda: None,
        again: Again = _error_stands,
    ) -> None:
        self.schema = _accepted(streams)
        self._readings = [LegReading(number, stream) for number, stream in enumerate(streams)]
        self._given_up = given_up
        self._again = again
        self._ahead_batches = ahead_batches
        self._ahead_bytes = ahead_bytes
        self._changed = runtime.condition()
        self._waiting: deque[tuple[LegReading, pa.RecordBatch]] = deque()
        self._unfinished = len(streams)
        self._left = Counter(reading.leg for reading in self._readings)  # that of each leg are unfinished
        self._taken = 0
        self._error: BaseException | None = None
        self._runtime = runtime
        self._accepted_ms = runtime.monotonic_ms()
        self._given = [LegProgress(rows=0, bytes=0, took_ms=0.0) for _ in streams]
        self._spawn = spawn
        self._alone = alone and len(streams) == 1
        if not self._alone:
            for reading in tuple(self._readings):  # one may be replaced at once
                spawn(partial(self._read_ahead, reading, reading.stream.batches()))

    @property
    def error(self) -> BaseException | None:
        """The first error of any stream, or that they were cancelled before their end.

        Look here when an engine that reads the batches fails: it may have wrapped the error beyond recognition.
        """
        return self._error

    @property
    def rows_received(self) -> int:
        """Rows that have arrived so far."""
        return sum(one.rows for one in self._given)

    @property
    def bytes_received(self) -> int:
        """Bytes of Arrow data that have arrived so far."""
        return sum(one.bytes for one in self._given)

    @property
    def progress(self) -> tuple[LegProgress, ...]:
        """What each stream has given so far, in the order of `streams`."""
        return tuple(self._given)

    def trailers(self) -> tuple[Mapping[str, Any], ...]:
        """What each stream said at its end, in the order of `streams`. Raises `TransportError` before the end."""
        return tuple(reading.stream.trailer for reading in self._readings)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, lazily, once. Raises the first error of any stream. Closing the iterator cancels all."""
        try:
            if self._alone:
                yield from self._read_small()
            while (batch := self._take()) is not None:
                yield batch
        finally:
            self.cancel()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def reader(self) -> pa.RecordBatchReader:
        """The batches as an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def cancel(self) -> None:
        """Give up what was not read: a waiting reader gets a `TransportError`. Harmless after the end."""
        self._fail(TransportError("the legs were cancelled"))

    def _take(self) -> pa.RecordBatch | None:
        with self._changed:
            while not self._waiting and self._unfinished and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if not self._waiting:
                return None
            reading, batch = self._waiting.popleft()
            reading.taken(batch.nbytes)
            self._taken += 1
            self._changed.notify_all()
            return batch

    def _read_small(self) -> Iterator[pa.RecordBatch]:
        """The batches of the only stream, until one is large: then somebody else reads the others ahead."""
        (reading,) = self._readings
        batches = reading.stream.batches()
        while True:
            try:
                batch = next(batches, None)
            except BaseException as error:
                self._replace_or_fail(reading, error)
                if self._error is not None:
                    raise self._error from None
                return
            if batch is None:
                self._ended(reading)
                return
            size = batch.nbytes
            with self._changed:
                if self._error is not None:
                    raise self._error
                reading.seen = True
                self._taken += 1
                self._note(reading, batch, size)
            yield batch
            if size > SMALL_BYTES:
                self._spawn(partial(self._read_ahead, reading, batches))
                return

    def _read_ahead(self, reading: LegReading, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            while self._has_room(reading):
                batch = next(batches, None)
                if batch is None:
                    break
                self._put(reading, batch)
                del batch  # its memory takes the next one
            else:
                return
        except BaseException as error:
            self._replace_or_fail(reading, error)
        else:
            self._ended(reading)

    def _replace_or_fail(self, reading: LegReading, error: BaseException) -> None:
        """Read others in the place of a stream that failed, as long as nobody has seen what it gave."""
        with self._changed:
            if self._error is not None:
                return
            seen = reading.seen
            if not seen:
                self._waiting = deque(one for one in self._waiting if one[0] is not reading)
                self._given[reading.leg] = LegProgress(rows=0, bytes=0, took_ms=0.0)
        try:
            others = () if seen else self._again(reading.stream, error)
            if others:
                _accepted(others, self.schema)
        except BaseException as worse:
            self._fail(worse)
            return
        if not others:
            self._fail(error)
            return
        instead = [LegReading(reading.leg, stream) for stream in others]
        with self._changed:
            place = self._readings.index(reading)
            self._readings[place : place + 1] = instead
            self._unfinished += len(instead) - 1
            self._left[reading.leg] += len(instead) - 1
            over = self._error is not None
        for one in instead:
            if over:
                one.stream.cancel()
            else:
                self._spawn(partial(self._read_ahead, one, one.stream.batches()))

    def _ended(self, reading: LegReading) -> None:
        with self._changed:
            self._unfinished -= 1
            self._left[reading.leg] -= 1
            if not self._left[reading.leg]:
                took_ms = self._runtime.monotonic_ms() - self._accepted_ms
                self._given[reading.leg] = evolve(self._given[reading.leg], took_ms=took_ms, ended=True)
            self._changed.notify_all()

    def _note(self, reading: LegReading, batch: pa.RecordBatch, size: int) -> None:
        before = self._given[reading.leg]
        self._given[reading.leg] = LegProgress(
            rows=before.rows + batch.num_rows,
            bytes=before.bytes + size,
            took_ms=self._runtime.monotonic_ms() - self._accepted_ms,
        )

    def _put(self, reading: LegReading, batch: pa.RecordBatch) -> None:
        size = batch.nbytes
        with self._changed:
            if self._error is None:
                reading.put(size)
                self._note(reading, batch, size)
                self._waiting.append((reading, batch))
                self._changed.notify_all()

    def _has_room(self, reading: LegReading) -> bool:
        """Whether to go on, once little enough of this stream waits; another batch is not even asked for before."""
        with self._changed:
            while self._error is None and (
                reading.batches >= self._ahead_batches or reading.bytes >= self._most_ahead()
            ):
                self._changed.wait()
            return self._error is None

    def _most_ahead(self) -> int:
        return self._ahead_bytes if self._taken >= BEGUN_BATCHES else min(SMALL_BYTES, self._ahead_bytes)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is not None or (not self._unfinished and not self._waiting):
                return
            self._error = error
            self._waiting.clear()
            self._changed.notify_all()
            readings = tuple(self._readings)
        for reading in readings:
            reading.stream.cancel()
        self._given_up()


def _accepted(streams: Sequence[LegStream], *wanted: pa.Schema) -> pa.Schema:
    """The schema that all streams have, once all are accepted, as `wanted`. Cancels them all if one is not."""
    try:
        schemas = [*wanted, *(stream.schema for stream in streams)]
        for schema in schemas:
            # Nullability and metadata are the engine's business.
            if schema.names != schemas[0].names or schema.types != schemas[0].types:
                raise TransportError("two legs of one fragment answered with different columns")
        return schemas[0]
    except BaseException:
        for stream in streams:
            stream.cancel()
        raise
