"""The executor's end of the chain of leases: whether it may serve now, and as which instance.

Times are conservative: a lease counts from the moment the heartbeat was *sent* that a scheduler answered with a
grant. Any scheduler's grant will do; the longest wins. An instance that was declared lost can only be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from ballista_py.errors import Fenced, LeaseExpired
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.members.control import (
    DEFAULT_ENGINE,
    ExecutorInfo,
    Grant,
    Heartbeat,
    HeldPartitions,
    Refusal,
)

MAX_UNANSWERED = 256


@frozen
class _Standing:
    info: ExecutorInfo
    until_ms: float = float("-inf")
    admitted: bool = False
    lost: bool = False
    left: bool = False


class ExecutorLease:
    """One executor's right to serve. Safe to share between threads.

    Send each `heartbeat` to every known scheduler and hand every answer to `answered`. When that returns True:
    stop serving, drop everything that is held, then `rejoin`.

    >>> lease = ExecutorLease("executor-1", "10.0.0.7:50053")
    >>> lease.valid()
    False
    >>> lease.answered(Grant(sequence=lease.heartbeat().sequence, lease_ms=30_000))
    False
    >>> lease.valid()
    True
    """

    def __init__(
        self,
        executor_id: str,
        data_address: str,
        *,
        capacity: float = 1.0,
        labels: Mapping[str, str] | None = None,
        parts_location: str = "",
        engine: str = DEFAULT_ENGINE,
        runtime: Runtime | None = None,
    ) -> None:
        self._runtime = runtime or SystemRuntime()
        self._lock = self._runtime.lock()
        self._sequence = 0
        self._sent_ms: dict[int, float] = {}
        self._standing = _Standing(
            ExecutorInfo(
                executor_id=executor_id,
                instance_id=self._runtime.new_id(),
                data_address=data_address,
                capacity=capacity,
                labels=dict(labels or {}),
                parts_location=parts_location,
                engine=engine,
            )
        )

    @property
    def info(self) -> ExecutorInfo:
        """Who this executor is now."""
        return self._standing.info

    def heartbeat(self, held: Sequence[HeldPartitions] = (), load: int = 0) -> Heartbeat:
        """The next heartbeat, to be sent at once. Raises `Fenced` while the instance is lost and not rejoined."""
        with self._lock:
            standing = self._standing
            if standing.lost or standing.left:
                raise Fenced(
                    f"executor '{standing.info.executor_id}' was declared lost or has left; it drops what it "
                    "holds and joins as a new instance",
                    executor_id=standing.info.executor_id,
                )
            self._sequence += 1
            now_ms = self._runtime.monotonic_ms()
            self._sent_ms[self._sequence] = now_ms
            self._sent_ms.pop(self._sequence - MAX_UNANSWERED, None)
            return Heartbeat(
                executor=standing.info,
                sequence=self._sequence,
                lapsed=now_ms >= standing.until_ms,
                admitted=standing.admitted,
                held=tuple(held),
                load=load,
            )

    def answered(self, answer: Grant | Refusal) -> bool:
        """Take in a scheduler's answer, however late. True if it says that this instance is lost."""
        with self._lock:
            sent_ms = self._sent_ms.get(answer.sequence)
            standing = self._standing
            if sent_ms is None or standing.lost or standing.left:
                return standing.lost
            if isinstance(answer, Grant):
                until_ms = max(standing.until_ms, sent_ms + answer.lease_ms)
                self._standing = evolve(standing, until_ms=until_ms, admitted=True)
                return False
            if answer.reason != "lost":
                return False
            self._standing = evolve(standing, until_ms=float("-inf"), lost=True)
            self._sent_ms.clear()
            return True

    def rejoin(self) -> ExecutorInfo:
        """Become a new instance, after everything that the old one held was dropped."""
        with self._lock:
            self._sent_ms.clear()
            info = evolve(self._standing.info, instance_id=self._runtime.new_id())
            self._standing = _Standing(info)
            return info

    def drain(self) -> None:
        """Say from the next heartbeat on that this executor takes nothing more, and that others take what it has."""
        with self._lock:
            self._standing = evolve(self._standing, info=evolve(self._standing.info, capacity=0.0))

    def leave(self) -> None:
        """Serve nothing from now on. Tell a scheduler afterwards: it may give the partitions away at once."""
        with self._lock:
            self._standing = evolve(self._standing, until_ms=float("-inf"), left=True)

    def valid(self) -> bool:
        """Whether this executor may serve now."""
        return self.remaining_ms() > 0

    def remaining_ms(self) -> float:
        """How long it may serve from now on without another grant."""
        return max(0.0, self._standing.until_ms - self._runtime.monotonic_ms())

    def require(self) -> None:
        """Return if this executor may serve now. Raises `LeaseExpired`."""
        if not self.valid():
            raise LeaseExpired(
                f"the lease of executor '{self.info.executor_id}' has run out; it serves again once a scheduler "
                "grants a new one",
                executor_id=self.info.executor_id,
            )
