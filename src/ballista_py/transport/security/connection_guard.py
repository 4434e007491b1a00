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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import evolve, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.security.callers import Refused
from ballista_py.transport.sockets import Connection, Peer, accepted, address_group, cut

HELLO_BYTES = 200
HELLO_MS = 10_000
LOOK_SHARE = 50  # of the time of one thread, a look takes one part in so many at most
SUSPECT_MS = 10_000
REFUSED_OFTEN = 64
HURRY_MS = 20
HURRY_SHARE = 4

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class ConnectionLimits:
    """Of one port: connections in all, of one address (an IPv6 network of 64 bits counts as one), and the bytes that
    may come over a connection without a call that was let in, or without one ever.

    An address that offended is suspect for a while. Then it may have `suspect_connections` on which no call was ever
    let in, and as many bytes over one of them.
    """

    connections: int = 4_000
    per_address: int = 1_000
    unheard_bytes: int = 64 << 20
    stranger_bytes: int = 256 << 10
    suspect_connections: int = 8
    suspect_bytes: int = 16 << 10

    def among_nodes(self) -> ConnectionLimits:
        """Of a port where certificates are asked for, and windows are large: who gets so far is no stranger."""
        return evolve(self, stranger_bytes=self.unheard_bytes)

    def before_grpc(self) -> ConnectionLimits:
        """Of a front: a suspect's connection costs next to nothing there, and honest clients may share its address."""
        return evolve(self, suspect_connections=self.per_address)


@frozen(kw_only=True)
class Calls:
    """What a port knows of its calls: the peers whose calls are answered now, or were a moment ago; and whether it is
    `crowded` with calls that were begun and do not say what they want; and what it `refused`.
    """

    busy: Collection[Peer] = frozenset()
    crowded: bool = False
    refused: Refused = field(factory=Refused)


def too_many(
    connections: Sequence[Connection],
    calls: Calls,
    limits: ConnectionLimits,
    heard: Mapping[Peer, int],
    suspects: Collection[str] = (),
) -> list[Peer]:
    """Which connections are cut: those that did not even begin to speak in `HELLO_MS`, those that sent too much without
    being heard, what is beyond a limit, and those of offenders.

    Peers with a call are cut only if the others are not enough, or if they offended; those that had one, after those
    that never had. In a crowd the silent ones go, too. `heard` holds how much had come from a peer when it last had a
    call. `suspects` are addresses.

    >>> limits = ConnectionLimits(connections=2, per_address=2)
    >>> open = [Connection("10.0.0.7", port, silent_ms=port, received=999) for port in (1, 2, 3)]
    >>> too_many(open, Calls(busy={("10.0.0.7", 3)}), limits, {})
    [('10.0.0.7', 2)]
    """

    def is_suspect(one: Connection) -> bool:
        return bool(suspects) and not heard.get(one.peer) and address_group(one.host) in suspects

    def may_send(one: Connection) -> int:
        if is_suspect(one):
            return limits.suspect_bytes
        return limits.unheard_bytes if heard.get(one.peer) else limits.stranger_bytes

    def is_worthless(one: Connection) -> bool:
        if one.peer in calls.refused.offenders:
            return True
        if one.peer in calls.busy:
            return False
        silent = one.silent_ms > HELLO_MS and (calls.crowded or one.received < HELLO_BYTES)
        return silent or one.received - heard.get(one.peer, 0) > may_send(one)

    gone = {one.peer for one in connections if is_worthless(one)}
    left = [one for one in connections if one.peer not in gone]
    by_address: defaultdict[str, list[Connection]] = defaultdict(list)
    for one in left:
        by_address[address_group(one.host)].append(one)
    for own in by_address.values():
        strangers = [one for one in own if one.peer not in calls.busy and is_suspect(one)]
        loud = sorted(strangers, key=lambda one: one.received)[limits.suspect_connections :]
        gone |= {one.peer for one in loud} | _worst(own, len(own) - limits.per_address, calls.busy, heard)
    left = [one for one in left if one.peer not in gone]
    gone |= _worst(left, len(left) - limits.connections, calls.busy, heard)
    return sorted(gone)


