"""What a port remembers of the calls that it refused: one line a second in the log, and who is an attacker."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.sockets import Peer, address_group, parse_peer

SAY_MS = 1_000
REASONS_AT_ONCE = 8
ENTRY_BYTES = 32  # what HTTP/2 counts of each header besides its name and value

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Refused:
    """Since they were asked for last: peers that broke the bounds of HTTP/2, and how often each address was refused."""

    offenders: frozenset[Peer] = frozenset()
    by_address: Mapping[str, int] = {}


def headers_too_large(headers: Iterable[tuple[str, str | bytes]], max_bytes: int) -> bool:
    """Whether headers that came are larger than the port said that they may be.

    gRPC keeps that bound only once a client has confirmed that it knows it; who sends more has not, on purpose.

    >>> headers_too_large([("x", "y")] * 1_000, 16 << 10)
    True
    """
    left = max_bytes
    for name, value in headers:
        left -= len(name) + len(value) + ENTRY_BYTES
        if left < 0:
            return True
    return False


class Refusals:
    """The refused calls of one port. Used from many threads; `tick` now and then."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._offenders: set[Peer] = set()
        self._by_address: Counter[str] = Counter()
        self._untold = 0
        self._last = ""
        self._said: set[str] = set()
        self._since_ms = runtime.monotonic_ms()

    def note(self, peer: str, reason: object) -> None:
        """A call from `peer`, as gRPC names it, was refused. The first for a reason is logged at once."""
        self.tick()
        place, why = parse_peer(peer), str(reason)
        with self._lock:
            if place is not None:
                self._by_address[address_group(place[0])] += 1
            new = why not in self._said and len(self._said) < REASONS_AT_ONCE
            if new:
                self._said.add(why)
            else:
                self._untold += 1
                self._last = f"{peer}: {why}"
        if new:
            _log.warning("a call was refused, from %s: %s", peer, why)

    def offend(self, peer: str, reason: str) -> None:
        """`peer` did what no client does that speaks HTTP/2 as it must."""
        place = parse_peer(peer)
        if place is not None:
            with self._lock:
                self._offenders.add(place)
        self.note(peer, reason)

    def tick(self) -> None:
        """Log in one line what was refused in the last second and not logged yet."""
        now_ms = self._runtime.monotonic_ms()
        with self._lock:
            if now_ms - self._since_ms < SAY_MS:
                return
            number, last = self._untold, self._last
            self._untold, self._since_ms = 0, now_ms
            self._said.clear()
        if number:
            _log.warning("%s more calls were refused; the last was a call from %s", number, last)

    def take(self) -> Refused:
        """What happened since this was asked last."""
        with self._lock:
            found = Refused(offenders=frozenset(self._offenders), by_address=dict(self._by_address))
            self._offenders.clear()
            self._by_address.clear()
        return found
