"""How many connections a port of gRPC may have and what may come over them, and which are cut when it is more.

gRPC accepts whoever comes, reads a whole message before it asks who sent it, and has no limit of its own that Arrow
Flight would let us set. So a tick looks at the sockets of this process and shuts down what is too much. A connection
with a call under way stays; of the others the one goes first over which nothing has come for longest. A client whose
connection was idle connects again by itself.

Between two ticks there can be more than the limit: what gRPC accepts and reads in that time.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.sockets import Connection, accepted, address_group, cut

HELLO_BYTES = 200
HELLO_MS = 10_000
LOOK_SHARE = 50  # of the time of one thread, a look takes one part in so many at most
Peer: TypeAlias = tuple[str, int]

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class ConnectionLimits:
    """Of one port: connections in all, of one address (an IPv6 network of 64 bits counts as one), and the bytes that
    may come over a connection without a call that was let in.
    """

    connections: int = 4_000
    per_address: int = 1_000
    unheard_bytes: int = 64 << 20


@frozen(kw_only=True)
class Calls:
    """What a port knows of its calls: the peers whose calls are answered now, or were a moment ago; and whether it is
    `crowded` with calls that were begun and do not say what they want.
    """

    busy: Collection[Peer] = frozenset()
    crowded: bool = False


def too_many(
    connections: Sequence[Connection],
    calls: Calls,
    limits: ConnectionLimits,
    heard: Mapping[Peer, int],
) -> list[Peer]:
    """Which connections are cut: those that did not even begin to speak in `HELLO_MS`, those that sent too much without
    being heard, and what is beyond a limit.

    Peers with a call are cut only if the others are not enough. In a crowd the silent ones go, too. `heard` holds how
    much had come from a peer when it last had a call.

    >>> limits = ConnectionLimits(connections=2, per_address=2)
    >>> open = [Connection("10.0.0.7", port, silent_ms=port, received=999) for port in (1, 2, 3)]
    >>> too_many(open, Calls(busy={("10.0.0.7", 3)}), limits, {})
    [('10.0.0.7', 2)]
    """

    def is_worthless(one: Connection) -> bool:
        if one.peer in calls.busy:
            return False
        silent = one.silent_ms > HELLO_MS and (calls.crowded or one.received < HELLO_BYTES)
        return silent or one.received - heard.get(one.peer, 0) > limits.unheard_bytes

    gone = {one.peer for one in connections if is_worthless(one)}
    left = [one for one in connections if one.peer not in gone]
    by_address: defaultdict[str, list[Connection]] = defaultdict(list)
    for one in left:
        by_address[address_group(one.host)].append(one)
    for own in by_address.values():
        gone |= _worst(own, len(own) - limits.per_address, calls.busy)
    left = [one for one in left if one.peer not in gone]
    gone |= _worst(left, len(left) - limits.connections, calls.busy)
    return sorted(gone)


def _worst(connections: Sequence[Connection], number: int, busy: Collection[Peer]) -> set[Peer]:
    """Those without a call first, of them those that never spoke, of them the longest silent."""
    if number <= 0:
        return set()
    worst = sorted(connections, key=lambda one: (one.peer in busy, one.received >= HELLO_BYTES, -one.silent_ms))
    return {one.peer for one in worst[:number]}


class ConnectionGuard:
    """Keeps a port of this process within its limits; `tick` several times a second."""

    def __init__(self, limits: ConnectionLimits, runtime: Runtime) -> None:
        self._limits = limits
        self._runtime = runtime
        self._next_look_ms = 0.0
        self._heard: dict[Peer, int] = {}

    def tick(self, port: int, calls: Callable[[], Calls]) -> int:
        """Cut what is too much at `port`; returns how many that were."""
        began_ms = self._runtime.monotonic_ms()
        if began_ms < self._next_look_ms:
            return 0
        connections = accepted(port)
        known = calls()
        self._heard = {
            one.peer: one.received if one.peer in known.busy else self._heard.get(one.peer, 0)
            for one in connections
        }
        gone = too_many(connections, known, self._limits, self._heard)
        if gone:
            groups = len({address_group(host) for host, _ in gone})
            _log.warning(
                "port %s: %s of %s connections were cut, of %s addresses",
                port,
                len(gone),
                len(connections),
                groups,
            )
        ended = cut(gone)
        now_ms = self._runtime.monotonic_ms()
        self._next_look_ms = now_ms + LOOK_SHARE * (now_ms - began_ms)
        return ended