def _worst(
    connections: Sequence[Connection], number: int, busy: Collection[Peer], heard: Mapping[Peer, int]
) -> set[Peer]:
    """Those without a call first, of them those that never had one, then those that never spoke, then the longest
    silent.
    """
    if number <= 0:
        return set()

    def worth(one: Connection) -> tuple[bool, bool, bool, int]:
        return one.peer in busy, bool(heard.get(one.peer)), one.received >= HELLO_BYTES, -one.silent_ms

    worst = sorted(connections, key=worth)
    return {one.peer for one in worst[:number]}


class ConnectionWatch:
    """What is remembered of connections from one look to the next: what had come over each when it was heard last, and
    which addresses are suspect. It only decides; for one thread.
    """

    def __init__(self, limits: ConnectionLimits, runtime: Runtime) -> None:
        self._limits = limits
        self._runtime = runtime
        self._heard: dict[Peer, int] = {}
        self._suspect_until_ms: dict[str, float] = {}

    @property
    def has_suspects(self) -> bool:
        """Whether there were suspects at the last look."""
        return bool(self._suspect_until_ms)

    def look(self, connections: Sequence[Connection], known: Calls) -> list[Peer]:
        """Which of all connections that there are shall be cut."""
        suspects = self._suspects(known.refused)
        self._heard = {
            one.peer: one.received if one.peer in known.busy else self._heard.get(one.peer, 0)
            for one in connections
        }
        gone = too_many(connections, known, self._limits, self._heard, suspects)
        cut_now = set(gone)
        self._suspect(address_group(one.host) for one in connections if one.peer in cut_now and self._is_loud(one))
        return gone

    def _is_loud(self, one: Connection) -> bool:
        return not self._heard.get(one.peer) and one.received > self._limits.stranger_bytes

    def _suspects(self, refused: Refused) -> Collection[str]:
        """The addresses that are suspect now: those that offended, or were refused again and again, a while ago."""
        now_ms = self._runtime.monotonic_ms()
        self._suspect_until_ms = {
            group: until for group, until in self._suspect_until_ms.items() if until > now_ms
        }
        self._suspect(address_group(host) for host, _ in refused.offenders)
        self._suspect(group for group, number in refused.by_address.items() if number >= REFUSED_OFTEN)
        return self._suspect_until_ms.keys()

    def _suspect(self, groups: Iterable[str]) -> None:
        self._suspect_until_ms |= dict.fromkeys(groups, self._runtime.monotonic_ms() + SUSPECT_MS)


def say_cut(port: int, gone: Sequence[Peer], connections: Sequence[Connection]) -> None:
    """Log how many connections of a port are cut, if any."""
    if gone:
        groups = len({address_group(host) for host, _ in gone})
        _log.warning(
            "port %s: %s of %s connections were cut, of %s addresses", port, len(gone), len(connections), groups
        )


class ConnectionGuard:
    """Keeps a port of this process within its limits; `tick` several times a second."""

    def __init__(self, limits: ConnectionLimits, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._watch = ConnectionWatch(limits, runtime)
        self._next_look_ms = 0.0

    def hurry(self) -> None:
        """Somebody offended: let the next tick look, unless one looked a moment ago."""
        self._next_look_ms = min(self._next_look_ms, self._runtime.monotonic_ms() + HURRY_MS)

    def tick(self, port: int, calls: Callable[[], Calls]) -> int:
        """Cut what is too much at `port`; returns how many that were."""
        with self._lock:
            return self._look(port, calls) if self._runtime.monotonic_ms() >= self._next_look_ms else 0

    def _look(self, port: int, calls: Callable[[], Calls]) -> int:
        began_ms = self._runtime.monotonic_ms()
        connections = accepted(port)
        gone = self._watch.look(connections, calls())
        say_cut(port, gone, connections)
        ended = cut(gone)
        now_ms = self._runtime.monotonic_ms()
        took_ms = now_ms - began_ms
        in_hurry = self._watch.has_suspects
        self._next_look_ms = now_ms + (max(HURRY_MS, HURRY_SHARE * took_ms) if in_hurry else LOOK_SHARE * took_ms)
        return ended
