"""Who calls a Flight port, decided before a call is answered.

The public port knows clients by their token, the internal port knows nodes by their certificate. Where neither is
asked for a caller is known by the host that it calls from.

What a port remembers of the calls that it refused: one line a second in the log, and who is an attacker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from attrs import field, frozen

from ballista_py.errors import Unauthenticated, WrongCluster
from ballista_py.runtime import Runtime
from ballista_py.transport.security.access import Caller
from ballista_py.transport.security.credentials import Removed, identity_of
from ballista_py.transport.security.tokens import TokenVerifier, bearer_token
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


NODE_HEADER = "ballista-node"
CLUSTER_HEADER = "ballista-cluster"
TOKEN_HEADER = "authorization"  # noqa: S105 - the name of a header, not a token

Headers = Mapping[str, Any]


class Callers(Protocol):
    """Decides who calls. Used on many threads."""

    def claimed(self, headers: Headers) -> str:
        """Whom the headers name, before the call starts. Raises `Unauthenticated`."""
        ...

    def proved(self, claimed: str, context: Any) -> Caller:
        """Who it is, at the start of the call that `context` belongs to. Raises `Unauthenticated`."""
        ...

    def still(self, name: str) -> None:
        """Look again at a caller whose call is under way. Raises `Unauthenticated` if it is to end."""
        ...


class WhoeverBegan:
    """A caller that was let in may go on to the end of its call."""

    def still(self, name: str) -> None:
        return None


class Anyone(WhoeverBegan):
    """Lets everybody in, by the name of the host."""

    def claimed(self, headers: Headers) -> str:
        return ""

    def proved(self, claimed: str, context: Any) -> Caller:
        return Caller(peer_host(context.peer()))


@frozen
class Clients(WhoeverBegan):
    """Lets in whoever has a token."""

    verifier: TokenVerifier = field(repr=False)

    def claimed(self, headers: Headers) -> str:
        return self.verifier.verify(bearer_token(header(headers, TOKEN_HEADER)))

    def proved(self, claimed: str, context: Any) -> Caller:
        return Caller(claimed, "client")


@frozen
class Nodes:
    """Lets in nodes whose certificate names the node that they claim to be, unless they were removed."""

    removed: Removed = field(factory=Removed)

    def claimed(self, headers: Headers) -> str:
        node_id = header(headers, NODE_HEADER)
        if not node_id:
            raise Unauthenticated("the call does not say which node it comes from")
        return node_id

    def proved(self, claimed: str, context: Any) -> Caller:
        identity = context.peer_identity()
        proved = identity.decode(errors="replace") if isinstance(identity, bytes) else str(identity)
        return Caller(claimed, identity_of(proved, self.removed, claimed).role)

    def still(self, name: str) -> None:
        self.removed.check(name)


def peer_host(peer: str) -> str:
    """The host in a peer's name as gRPC writes it.

    >>> peer_host("ipv4:10.0.0.7:4711")
    '10.0.0.7'
    """
    return peer.partition(":")[2].rpartition(":")[0] or peer


def header(headers: Headers, name: str) -> str:
    """The one value of a header; nothing if there is none, or more than one."""
    values = headers.get(name, ())
    if len(values) != 1:
        return ""
    value = values[0]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@frozen
class TicketHolders(WhoeverBegan):
    """Lets in everybody, because each call carries a ticket that says what it may have."""

    def claimed(self, headers: Headers) -> str:
        return ""

    def proved(self, claimed: str, context: Any) -> Caller:
        return Caller(peer_host(context.peer()), "ticket")


@frozen
class ClientsAndTickets(WhoeverBegan):
    """Lets in whoever has a token, as a client, and whoever shows none, for what a ticket gives."""

    verifier: TokenVerifier = field(repr=False)

    def claimed(self, headers: Headers) -> str:
        token = bearer_token(header(headers, TOKEN_HEADER)) if headers.get(TOKEN_HEADER) else ""
        return self.verifier.verify(token) if token else ""

    def proved(self, claimed: str, context: Any) -> Caller:
        return Caller(claimed, "client") if claimed else Caller(peer_host(context.peer()), "ticket")


def check_cluster(claimed: str, own: str) -> None:
    """Raises `WrongCluster` if both are known and differ.

    A caller that names none is let in: it is a client that has not heard of a cluster yet, or a node of an older
    release.
    """
    if claimed and own and claimed != own:
        raise WrongCluster(
            "the node belongs to another cluster: its state location and this one's are not the same; "
            "one may be a copy of the other"
        )


@frozen
class OfOneCluster:
    """`Callers` that also belong to the cluster `cluster_id`, as far as they say."""

    callers: Callers
    cluster_id: str

    def claimed(self, headers: Headers) -> str:
        found = self.callers.claimed(headers)
        check_cluster(header(headers, CLUSTER_HEADER), self.cluster_id)
        return found

    def proved(self, claimed: str, context: Any) -> Caller:
        return self.callers.proved(claimed, context)

    def still(self, name: str) -> None:
        self.callers.still(name)
