"""One exchange under a grant, from the side of a Client: what comes, told as the rules of grants know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import (
    BallistaError,
    InvalidData,
    NotOwner,
    SnapshotGone,
    TransportError,
    TryLater,
    Unauthenticated,
)
from ballista_py.runtime import Runtime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.errors import is_link_failure
from ballista_py.transport.spawn import Spawn
from ballista_py.transport.table_read.messages import known, pb
from ballista_py.transport.table_read.partition_reader import PartExchange
from ballista_py.transport.table_read.pieces import pieces_in, unpacked
from ballista_py.transport.table_read.tally import GrantTally
from ballista_py.transport.table_read.tokens.consuming import OpenAt, Unreachable
from ballista_py.transport.table_read.tokens.exchange import (
    OpenRead,
    ReadAccepted,
    ReadChunk,
    ReadClosed,
    ReadCredit,
    ReadOnHold,
    ReadPreempted,
    ReadRefused,
    ReadRejected,
    ReadReply,
    ReadSnapshotGone,
    ReadTrailer,
    StaleAttempt,
)
from ballista_py.transport.table_read.tokens.positions import START, Position

BUSY_AGAIN_MS = 500.0

ServerWord = ReadReply | ReadChunk | ReadTrailer | ReadClosed | Unreachable


@frozen
class Heard:
    """What was heard of an attempt: an event of the rules with the rows of a chunk, or an error that is the answer."""

    attempt: int
    event: ServerWord | None
    rows: tuple[pa.RecordBatch, ...] = field(default=(), repr=False)
    error: BallistaError | None = None


def request_under(action: OpenAt, encodings: Sequence[str] = ()) -> Any:
    """The first message of an exchange."""
    asked = action.request
    return pb.Request(
        ticket=action.ticket,
        process=asked.wants_plan,
        begin=pb.Position(section=asked.start.section, row=asked.start.row),
        token=asked.token,
        ancestors=asked.ancestors,
        attempt=asked.attempt,
        needs_order=asked.needs_order,
        encodings=() if asked.wants_plan else encodings,
    )


class GrantExchange:
    """An exchange that another thread reads, from its opening to its end; what it hears waits for `next`.

    No more waits than the credits allow. `credit` and `drop` are for the thread that takes what was heard. With
    `counts` places count the rows, because those of the Server mean nothing elsewhere. A Server whose rows cannot be
    processed is asked again later where nobody here `can_process` them either. Those that nobody is to process may come
    packed in one of the `encodings`.
    """

    def __init__(
        self,
        pool: FlightPool,
        action: OpenAt,
        runtime: Runtime,
        spawn: Spawn,
        *,
        counts: bool,
        can_process: bool,
        encodings: Sequence[str] = (),
    ) -> None:
        self._pool = pool
        self._action = action
        self._counts = counts
        self._can_process = can_process
        self._encodings = tuple(encodings)
        self._changed = runtime.condition()
        self._heard: list[Heard] = []
        self._exchange: PartExchange | None = None
        self._is_dropped = False
        self._credited = 0
        spawn(self._run)

    @property
    def attempt(self) -> int:
        return self._action.request.attempt

    def next(self, wait_ms: float) -> Heard | None:
        """What was heard next; None if that is nothing for so long."""
        with self._changed:
            if not self._heard:
                self._changed.wait(wait_ms)
            return self._heard.pop(0) if self._heard else None

    def credit(self, credit: ReadCredit) -> None:
        """Allow more chunks, and say where to end."""
        until = None
        if credit.until is not None and not self._counts:
            until = pb.Position(section=credit.until.section, row=credit.until.row)
        more, self._credited = max(0, credit.chunks - self._credited), max(credit.chunks, self._credited)
        with self._changed:
            if self._exchange is not None and not self._is_dropped:
                self._exchange.say(pb.Credit(chunks=more, until=until))

    def drop(self) -> None:
        """End it; nothing of it is heard from now on."""
        with self._changed:
            self._is_dropped = True
            exchange = self._exchange
            self._heard.clear()
        if exchange is not None:
            exchange.cancel()

    def _run(self) -> None:
        is_open = False
        try:
            exchange = PartExchange(
                self._pool, self._action.location.uri, request_under(self._action, self._encodings)
            )
            with self._changed:
                self._exchange, is_dropped = exchange, self._is_dropped
            if is_dropped:
                exchange.cancel()
                return
            reply = reply_of(exchange.reply, self._action.request, can_process=self._can_process)
            is_open = isinstance(reply, ReadAccepted)
            self._hear(Heard(self.attempt, reply))
            if not is_open:
                exchange.cancel()
                return
            for event, rows in self._events(exchange):
                self._hear(Heard(self.attempt, event, rows))
            self._hear(Heard(self.attempt, ReadClosed(self.attempt)))
        except BallistaError as error:
            self._hear(heard_of(error, self.attempt, self._action.location.uri, is_open=is_open))
        except Exception as error:  # of a library; a thread that says nothing would be waited for
            failed = TransportError(f"what a node sent could not be read ({type(error).__name__})")
            self._hear(Heard(self.attempt, None, error=failed))

    def _hear(self, heard: Heard) -> None:
        with self._changed:
            if not self._is_dropped:
                self._heard.append(heard)
                self._changed.notify_all()

    def _events(
        self, exchange: PartExchange
    ) -> Iterator[tuple[ReadChunk | ReadTrailer, tuple[pa.RecordBatch, ...]]]:
        """What comes, chunk by chunk. Raises `InvalidData` for what cannot be."""
        tally, is_packed = GrantTally(), exchange.reply.accepted.encoded
        begin = self._action.request.start
        at, seen = (START if self._counts else begin), begin
        parts: list[pa.RecordBatch] = []
        for message, rows in exchange.messages():
            if rows is None:
                trailer = known("Trailer", message)
                yield self._trailer(trailer, tally, at, seen), ()
                continue
            chunk = known("Chunk", message)
            shown = [rows]
            if is_packed:
                shown = [batch for piece in pieces_in(rows) for batch in unpacked(piece)]
            tally.add(sum(batch.num_rows for batch in shown))
            parts += shown
            if not chunk.HasField("end"):
                with self._changed:  # it stays one chunk for those who count
                    if not self._is_dropped:
                        exchange.say(pb.Credit(chunks=1))
                continue
            seen = Position(chunk.end.section, chunk.end.row)
            tally.ends(seen)
            start = at if self._counts else Position(chunk.at.section, chunk.at.row)
            at = Position(START.section, at.row + tally.rows_of_step) if self._counts else seen
            yield (
                ReadChunk(
                    attempt=self.attempt,
                    start=start,
                    end=at,
                    rows=tally.rows_of_step,
                    nbytes=0,
                    crc32=tally.of_step,
                ),
                tuple(parts),
            )
            parts = []

    def _trailer(self, trailer: Any, tally: GrantTally, at: Position, seen: Position) -> ReadTrailer:
        """The trailer; one that is not of what came says so by its sums."""
        end = Position(trailer.end.section, trailer.end.row)
        is_at_end = end == seen or (
            self._counts and not tally.chunks
        )  # files without rows have an end of their own
        is_whole = trailer.complete and not tally.is_open and trailer.chunks == tally.chunks and is_at_end
        return ReadTrailer(
            attempt=self.attempt,
            end=at,
            rows=trailer.rows if is_whole else -1,
            nbytes=0,
            crc32=trailer.crc32,
        )


def reply_of(said: Any, asked: OpenRead, *, can_process: bool) -> ReadReply:
    """What a Server's `Reply` means to who asked. Raises `InvalidData` for one that says nothing known."""
    attempt = asked.attempt
    match said.WhichOneof("status"):
        case "accepted":
            in_order = not said.accepted.out_of_order
            return ReadAccepted(attempt, applies_plan=said.accepted.processed, in_order=in_order)
        case "refused":
            return ReadRefused(attempt) if can_process else ReadOnHold(attempt, BUSY_AGAIN_MS)
        case "rejected":
            return ReadRejected(attempt)
        case "on_hold":
            return ReadOnHold(attempt, float(said.on_hold.retry_after_ms))
        case "preempted":
            return ReadPreempted(attempt)
        case "stale":
            return StaleAttempt(attempt)
        case "snapshot_gone":
            return ReadSnapshotGone(attempt)
    raise InvalidData("a node answered a request of Table Read by nothing that is known here")


def heard_of(error: BallistaError, attempt: int, uri: str, *, is_open: bool) -> Heard:
    """What an error of an exchange means: an event where another Server may do better, or else itself."""
    event: ServerWord | None = None
    if isinstance(error, SnapshotGone):
        event = ReadSnapshotGone(attempt)
    elif is_link_failure(error, uri.partition("://")[2]):
        event = ReadClosed(attempt) if is_open else Unreachable(attempt)
    elif isinstance(error, InvalidData) and is_open:
        event = ReadClosed(attempt)
    elif isinstance(error, TryLater):
        event = ReadClosed(attempt) if is_open else ReadOnHold(attempt, BUSY_AGAIN_MS)
    elif isinstance(error, NotOwner):
        event = ReadClosed(attempt) if is_open else ReadRejected(attempt)
    elif isinstance(error, TransportError) and not isinstance(error, Unauthenticated):
        event = ReadClosed(attempt) if is_open else Unreachable(attempt)
    return Heard(attempt, event, error=None if event is not None else error)


__all__ = ["GrantExchange", "Heard", "heard_of", "reply_of", "request_under"]
