"""What a Client of Table Read knows of one grant: where to ask, how far it has come, when it is done.

Events go in, actions come out, nothing else is done here. A thin shell feeds in what it hears, by the attempt
that it belongs to, carries the actions out, calls `tick` a few times a second, and keeps the rows until their
`ReadDone` is answered. Every open is an attempt of its own and only the last one is listened to; rows count for
a grant in their order without gaps; and an end without its trailer is none.
"""

from __future__ import annotations

from typing import Literal

from attrs import define, field, frozen

from ballista_py.errors import Fenced, InvalidData
from ballista_py.runtime import Runtime
from ballista_py.transport.table_read.tokens.exchange import (
    CHUNK_ROWS,
    CREDITS,
    OpenRead,
    ReadAccepted,
    ReadChunk,
    ReadClosed,
    ReadCredit,
    ReadOnHold,
    ReadPreempted,
    ReadRefused,
    ReadReply,
    ReadSnapshotGone,
    ReadTrailer,
    StaleAttempt,
    chained,
)
from ballista_py.transport.table_read.tokens.messages import (
    CutAnswer,
    DoneReply,
    GaveUp,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    Replanned,
    ReportReply,
    SnapshotLost,
)
from ballista_py.transport.table_read.tokens.positions import Position, RowRange

REPORT_MS = 3_000.0
OPEN_MS = 2_000.0  # without an answer to an open, another location is asked
STALL_MS = 10_000.0  # without a chunk, the exchange counts as broken
BROKEN_MS = 1_000.0  # before the location of a broken exchange is asked again
AGAIN_MS = 2_000.0  # before what was not answered is sent to the Agent again

Phase = Literal["new", "opening", "holding", "replanning", "reading", "ending", "over"]


@frozen
class Unreachable:
    """A location cannot be reached: as if it had rejected the attempt."""

    attempt: int


@frozen(kw_only=True)
class OpenAt:
    """Begin an exchange at a location with this first message. The one before is over."""

    location: ReadLocation
    ticket: bytes
    request: OpenRead


@frozen
class TakeRows:
    """Keep the rows of the chunk that was just told; run the slice plan over them first if `applies_plan`."""

    applies_plan: bool


@frozen
class DropExchange:
    """End the exchange of an attempt, if it is still there; nothing is read from it any more."""

    attempt: int


ToAgent = ReadReport | CutAnswer | ReadDone | GaveUp | ReplanAsked | SnapshotLost
Action = OpenAt | ReadCredit | TakeRows | DropExchange | ToAgent
Event = ReadReply | ReadChunk | ReadTrailer | ReadClosed | Unreachable | Replanned | ReportReply | DoneReply


@frozen(kw_only=True)
class ReadTimes:
    """How long a Client waits for what, in milliseconds."""

    report_ms: float = REPORT_MS
    open_ms: float = OPEN_MS
    stall_ms: float = STALL_MS
    broken_ms: float = BROKEN_MS
    again_ms: float = AGAIN_MS


@define
class _Attempt:
    """The last open: what came of it."""

    number: int = 0
    location: ReadLocation | None = None
    wants_plan: bool = False
    applies_plan: bool = False
    can_go_on: bool = True  # elsewhere, from where it breaks
    chunks: int = 0
    credits: int = 0
    rows: int = 0
    nbytes: int = 0
    crc32: int = 0


