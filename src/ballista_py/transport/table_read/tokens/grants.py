"""What an Agent of Table Read knows: which rows are under whose grant, which were counted, which wait for a Client.

Here is the fence: rows count only under a grant that is live when its `ReadDone` comes, and once. Whatever
Servers and Clients forget, say twice or say late changes how long a job takes, never what it answers. Clients
ask for work and report; nothing here calls them. The rows themselves are no matter of the Agent's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from attrs import define, evolve, field, frozen

from ballista_py.errors import InvalidData, SnapshotGone
from ballista_py.runtime import Runtime
from ballista_py.transport.table_read.tokens.exchange import CHUNK_ROWS, CREDITS, MAX_ANCESTORS
from ballista_py.transport.table_read.tokens.messages import (
    AgentPartition,
    CutAnswer,
    DoneReply,
    GaveUp,
    NoMoreWork,
    ReadDone,
    ReaderId,
    ReadGrant,
    ReadLocation,
    ReadReport,
    ReplanAsked,
    Replanned,
    ReportReply,
    SnapshotLost,
    WaitForWork,
)
from ballista_py.transport.table_read.tokens.positions import Position, RowRange, is_covered

DEAD_MS = 12_000.0
LEASE_MS = 900_000.0
RENEWALS_PER_LEASE = 3
ASK_AGAIN_MS = 1_000.0
CROWD = 3
MIN_CUT_ROWS = 2 * CREDITS * CHUNK_ROWS


@frozen(kw_only=True)
class AgentRanges:
    """The rows of a partition by what is known of them. Together they are all of it, and none is in two."""

    counted: tuple[RowRange, ...]
    live: tuple[RowRange, ...]
    waiting: tuple[RowRange, ...]

    @property
    def every(self) -> tuple[RowRange, ...]:
        return self.counted + self.live + self.waiting


@define
class _Live:
    grant: ReadGrant
    rows: RowRange
    heard_ms: float
    position: Position
    cut_id: str | None = None
    can_be_cut: bool = True


@frozen
class _Waiting:
    partition: int
    rows: RowRange
    ancestors: tuple[str, ...]


@define
class _Book:
    """What a job has counted: of each partition, and under which tokens."""

    ranges: dict[int, list[RowRange]] = field(factory=dict)
    tokens: set[str] = field(factory=set)
    unfinished: set[int] = field(factory=set)


def spread(
    locations: Iterable[ReadLocation], who: str, in_use: Mapping[str, int] | None = None
) -> tuple[ReadLocation, ...]:
    """Locations in the order in which a Client should ask: by priority, then the least used, then by chance.

    `in_use` says how many grants name each URI first; every `CROWD` of them make it as good as one of the next
    priority. The chance is a function of `who` and the location:
    Clients that know the same spread over equal locations, and each asks in the same order whenever it is
    asked.

    >>> near, far = ReadLocation(uri="near"), ReadLocation(uri="far", priority=1)
    >>> spread([far, near], "c1") == spread([near, far], "c2") == (near, far)
    True
    """
    used = in_use or {}

    def rank(location: ReadLocation) -> tuple[int, int, bytes, str]:
        others = used.get(location.uri, 0)
        digest = blake2b(f"{len(who)} {who} {location.uri}".encode(), digest_size=8).digest()
        return location.priority + others // CROWD, others, digest, location.uri

    return tuple(sorted(locations, key=rank))


class ReadAgent:
    """The Agent of one job: every row of the snapshot is counted exactly once, by the time it `has_ended`.

    Made of the partitions that were planned as of `snapshot`, each number once. For one thread at a time. The
    shell answers each message of a Client by the method of its name, and calls `tick` about once a second. A
    Client that is silent for `dead_ms` loses its grants; what is lost is handed to whoever asks next.
    `lease_ms` is that of the snapshot, which counts from the moment at which the renewal was *sent*.

    Raises `InvalidData` for partitions of which two have one number.
    """

    def __init__(
        self,
        job: str,
        snapshot: str,
        partitions: Collection[AgentPartition],
        runtime: Runtime,
        *,
        dead_ms: float = DEAD_MS,
        lease_ms: float = LEASE_MS,
        min_cut_rows: int = MIN_CUT_ROWS,
    ) -> None:
        self.job = job
        self.snapshot = snapshot
        self._runtime = runtime
        self._dead_ms = dead_ms
        self._renew_ms = lease_ms / RENEWALS_PER_LEASE
        self._min_cut_rows = min_cut_rows
        self._partitions = {one.number: one for one in partitions}
        if len(self._partitions) != len(partitions):
            raise InvalidData("two partitions of a read have one number")
        self._live: dict[str, _Live] = {}
        self._token_of: dict[ReaderId, str] = {}
        self._asked_first: Counter[str] = Counter()  # how many live grants name a location first
        self._waiting: deque[_Waiting] = deque()
        self._book = _Book({number: [] for number in self._partitions})
        self._instances: dict[str, str] = {}
        self._former: set[ReaderId] = set()
        self._idle: dict[ReaderId, float] = {}
        self._renewed_ms = runtime.monotonic_ms()
        self._gone = False
        for one in self._partitions.values():
            if one.rows.start != one.rows.end:
                self._book.unfinished.add(one.number)
                self._waiting.append(_Waiting(one.number, one.rows, ()))

    @property
    def has_ended(self) -> bool:
        """Whether every row was counted."""
        return not self._book.unfinished

    @property
    def live_tokens(self) -> frozenset[str]:
        return frozenset(self._live)

    @property
    def waiting(self) -> int:
        """How many ranges wait for somebody who asks."""
        return len(self._waiting)

    @property
    def counted_tokens(self) -> frozenset[str]:
        """The grants whose rows are the answer."""
        return frozenset(self._book.tokens)

    def ranges(self, partition: int) -> AgentRanges:
        """What is known of a partition's rows."""
        return AgentRanges(
            counted=tuple(self._book.ranges[partition]),
            live=tuple(live.rows for live in self._live.values() if live.grant.partition == partition),
            waiting=tuple(one.rows for one in self._waiting if one.partition == partition),
        )

    def ask(self, client: ReaderId) -> ReadGrant | WaitForWork | NoMoreWork:
        """Work for a Client that has none. Asked again, because the answer was lost, it gives the same grant.

        The first word of another instance of a Client ends the grants of the one before. When nothing waits, a
        grant with many rows left is to be cut for it. Raises `SnapshotGone`.
        """
        self.require()
        if self.has_ended or not self._is_newest(client):
            return NoMoreWork()
        mine = self._live.get(self._token_of.get(client, ""))
        if mine is not None:
            return evolve(mine.grant, rows=mine.rows)
        if self._waiting:
            self._idle.pop(client, None)
            return self._hand(self._waiting.popleft(), client)
        self._idle[client] = self._runtime.monotonic_ms()
        self._want_cut()
        return WaitForWork(ASK_AGAIN_MS)

    def reported(self, report: ReadReport) -> ReportReply:
        """Hear of a Client; it is told whether its grant is live, and of a cut until it answers that."""
        live = self._of(report.token, report.client)
        if live is None or self._gone:
            return ReportReply(token=report.token, is_live=False)
        live.heard_ms = self._runtime.monotonic_ms()
        if report.position > live.position and self._is_place(live, report.position):
            live.position = report.position
        return ReportReply(token=report.token, is_live=True, cut_id=live.cut_id)

    def was_cut(self, answer: CutAnswer) -> None:
        """Take the end that a Client gave itself; what is behind it waits for another one.

        Whoever takes that is a sibling: it has the ancestors of the grant that was cut, and not that grant,
        which lives.
        """
        live = self._of(answer.token, answer.client)
        if live is None or live.cut_id is None or live.cut_id != answer.cut_id:
            return
        live.cut_id = None
        live.heard_ms = self._runtime.monotonic_ms()
        live.can_be_cut = answer.end != live.rows.end  # else it would be asked for ever
        if answer.end != live.rows.start and self._is_place(live, answer.end):
            self._end_at(live, answer.end)

    def done(self, done: ReadDone) -> DoneReply:
        """Count rows, if their grant is live; once, and only as far as the `ReadDone` says.

        What is missing behind its end is granted anew. The answer to one that was counted before says so.
        """
        live = self._countable(done)
        if live is None:
            again = done.token in self._book.tokens
            return DoneReply(token=done.token, outcome="again" if again else "superseded")
        if not self._is_granted(live, done.rows):
            self._supersede(live)
            return DoneReply(token=done.token, outcome="refused")
        self._count(live, done.rows)
        return DoneReply(token=done.token, outcome="counted")

    def gave_up(self, message: GaveUp) -> ReportReply:
        """Give the rows of a grant to somebody else, from their first one on."""
        live = self._of(message.token, message.client)
        if live is not None:
            self._supersede(live)
        return ReportReply(token=message.token, is_live=False)

    def replanned(
        self, asked: ReplanAsked, snapshot: str, ticket: bytes, locations: Collection[ReadLocation]
    ) -> Replanned | None:
        """What a Coordinator said to `asked`, for the Client; None if its grant is not live any more.

        Raises `SnapshotGone` when it was planned as of another snapshot: nothing of that is taken.
        """
        self._require_same(snapshot)
        live = self._of(asked.token, asked.client)
        if live is None:
            return None
        number = live.grant.partition
        partition = evolve(self._partitions[number], ticket=ticket, locations=tuple(locations))
        self._partitions[number] = partition
        live.heard_ms = self._runtime.monotonic_ms()
        self._note_first(live.grant.locations, -1)
        live.grant = evolve(live.grant, ticket=ticket, locations=self._ordered(partition, live.grant.client))
        self._note_first(live.grant.locations, 1)
        return Replanned(token=asked.token, snapshot=snapshot, ticket=ticket, locations=live.grant.locations)

    def snapshot_lost(self, message: SnapshotLost) -> None:
        """Hear that the snapshot is gone: from now on `require` raises. Nothing can be read of it any more."""
        if message.snapshot == self.snapshot and not self.has_ended:
            self._gone = True

    def lose(self) -> None:
        """Hear from a Coordinator that the snapshot is gone; as `snapshot_lost`."""
        self._gone = not self.has_ended

    def is_live(self, token: str, client: ReaderId) -> bool:
        """Whether a grant of this Client is live."""
        return self._of(token, client) is not None

    def require(self) -> None:
        """Return if the job can go on. Raises `SnapshotGone` if what it reads is gone; only a new job helps."""
        if self._gone:
            raise SnapshotGone(
                f"the snapshot of read {self.job} is gone, for its lease was not renewed in time: plan it again",
                snapshot=self.snapshot,
            )

    def tick(self) -> bool:
        """Take grants from Clients that are silent. Returns whether the lease of the snapshot is to be renewed now."""
        now_ms = self._runtime.monotonic_ms()
        for live in [live for live in self._live.values() if now_ms - live.heard_ms > self._dead_ms]:
            self._supersede(live)
        self._idle = {who: since for who, since in self._idle.items() if now_ms - since <= self._dead_ms}
        return not self.has_ended and not self._gone and now_ms - self._renewed_ms >= self._renew_ms

    def renewed(self, sent_ms: float) -> None:
        """The lease was renewed by what was sent at `sent_ms`, by the Runtime's monotonic clock."""
        self._renewed_ms = max(self._renewed_ms, sent_ms)

    def _is_newest(self, client: ReaderId) -> bool:
        """Whether it is the newest instance of its Client. One that is new ends the grants of the one before."""
        if client in self._former:
            return False
        before = self._instances.get(client.name)
        if before is not None and before != client.instance:
            former = ReaderId(client.name, before)
            self._former.add(former)
            self._idle.pop(former, None)
            if (live := self._live.get(self._token_of.get(former, ""))) is not None:
                self._supersede(live)
        self._instances[client.name] = client.instance
        return True

    def _hand(self, waiting: _Waiting, client: ReaderId) -> ReadGrant:
        partition = self._partitions[waiting.partition]
        grant = ReadGrant(
            job=self.job,
            token=self._runtime.new_id(),
            ancestors=waiting.ancestors,
            client=client,
            partition=partition.number,
            rows=waiting.rows,
            sections=partition.sections,
            snapshot=self.snapshot,
            ticket=partition.ticket,
            locations=self._ordered(partition, client),
        )
        self._live[grant.token] = _Live(grant, waiting.rows, self._runtime.monotonic_ms(), waiting.rows.start)
        self._token_of[client] = grant.token
        self._note_first(grant.locations, 1)
        return grant

    def _ordered(self, partition: AgentPartition, client: ReaderId) -> tuple[ReadLocation, ...]:
        return spread(partition.locations, client.name, self._asked_first)

    def _note_first(self, locations: tuple[ReadLocation, ...], more: int) -> None:
        for location in locations[:1]:
            self._asked_first[location.uri] += more

    def _take_from(self, live: _Live) -> None:
        """End a grant."""
        del self._live[live.grant.token]
        del self._token_of[live.grant.client]
        self._note_first(live.grant.locations, -1)

    def _want_cut(self) -> None:
        """Have the grant with the most rows left cut, unless as many cuts are asked for as Clients are idle."""
        asked = sum(live.cut_id is not None for live in self._live.values())
        most = max(
            (live for live in self._live.values() if live.cut_id is None and self._rows_left(live) > 0),
            key=self._rows_left,
            default=None,
        )
        if most is not None and asked < len(self._idle) and self._rows_left(most) >= self._min_cut_rows:
            self._cut(most)

    def _cut(self, live: _Live) -> None:
        """Ask: where its Client is now, it alone knows."""
        live.cut_id = self._runtime.new_id()

    def _end_at(self, live: _Live, end: Position) -> None:
        rest = live.rows.rest(RowRange(live.rows.start, end))
        live.rows = RowRange(live.rows.start, end)
        if rest is not None:
            self._waiting.append(_Waiting(live.grant.partition, rest, self._ancestors_of_rest(live)))

    def _ancestors_of_rest(self, live: _Live) -> tuple[str, ...]:
        return live.grant.ancestors

    def _ancestors_of_successor(self, live: _Live) -> tuple[str, ...]:
        return (*live.grant.ancestors, live.grant.token)[-MAX_ANCESTORS:]

    def _supersede(self, live: _Live) -> None:
        """End a grant; its successor names it and all that it named, the newest `MAX_ANCESTORS`."""
        self._take_from(live)
        self._waiting.append(_Waiting(live.grant.partition, live.rows, self._ancestors_of_successor(live)))

    def _count(self, live: _Live, rows: RowRange) -> None:
        self._take_from(live)
        number = live.grant.partition
        rest = live.rows.rest(rows)
        if rest is not None:
            self._waiting.append(_Waiting(number, rest, self._ancestors_of_rest(live)))
        self._book.tokens.add(live.grant.token)
        self._book.ranges[number].append(rows)
        whole = self._partitions[number].rows
        if is_covered(self._book.ranges[number], whole.start, whole.end):
            self._book.unfinished.discard(number)

    def _of(self, token: str, client: ReaderId) -> _Live | None:
        """The live grant of a token, if it is that client's."""
        live = self._live.get(token)
        return live if live is not None and live.grant.client == client else None

    def _countable(self, done: ReadDone) -> _Live | None:
        """The fence."""
        return self._of(done.token, done.client)

    def _is_granted(self, live: _Live, rows: RowRange) -> bool:
        if rows == live.rows:
            return True
        begins = rows.start == live.rows.start and rows.end is not None and rows.start < rows.end
        return begins and rows.end is not None and self._is_place(live, rows.end)

    def _is_place(self, live: _Live, position: Position) -> bool:
        """Whether it is a place at which the rows of a grant can be parted, or that it can come to."""
        sections, end = live.grant.sections, live.rows.end
        if sections is None or end is None or not live.rows.start <= position <= end:
            return False
        try:
            return sections.named(position) == position
        except InvalidData:
            return False

    def _rows_left(self, live: _Live) -> int:
        sections, end = live.grant.sections, live.rows.end
        if sections is None or end is None or not live.can_be_cut:
            return 0
        return sections.offset(end) - sections.offset(live.position)

    def _require_same(self, snapshot: str) -> None:
        if snapshot != self.snapshot:
            raise SnapshotGone(
                f"read {self.job} is of another snapshot than what was planned anew: plan the whole job again",
                snapshot=self.snapshot,
            )
