"""The schedulers that a client knows: whom it asks first, whom next, and where it learns of others.

The time limit of a statement as its client keeps it: a scheduler may hang, or answer nonsense, and say it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, TypeVar

from attrs import field, frozen

from ballista_py.errors import (
    BallistaError,
    SchedulerLost,
    SqlError,
    TimeLimit,
    TransportError,
    TryLater,
    WrongCluster,
)
from ballista_py.runtime import Runtime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import MEMBERS
from ballista_py.transport.flight.errors import is_link_failure


@frozen
class TimeLeft:
    """Until when a statement may take, from its construction on; without `timeout` (seconds) it may take for ever.

    Raises `SqlError` for a timeout that is no positive number.

    >>> from ballista_py.runtime import SystemRuntime
    >>> TimeLeft(SystemRuntime(), None).ms()
    >>> TimeLeft(SystemRuntime(), 30).ms() <= 30_000
    True
    """

    runtime: Runtime
    timeout: float | None
    _began_ms: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        given = self.timeout
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and 0 < given < float("inf")):
            raise SqlError("a time limit is a positive number of seconds")

    @_began_ms.default
    def _now(self) -> float:
        return self.runtime.monotonic_ms()

    def ms(self) -> float | None:
        """What is left, in milliseconds; None where there is no limit. Raises `TimeLimit` when it is over."""
        if self.timeout is None:
            return None
        left_ms = self._began_ms + self.timeout * 1e3 - self.runtime.monotonic_ms()
        if left_ms <= 0:
            raise TimeLimit(f"the statement took longer than {self.timeout:g} s, which is its time limit")
        return float(ceil(left_ms))  # which is said in errors


T = TypeVar("T")
LEARN_MS = 5_000.0
LEARN_TIMEOUT_MS = 2_000.0
KEPT_MS = 600_000.0  # one that is listed no more may be on its way back, as all are that are restarted in turn
MAX_KEPT = 16


class Schedulers:
    """Those at `addresses`, and those that they tell of. Safe to share between threads.

    Which there are is asked again after a failure, after `LEARN_MS`, and of one that takes nothing now when nobody else
    is known: one that is about to stop tells of the others. Those that are listed no more are asked last, for
    `KEPT_MS`. One of another cluster than the first that answered is never asked for anything.
    """

    def __init__(self, addresses: Sequence[str], pool: FlightPool, runtime: Runtime) -> None:
        self._seeds = tuple(addresses)
        # The one that answered last comes first, those whose link failed come last.
        self.addresses: tuple[str, ...] = self._seeds
        self._pool = pool
        self._runtime = runtime
        self._learned_ms = runtime.monotonic_ms()
        self._listed_ms: dict[str, float] = {}

    def members(self) -> list[dict[str, Any]]:
        """Who belongs to the cluster, one JSON-ready row each; the schedulers among them are known from now on."""
        self._learned_ms = self._runtime.monotonic_ms()
        reply = self.call(MEMBERS, {})
        self._know(reply)
        return list(reply["rows"])

    def call(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to an action that may be asked for twice."""
        return self.first_of(lambda address: self._pool.call(address, action, body), lambda _error, _address: True)

    def first_of(self, ask: Callable[[str], T], may_repeat: Callable[[BallistaError, str], bool]) -> T:
        """The answer of the first scheduler that gives one. Only a failed link or `TryLater` goes to the next."""
        last: BallistaError | None = None
        failed = False
        unwilling: list[str] = []
        for address in self._in_turn(unwilling):
            try:
                answer = ask(address)
            except TryLater as passed:
                last = passed
                failed = True
                unwilling.append(address)
            except WrongCluster as passed:
                last = passed
            except TransportError as error:
                if not is_link_failure(error, address):
                    raise
                self._defer(address)
                if not may_repeat(error, address):
                    raise lost(address) from error
                last = error
                failed = True
            else:
                self._prefer(address)
                if failed or self._runtime.monotonic_ms() - self._learned_ms > LEARN_MS:
                    self._learn(address)
                return answer
        if isinstance(last, TryLater | WrongCluster):
            raise last
        raise TransportError(f"no scheduler can be reached: {last}") from last

    def _in_turn(self, unwilling: Sequence[str]) -> Iterator[str]:
        """Those that are known; then, once, those that one of the `unwilling` among them tells of."""
        known = self.addresses
        yield from known
        for address in tuple(unwilling):
            self._learn(address)
            others = [other for other in self.addresses if other not in known]
            if others:
                yield from others
                return

    def _learn(self, address: str) -> None:
        """Ask the scheduler there which others there are; if it does not say, the next call asks again."""
        try:
            self._know(self._pool.call(address, MEMBERS, {}, LEARN_TIMEOUT_MS))
        except BallistaError:
            return
        self._learned_ms = self._runtime.monotonic_ms()

    def _know(self, members: Mapping[str, Any]) -> None:
        """Take in the schedulers that are listed now, and which cluster it is."""
        rows = members.get("rows") or ()
        found = [row["address"] for row in rows if row["role"] == "scheduler" and row["address"]]
        now_ms = self._runtime.monotonic_ms()
        before = {one: ms for one, ms in self._listed_ms.items() if one not in found and now_ms - ms < KEPT_MS}
        gone = sorted(before, key=before.__getitem__, reverse=True)[:MAX_KEPT]
        self._listed_ms = {**{one: before[one] for one in gone}, **dict.fromkeys(found, now_ms)}
        self.addresses = tuple(dict.fromkeys([*self.addresses[:1], *found, *self._seeds, *gone]))
        self._pool.cluster_id = self._pool.cluster_id or str(members.get("cluster") or "")

    def _prefer(self, address: str) -> None:
        if self.addresses[0] != address:
            self.addresses = (address, *(other for other in self.addresses if other != address))

    def _defer(self, address: str) -> None:
        """Ask that scheduler last from now on: one that is stopped takes connections, and lets each wait in vain."""
        self.addresses = (*(other for other in self.addresses if other != address), address)


def lost(address: str) -> SchedulerLost:
    """The error of a statement whose scheduler went away while it worked on it."""
    return SchedulerLost(
        f"scheduler {address} went away while it worked on the statement; ask again, or connect with "
        "retry_reads=True to have queries asked again at another one",
        peer=address,
    )