class GrantConsumer:
    """One grant at one instance of a Client, which makes one of these for a token, ever. For one thread at a time.

    With `wants_plan` locations are asked to run the slice plan; once all have refused that, they are asked for
    columns as they are. Where a location gives rows in an order of its own, or the partition is one that is
    read whole, rows that were read are of no use at another: when such an exchange breaks the grant is given
    up. `outcome` is what the Agent said in the end; the rows are the job's only if that `counts`.

    Raises `Fenced` for a grant of another instance: one that was restarted begins with nothing.
    """

    def __init__(
        self,
        grant: ReadGrant,
        client: ReaderId,
        runtime: Runtime,
        *,
        wants_plan: bool = True,
        times: ReadTimes | None = None,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        self.grant = grant
        self.client = client
        self.phase: Phase = "new"
        self.outcome: DoneReply | None = None
        self.position = grant.rows.start
        self._require_own()
        self._runtime = runtime
        self._wants_plan = wants_plan
        self._times = times or ReadTimes()
        self._chunk_rows = chunk_rows
        self._end = grant.rows.end
        self._ticket = grant.ticket
        self._places = _Places(grant.locations, wants_plan)
        self._attempt = _Attempt()
        self._cuts: dict[str, Position] = {}
        self._last_word: ReadDone | GaveUp | SnapshotLost | None = None
        self._since_ms = runtime.monotonic_ms()  # the phase began, or the last chunk came
        self._reported_ms = self._since_ms

    @property
    def rows(self) -> RowRange:
        """What is to be read, after the cuts so far."""
        return RowRange(self.grant.rows.start, self._end)

    def start(self) -> tuple[Action, ...]:
        """Begin."""
        return self._locate()

    def on(self, event: Event) -> tuple[Action, ...]:
        """Take what was heard. What belongs to an earlier attempt, or comes too late for anything, does nothing."""
        if self.phase == "over":
            return ()
        match event:
            case DoneReply():
                return self._done_is_answered(event)
            case ReportReply():
                return self._told(event)
            case Replanned():
                return self._replanned(event)
            case ReadChunk() | ReadTrailer() | ReadClosed() if self.phase == "reading":
                return self._read(event) if self._is_current(event.attempt) else ()
            case ReadChunk() | ReadTrailer() | ReadClosed():
                return ()
            case Unreachable() if self.phase == "reading" and self._is_current(event.attempt):
                return self._broken(drop=True)
            case _ if self.phase == "opening" and self._is_current(event.attempt):
                return self._opened(event)
        return ()

    def tick(self) -> tuple[Action, ...]:
        """Do what is due: ask elsewhere, say again what was not answered, report."""
        waited = self._runtime.monotonic_ms() - self._since_ms
        due: tuple[Action, ...] = ()
        if self.phase == "opening" and waited >= self._times.open_ms:
            due = self._go_elsewhere(self._times.open_ms)
        elif self.phase == "reading" and waited >= self._times.stall_ms:
            due = self._broken()
        elif self.phase == "holding":
            due = self._locate()
        elif self.phase == "replanning" and waited >= self._times.again_ms:
            due = self._ask_replan()
        elif self.phase == "ending" and waited >= self._times.again_ms:
            due = self._say_last_word()
        return (*due, *self._report())

    # Where to ask

    def _locate(self) -> tuple[Action, ...]:
        """Open at the next location, if one may be asked now."""
        if not self._places.any:
            return self._ask_replan()
        location = self._places.next(self._runtime.monotonic_ms())
        if location is None:
            self._turn("holding")
            return ()
        self._turn("opening")
        self._attempt = _Attempt(self._attempt.number + 1, location, self._places.with_plan)
        request = OpenRead(
            job=self.grant.job,
            token=self.grant.token,
            ancestors=self.grant.ancestors,
            partition=self.grant.partition,
            snapshot=self.grant.snapshot,
            attempt=self._attempt.number,
            start=self.position,
            wants_plan=self._attempt.wants_plan,
            needs_order=self._needs_order(),
        )
        return (OpenAt(location=location, ticket=self._ticket, request=request),)

    def _opened(self, reply: ReadReply | Unreachable) -> tuple[Action, ...]:
        location = self._attempt.location
        match reply:
            case ReadAccepted():
                return self._accepted(reply)
            case ReadSnapshotGone():
                lost = SnapshotLost(token=self.grant.token, client=self.client, snapshot=self.grant.snapshot)
                return self._end_with(lost)
            case ReadPreempted():
                return self._end_with(GaveUp(token=self.grant.token, client=self.client))
            case ReadRefused() if self._attempt.wants_plan:
                self._places.refused(location)
            case ReadOnHold():
                self._places.hold(location, self._runtime.monotonic_ms() + reply.retry_after_ms)
            case StaleAttempt():
                self._places.hold(location, self._runtime.monotonic_ms() + self._times.broken_ms)
            case _:
                self._places.drop(location)
        return self._locate()

    def _accepted(self, reply: ReadAccepted) -> tuple[Action, ...]:
        """Read, unless the location gives what was not asked for, or in an order in which this is of no use."""
        attempt = self._attempt
        if (reply.applies_plan and not attempt.wants_plan) or not self._can_take(reply):
            self._places.drop(attempt.location)
            return (DropExchange(attempt.number), *self._locate())
        attempt.applies_plan = reply.applies_plan
        attempt.can_go_on = reply.in_order and self.grant.sections is not None
        self._turn("reading")
        return (self._credit(),)

    def _can_take(self, reply: ReadAccepted) -> bool:
        return reply.in_order or not self._needs_order()

    def _needs_order(self) -> bool:
        """Whether a part is to be read; all of a partition may come in any order."""
        sections = self.grant.sections
        return sections is not None and (self.position, self._end) != (sections.first, sections.end)

    def _ask_replan(self) -> tuple[Action, ...]:
        self._turn("replanning")
        asked = ReplanAsked(
            token=self.grant.token,
            client=self.client,
            partition=self.grant.partition,
            snapshot=self.grant.snapshot,
        )
        return (asked,)

    def _replanned(self, replanned: Replanned) -> tuple[Action, ...]:
        if replanned.token != self.grant.token or self.phase != "replanning" or not replanned.locations:
            return ()
        if not self._is_same_snapshot(replanned.snapshot):
            return ()
        self._ticket = replanned.ticket
        self._places = _Places(replanned.locations, self._wants_plan)
        return self._locate()

    def _go_elsewhere(self, hold_ms: float) -> tuple[Action, ...]:
        self._places.hold(self._attempt.location, self._runtime.monotonic_ms() + hold_ms)
        return (DropExchange(self._attempt.number), *self._locate())

    # What is read

    def _read(self, event: ReadChunk | ReadTrailer | ReadClosed) -> tuple[Action, ...]:
        match event:
            case ReadChunk():
                return self._chunk(event)
            case ReadTrailer():
                return self._trailer(event)
        return self._closed()

    def _chunk(self, chunk: ReadChunk) -> tuple[Action, ...]:
        if chunk.end <= self.position:  # it came twice
            return ()
        if chunk.start != self.position:  # one before it was lost
            return self._broken()
        if not self._may_be(chunk):
            return self._broken(drop=True)
        attempt = self._attempt
        self.position = chunk.end
        attempt.chunks += 1
        attempt.rows += chunk.rows
        attempt.nbytes += chunk.nbytes
        attempt.crc32 = chained(attempt.crc32, chunk.crc32)
        self._since_ms = self._runtime.monotonic_ms()
        return TakeRows(not attempt.applies_plan), self._credit()

    def _may_be(self, chunk: ReadChunk) -> bool:
        """Whether it was allowed: a cut counts on it that no chunk goes further than that."""
        sections = self.grant.sections
        if sections is None or self._end is None:
            return True
        try:
            furthest = min(sections.after(chunk.start, self._chunk_rows), self._end)
            return sections.named(chunk.end) == chunk.end and chunk.end <= furthest
        except InvalidData:
            return False

    def _credit(self) -> ReadCredit:
        attempt = self._attempt
        attempt.credits = attempt.chunks + CREDITS
        return ReadCredit(token=self.grant.token, attempt=attempt.number, chunks=attempt.credits, until=self._end)

    def _trailer(self, trailer: ReadTrailer) -> tuple[Action, ...]:
        attempt = self._attempt
        sums = (trailer.rows, trailer.nbytes, trailer.crc32)
        is_whole = trailer.end == self.position and sums == (attempt.rows, attempt.nbytes, attempt.crc32)
        if not is_whole or (self._end is not None and self.position != self._end):
            return self._broken()
        return self._finish()

    def _finish(self) -> tuple[Action, ...]:
        return self._end_with(ReadDone(token=self.grant.token, client=self.client, rows=self.rows))

    def _closed(self) -> tuple[Action, ...]:
        """An end without a trailer says nothing of what came before it, nor that it was all."""
        return self._broken()

    def _broken(self, *, drop: bool = False) -> tuple[Action, ...]:
        """The exchange is over too early: go on elsewhere, or give up what nobody can go on with."""
        if not self._attempt.can_go_on and self.position != self.grant.rows.start:
            return self._end_with(GaveUp(token=self.grant.token, client=self.client))
        if drop:
            self._places.drop(self._attempt.location)
        return self._go_elsewhere(self._times.broken_ms)

    # What the Agent says

    def _told(self, reply: ReportReply) -> tuple[Action, ...]:
        if reply.token != self.grant.token:
            return ()
        if not reply.is_live:
            if isinstance(self._last_word, ReadDone):  # whose own answer says what it was worth
                return ()
            self._turn("over")
            return (DropExchange(self._attempt.number),)
        return () if reply.cut_id is None else self._cut(reply.cut_id)

    def _cut(self, cut_id: str) -> tuple[Action, ...]:
        """End earlier: behind all that may be under way, half of what is left then."""
        said: tuple[Action, ...] = ()
        if cut_id not in self._cuts:
            before = self._end
            if before is None:
                return ()
            self._cuts[cut_id] = self._end = self._cut_end(before)
            if self._end != before and self.phase == "reading":
                said = (self._credit(),)
        answer = CutAnswer(token=self.grant.token, client=self.client, cut_id=cut_id, end=self._cuts[cut_id])
        return (*said, answer)

    def _cut_end(self, end: Position) -> Position:
        sections, attempt = self.grant.sections, self._attempt
        if sections is None or self.phase == "ending" or not attempt.can_go_on:
            return end
        under_way = attempt.credits - attempt.chunks if self.phase == "reading" else 0
        least = sections.offset(sections.after(self.position, under_way * self._chunk_rows))
        left = sections.offset(end) - least
        return end if left <= 0 else sections.at(least + (left + 1) // 2)

    def _done_is_answered(self, reply: DoneReply) -> tuple[Action, ...]:
        if reply.token == self.grant.token and isinstance(self._last_word, ReadDone):
            self.outcome = reply
            self._turn("over")
        return ()

    def _end_with(self, word: ReadDone | GaveUp | SnapshotLost) -> tuple[Action, ...]:
        self._turn("ending")
        self._last_word = word
        return (DropExchange(self._attempt.number), word)

    def _say_last_word(self) -> tuple[Action, ...]:
        self._turn("ending")
        return () if self._last_word is None else (self._last_word,)

    def _report(self) -> tuple[Action, ...]:
        now_ms = self._runtime.monotonic_ms()
        if self.phase == "over" or now_ms - self._reported_ms < self._times.report_ms:
            return ()
        self._reported_ms = now_ms
        return (ReadReport(token=self.grant.token, client=self.client, position=self.position),)

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self._since_ms = self._runtime.monotonic_ms()

    def _is_current(self, attempt: int) -> bool:
        return attempt == self._attempt.number

    def _is_same_snapshot(self, snapshot: str) -> bool:
        return snapshot == self.grant.snapshot

    def _require_own(self) -> None:
        if self.grant.client != self.client:
            raise Fenced("the grant is one of another instance of this client, or of another client: ask for one")


@define
class _Places:
    """The locations of a grant that are left, and which of them may be asked when."""

    locations: tuple[ReadLocation, ...]
    with_plan: bool
    _held_until_ms: dict[ReadLocation, float] = field(init=False, factory=dict)
    _refused: set[ReadLocation] = field(init=False, factory=set)

    @property
    def any(self) -> bool:
        return bool(self.locations)

    def next(self, now_ms: float) -> ReadLocation | None:
        if self._refused.issuperset(self.locations):
            self.with_plan = False
            self._refused.clear()
        free = (one for one in self.locations if one not in self._refused)
        return next((one for one in free if self._held_until_ms.get(one, now_ms) <= now_ms), None)

    def hold(self, location: ReadLocation | None, until_ms: float) -> None:
        if location is not None:
            self._held_until_ms[location] = until_ms

    def refused(self, location: ReadLocation | None) -> None:
        if location is not None:
            self._refused.add(location)

    def drop(self, location: ReadLocation | None) -> None:
        self.locations = tuple(one for one in self.locations if one != location)
