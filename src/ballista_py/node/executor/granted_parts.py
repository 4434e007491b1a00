"""The grants that Clients of read jobs show to an executor, and the exchanges that are open under them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any

from attrs import define, field, frozen

from ballista_py.errors import BallistaError, SnapshotGone, TransportError
from ballista_py.runtime import Runtime
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.storage.reads.leases import ReadDocument
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.table_read.tokens.exchange import OpenRead, ReadReply
from ballista_py.transport.table_read.tokens.serving import HeldPartition, ServedReads, ServedStream

LOOK_MS = 30_000.0  # after which the lease of a job is looked at again, at the latest
KNOWN_LEASES = 4_000
LATE_MS = 1_000.0  # for a lease that nobody renewed in time, and nobody has ended yet
LOOK_OF_EACH_MS = 50.0  # of very many jobs each is looked at less often
GRANTS_TICK_MS = 1_000

Leases = Callable[[str], ReadDocument]


@frozen
class _Seen:
    """A lease as it was first seen after a renewal."""

    renewals: int
    lease_ms: float
    at_ms: float


@define
class GrantDesk:
    """Decides which exchanges go on under which grants, and ends the others. Safe to share between threads.

    What ends a job's lease is a document of the store, by the store's clock. Here counts, too, that it was not renewed
    for so long since this node saw it first, which is later. A node calls `tick` about once a second.
    """

    runtime: Runtime
    served: ServedReads
    _exchanges: dict[tuple[str, str], tuple[int, CallContext]] = field(init=False, factory=dict)
    _seen: OrderedDict[str, _Seen] = field(init=False, factory=OrderedDict)  # also of jobs that are over
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    @property
    def exchanges(self) -> int:
        """How many exchanges are open under grants."""
        with self._lock:
            return len(self._exchanges)

    def open(self, request: OpenRead, held: HeldPartition, lease: ReadDocument | None) -> ReadReply:
        """Whether an exchange may begin; None for a lease that is over. What it supersedes ends."""
        left_ms = 0.0 if lease is None else max(self._left_ms(request.job, lease), LATE_MS)
        answer = self.served.open(request, held, min(left_ms, self._look_ms()))
        self._end(answer.ended)
        return answer.reply

    def began(self, request: OpenRead, context: CallContext) -> None:
        """An exchange goes on that was accepted. One of the same attempt, whose Client asked twice, ends by it."""
        key = request.job, request.token
        with self._lock:
            before = self._exchanges.get(key)
            self._exchanges[key] = request.attempt, context
        if before is not None:
            before[1].cut(TransportError("the rows were asked for again"))
        if not self.goes_on(request):  # it was superseded before it could be found here
            self._drop(key, request.attempt)

    def goes_on(self, request: OpenRead) -> bool:
        """Whether the next rows are wanted."""
        return self.served.pulled(request.job, request.token, request.attempt)

    def over(self, request: OpenRead, context: CallContext | None = None) -> None:
        """An exchange ended, or an accepted one did not begin."""
        key = request.job, request.token
        with self._lock:
            mine = self._exchanges.get(key)
            if context is not None and (mine is None or mine[1] is not context):
                return  # another one goes on in its place
            if context is not None:
                del self._exchanges[key]
        self.served.closed(request.job, request.token, request.attempt)

    def tick(self, leases: Leases) -> None:
        """End what nobody pulls, and what is of jobs that are over."""
        with self._lock:
            exchanges = list(self._exchanges.items())
        for (job, token), (attempt, context) in exchanges:
            if context.is_at_work():  # nobody can pull what is not there yet
                self.served.pulled(job, token, attempt)
        for job in self.served.ending(self._look_ms() / 2):
            self._look(job, leases)
        self._end(self.served.tick())

    def _look(self, job: str, leases: Leases) -> None:
        """Hear from the store how long a job lasts."""
        try:
            left_ms = self._left_ms(job, leases(job))
        except SnapshotGone:
            left_ms = 0.0
        except BallistaError:  # the store cannot be asked now: what was known counts
            left_ms = self._known_left_ms(job)
        if left_ms <= 0:
            self._end(self.served.end_job(job))
        else:
            self.served.renewed(job, min(left_ms, self._look_ms()))

    def _left_ms(self, job: str, lease: ReadDocument) -> float:
        """For how long the lease lasts at most, from now on."""
        with self._lock:
            seen = self._seen.get(job)
            if seen is None or seen.renewals != lease.renewals:
                self._seen[job] = _Seen(lease.renewals, lease.lease_ms, self.runtime.monotonic_ms())
                while len(self._seen) > KNOWN_LEASES:
                    self._seen.popitem(last=False)
            self._seen.move_to_end(job)
        return self._known_left_ms(job)

    def _known_left_ms(self, job: str) -> float:
        with self._lock:
            seen = self._seen.get(job)
        return 0.0 if seen is None else seen.at_ms + seen.lease_ms + SKEW_MS - self.runtime.monotonic_ms()

    def _look_ms(self) -> float:
        return max(LOOK_MS, LOOK_OF_EACH_MS * len(self.served.ending(inf)))

    def _end(self, ended: tuple[ServedStream, ...]) -> None:
        """End the exchanges of streams that are over."""
        for stream in ended:
            self._drop((stream.job, stream.token), stream.attempt)

    def _drop(self, key: tuple[str, str], attempt: int) -> None:
        with self._lock:
            found = self._exchanges.get(key)
            if found is None or found[0] != attempt:
                return
            del self._exchanges[key]
        found[1].cut(TransportError("the rows are read by somebody else by now, or nobody took any for too long"))
