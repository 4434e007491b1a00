"""Who calls a Flight port, decided before a call is answered.

The public port knows clients by their token, the internal port knows nodes by their certificate. Where neither is
asked for a caller is known by the host that it calls from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from attrs import field, frozen

from ballista_py.errors import Unauthenticated, WrongCluster
from ballista_py.transport.security.access import Caller
from ballista_py.transport.security.credentials import Removed, identity_of
from ballista_py.transport.security.tokens import TokenVerifier, bearer_token

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
