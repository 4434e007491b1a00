"""How a node goes without anybody missing it: it begins nothing new, hands over what it owns, waits for what runs.

A drain is asked again and again (`RunningNode.drain`) until it is done, its time is over, nothing moves any more, or
somebody wants the node to stop at once.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from ballista_py.coordinator.jobs.runner import JobRunner
from ballista_py.errors import NotOwner, TryLater
from ballista_py.runtime import Runtime
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.transport.flight.server import FlightServer

# Without a call: whoever was given a ticket has come for the rows, and a client that asks now and then, and knows of
# this scheduler only, has asked once more, and was told of the others.
QUIET_MS = 2_000.0
STALLED_MS = 10_000.0  # without a partition that moved: there is nobody to take the rest
POLL_MS = 100.0


@define
class SchedulerDrain:
    """Of a scheduler: statements go to another one, those that run end here, and their answers are read here.

    So it is with jobs; those that still run when its time is over are given back.
    """

    node_id: str
    port: FlightServer
    runtime: Runtime
    jobs: JobRunner
    draining: bool = field(default=False, init=False)
    _busy_ms: float = field(default=0.0, init=False)

    def __call__(self) -> bool:
        """Whether no call and no job is under way, and none was for a moment."""
        now_ms = self.runtime.monotonic_ms()
        if not self.draining:
            self.draining, self._busy_ms = True, now_ms
            self.jobs.begin_no_more()
            self.port.drain(TryLater(f"scheduler '{self.node_id}' is about to stop: ask another one"))
        if self.port.open_calls() or self.jobs.running():
            self._busy_ms = now_ms
        return now_ms - self._busy_ms >= QUIET_MS


@define
class ExecutorDrain:
    """Of an executor: its partitions go to others, make-before-break, then the legs that run end.

    What is kept whole at every executor moves nowhere: legs over it go elsewhere once this one refuses them. Where
    nobody takes the partitions, because there is no other executor or none has room, it gives up after `STALLED_MS`.
    """

    node_id: str
    ports: tuple[FlightServer, ...]
    lease: ExecutorLease
    holder: PartitionHolder
    poke: Callable[[], None]
    runtime: Runtime
    _owned: int = field(default=-1, init=False)
    _moved_ms: float = field(default=0.0, init=False)
    _handed_over: bool = field(default=False, init=False)

    def __call__(self) -> bool:
        """Whether it owns nothing any more, or nobody takes it, and no call is under way."""
        now_ms = self.runtime.monotonic_ms()
        if self._owned < 0:
            self.lease.drain()
            self.holder.ends()
            self.poke()
        owned = len(self.holder.owned_partitions())
        if owned != self._owned:
            self._owned, self._moved_ms = owned, now_ms
        if not self._handed_over and (not owned or now_ms - self._moved_ms >= STALLED_MS):
            self._handed_over = True
            for port in self.ports:
                port.drain(NotOwner(f"executor '{self.node_id}' is about to stop, and owns nothing any more"))
        return self._handed_over and not any(port.open_calls() for port in self.ports)


def drained(drain: Callable[[], bool], timeout_ms: float, hurried: Callable[[], bool], runtime: Runtime) -> bool:
    """Ask the drain until it is done; False after `timeout_ms`, or once somebody is in a hurry."""
    until_ms = runtime.monotonic_ms() + timeout_ms
    while runtime.monotonic_ms() < until_ms and not hurried():
        if drain():
            return True
        runtime.sleep_ms(POLL_MS)
    return False
