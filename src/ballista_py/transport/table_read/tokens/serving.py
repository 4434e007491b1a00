"""What a Server of Table Read remembers: which grants were superseded, and what is read under the others.

It saves work that nobody wants any more, bounds what is read at once and says which files are in use. It never
makes an answer right: rows count by the Agent's word alone, so whatever is forgotten here, at a restart or for
want of room, costs some rows that are sent in vain. All of a job goes when its lease ends.
"""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.table_read.tokens.exchange import (
    MAX_ANCESTORS,
    OpenRead,
    ReadAccepted,
    ReadOnHold,
    ReadPreempted,
    ReadRefused,
    ReadRejected,
    ReadReply,
    ReadSnapshotGone,
    StaleAttempt,
)

IDLE_MS = 60_000.0
RETRY_AFTER_MS = 1_000.0
MAX_STREAMS = 32
MAX_JOBS = 1_000
MAX_TOKENS = 100_000
SUPERSEDED = 0  # in place of the number of an attempt, which begins with 1


@frozen
class ServedStream:
    """One stream that is, or was, open: at most one for each grant."""

    job: str
    token: str
    attempt: int
    snapshot: str
    partition: int


@frozen(kw_only=True)
class HeldPartition:
    """What a Server can do about a request now."""

    is_held: bool
    is_busy: bool = False  # too busy to run plans
    in_order: bool = True  # rows are at hand in the order of the manifest


@frozen(kw_only=True)
class OpenAnswer:
    """The reply, and the streams that ended by the request: their exchanges are to be closed, their files let go."""

    reply: ReadReply
    ended: tuple[ServedStream, ...] = ()


@define
class _Open:
    stream: ServedStream
    applies_plan: bool
    in_order: bool
    used_ms: float


@define
class _ServedJob:
    """`tokens` holds the newest attempt of each, or `SUPERSEDED`; what was heard of first is in front."""

    ends_ms: float
    tokens: OrderedDict[str, int] = field(factory=OrderedDict)
    streams: dict[str, _Open] = field(factory=dict)


