"""How much of jobs there may be, and who is next: pure.

Between clients the one with the fewest jobs under way is next, so that none waits because another has sent many;
among the jobs of one client those of the highest priority, and of these the one that has waited longest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import frozen

from ballista_py.errors import TryLater
from ballista_py.state.documents.jobs import OpenJob

MAX_OPEN_JOBS = 100_000  # that a look takes in, whatever is configured
CHUNK_BYTES = 16 << 20
CLIENT_SHARE = 2  # a client that is known by a token has half of the queue at most


@frozen(kw_only=True)
class JobLimits:
    """`max_running` is of one scheduler, `max_queued` of the cluster: jobs that wait and that run. Times are ms."""

    max_running: int = 4
    max_queued: int = 1_000
    max_result_bytes: int = 16 << 30
    result_ttl_ms: float = 24 * 3_600_000.0
    timeout_ms: float | None = None
    chunk_bytes: int = CHUNK_BYTES

    def require_room(self, open_jobs: Collection[OpenJob], client: str) -> None:
        """Raise `TryLater` if this many are open already, of all clients or of the one with this digest."""
        if len(open_jobs) >= self.max_queued:
            raise TryLater(
                f"{len(open_jobs)} jobs wait or run already, of max_queued_jobs={self.max_queued}: submit it again "
                "when some have ended",
                limit=self.max_queued,
            )
        most = max(1, self.max_queued // CLIENT_SHARE)
        if client and sum(one.client == client for one in open_jobs) >= most:
            raise TryLater(
                f"{most} jobs of this client wait or run already, which is its share of "
                f"max_queued_jobs={self.max_queued}: submit it again when some have ended",
                limit=most,
            )

    def may_begin(self, client: str, of_client: int, free: int) -> bool:
        """Whether a client that runs so many at a scheduler may have one of its free places.

        The last one is for who has none: so jobs without an end of one client keep no other one waiting.
        """
        return free > 0 and (free > 1 or not client or not of_client or self.max_running == 1)


def in_turn(waiting: Iterable[OpenJob], running: Mapping[str, int]) -> Iterator[OpenJob]:
    """Those that wait, next first; `running` says how many jobs of each client are under way.

    >>> jobs = [OpenJob(name=f"{client}.{n}", priority=5, since_ms=n) for client in "ab" for n in range(2)]
    >>> [job.name for job in in_turn(jobs, {"a": 1})]
    ['b.0', 'a.0', 'b.1', 'a.1']
    """
    of_client: dict[str, list[OpenJob]] = defaultdict(list)
    for job in sorted(waiting, key=lambda one: (one.priority, -one.since_ms, one.name)):
        of_client[job.client].append(job)  # the last one is next
    under_way = Counter(running)
    while of_client:
        client = min(of_client, key=lambda one: (under_way[one], of_client[one][-1].since_ms, one))
        under_way[client] += 1
        yield of_client[client].pop()
        if not of_client[client]:
            del of_client[client]