class ServedReads:
    """The memory of one Server. Safe to share between threads.

    At most `max_streams` are open; who comes then is on hold. A stream that nobody pulled for `idle_ms` is
    dropped. At most `max_tokens` grants are remembered in all: the job that has most of them forgets the ones
    that it told first, which are superseded or ended for longest. So a job that names a million grants makes
    its own be forgotten, and tokens are those of their job, which the ticket vouches for: naming another job's
    does nothing. Of more than `max_jobs` jobs one without an open stream goes, the one whose lease ends first.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        max_streams: int = MAX_STREAMS,
        idle_ms: float = IDLE_MS,
        retry_after_ms: float = RETRY_AFTER_MS,
        max_jobs: int = MAX_JOBS,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self._runtime = runtime
        self._max_streams = max_streams
        self._idle_ms = idle_ms
        self._retry_after_ms = retry_after_ms
        self._max_jobs = max(max_jobs, max_streams + 1)  # so that one of them has no stream
        self._max_tokens = max_tokens
        self._jobs: dict[str, _ServedJob] = {}
        self._lock = runtime.lock()

    @property
    def streams(self) -> tuple[ServedStream, ...]:
        """What is open now. The files of these, and of no others, are pinned at this Server."""
        with self._lock:
            return tuple(one.stream for job in self._jobs.values() for one in job.streams.values())

    @property
    def remembered(self) -> int:
        """How many grants are remembered."""
        with self._lock:
            return self._remembered()

    def open(self, request: OpenRead, held: HeldPartition, lease_left_ms: float) -> OpenAnswer:
        """Say whether a Client may read. Once it is accepted, `pulled` allows each chunk.

        `lease_left_ms` is what the document of the snapshot says now; at 0 or less the snapshot is gone. The
        same attempt heard again gets the same answer and no second stream; one before it is stale.
        """
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            ended = self._tidy(now_ms)
            if lease_left_ms <= 0:
                ended += self._end_job(request.job)
                return OpenAnswer(reply=ReadSnapshotGone(request.attempt), ended=ended)
            job, forgotten = self._job(request.job, now_ms + lease_left_ms)
            for ancestor in request.ancestors[-MAX_ANCESTORS:]:
                ended += self._supersede(job, ancestor)
            reply, replaced = self._reply(job, request, held, now_ms)
            self._forget_tokens()
            return OpenAnswer(reply=reply, ended=ended + replaced + forgotten)

    def pulled(self, job: str, token: str, attempt: int) -> bool:
        """Whether the next chunk may be sent: the stream is open, and of this attempt. It then counts as used now."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            found = self._jobs.get(job)
            one = found.streams.get(token) if found is not None else None
            if found is None or one is None or found.ends_ms <= now_ms or not self._is_current(one, attempt):
                return False
            if now_ms - one.used_ms > self._idle_ms:
                return False
            one.used_ms = now_ms
            return True

    def closed(self, job: str, token: str, attempt: int) -> tuple[ServedStream, ...]:
        """End a stream, if it is still that of this attempt. What ended is returned."""
        with self._lock:
            found = self._jobs.get(job)
            one = found.streams.get(token) if found is not None else None
            if found is None or one is None or one.stream.attempt != attempt:
                return ()
            del found.streams[token]
            return (one.stream,)

    def end_job(self, job: str) -> tuple[ServedStream, ...]:
        """Forget a job, which has ended or has lost its lease. What ended by that is returned."""
        with self._lock:
            return self._end_job(job)

    def renewed(self, job: str, lease_left_ms: float) -> None:
        """What the document of a job's snapshot says now; shorter than before it may be, too."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            if job in self._jobs:
                self._jobs[job].ends_ms = now_ms + lease_left_ms

    def ending(self, within_ms: float) -> tuple[str, ...]:
        """The jobs whose lease ends so soon, as far as is known here: read their documents, and tell `renewed`.

        Also those without an open stream, for what they superseded is forgotten with them.
        """
        until_ms = self._runtime.monotonic_ms() + within_ms
        with self._lock:
            return tuple(name for name, job in self._jobs.items() if job.ends_ms <= until_ms)

    def tick(self) -> tuple[ServedStream, ...]:
        """Drop what nobody pulls, and the jobs whose lease is over. What ended is returned."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            return self._tidy(now_ms)

    def _reply(
        self, job: _ServedJob, request: OpenRead, held: HeldPartition, now_ms: float
    ) -> tuple[ReadReply, tuple[ServedStream, ...]]:
        """The reply, and the stream of an earlier attempt that ends by it."""
        token, attempt = request.token, request.attempt
        before = job.streams.get(token)
        known = job.tokens.get(token) if before is None else before.stream.attempt
        if known == SUPERSEDED:
            return ReadPreempted(attempt), ()
        if before is not None and before.stream.attempt == attempt:
            return ReadAccepted(attempt, before.applies_plan, before.in_order), ()
        if known is not None and attempt <= known:
            return StaleAttempt(attempt), ()
        replaced = () if before is None else (job.streams.pop(token).stream,)
        if not held.is_held:
            return ReadRejected(attempt), replaced
        if sum(len(one.streams) for one in self._jobs.values()) >= self._max_streams:
            return ReadOnHold(attempt, self._retry_after_ms), replaced
        if request.wants_plan and held.is_busy:
            return ReadRefused(attempt), replaced
        stream = ServedStream(request.job, token, attempt, request.snapshot, request.partition)
        in_order = held.in_order or request.needs_order
        job.streams[token] = _Open(stream, request.wants_plan, in_order, now_ms)
        job.tokens[token] = attempt
        job.tokens.move_to_end(token)
        return ReadAccepted(attempt, request.wants_plan, in_order), replaced

    def _job(self, name: str, ends_ms: float) -> tuple[_ServedJob, tuple[ServedStream, ...]]:
        """The job of a name, which is made if it is not known, and what ended to make room for it."""
        ended: tuple[ServedStream, ...] = ()
        if name not in self._jobs:
            if len(self._jobs) >= self._max_jobs:
                idle = (other for other, job in self._jobs.items() if not job.streams)
                ended = self._end_job(min(idle, key=lambda other: self._jobs[other].ends_ms))
            self._jobs[name] = _ServedJob(ends_ms)
        job = self._jobs[name]
        job.ends_ms = ends_ms
        return job, ended

    def _supersede(self, job: _ServedJob, token: str) -> tuple[ServedStream, ...]:
        self._remember(job, token)
        one = job.streams.pop(token, None)
        return () if one is None else (one.stream,)

    def _remember(self, job: _ServedJob, token: str) -> None:
        if job.tokens.get(token) != SUPERSEDED:
            job.tokens[token] = SUPERSEDED
            job.tokens.move_to_end(token)

    def _remembered(self) -> int:
        return sum(len(job.tokens) for job in self._jobs.values())

    def _forget_tokens(self) -> None:
        for _ in range(self._remembered() - self._max_tokens):
            most = max(self._jobs.values(), key=lambda job: len(job.tokens))
            most.tokens.popitem(last=False)

    def _is_current(self, one: _Open, attempt: int) -> bool:
        return one.stream.attempt == attempt

    def _end_job(self, name: str) -> tuple[ServedStream, ...]:
        job = self._jobs.pop(name, None)
        return () if job is None else tuple(one.stream for one in job.streams.values())

    def _tidy(self, now_ms: float) -> tuple[ServedStream, ...]:
        ended: tuple[ServedStream, ...] = ()
        for name in [name for name, job in self._jobs.items() if self._is_over(job, now_ms)]:
            ended += self._end_job(name)
        for job in self._jobs.values():
            for token in [token for token, one in job.streams.items() if self._is_idle(one, now_ms)]:
                ended += (job.streams.pop(token).stream,)
        return ended

    def _is_over(self, job: _ServedJob, now_ms: float) -> bool:
        return job.ends_ms <= now_ms

    def _is_idle(self, one: _Open, now_ms: float) -> bool:
        return now_ms - one.used_ms > self._idle_ms
