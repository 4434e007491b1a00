"""What a scheduler signs for somebody without a certificate to show, and a node believes whoever shows it.

A client has no certificate of a node and executors know no tokens, so the scheduler that let the client ask signs what
a node is to do. Whoever reads a ticket can have what it is for, for an hour.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from attrs import field, frozen

from ballista_py.errors import ConfigError, MissingExtra, Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.transport.endpoints import Address
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.security.callers import check_cluster
from ballista_py.transport.security.certificates import out_of_its_time
from ballista_py.transport.security.credentials import Removed, Tls, identity_of

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    from cryptography.x509.verification import PolicyBuilder, Store
except ImportError as error:
    raise MissingExtra.of("cryptography", "node") from error

TICKET_MS = 3_600_000
SKEW_MS = 300_000
_FIELDS = frozenset(("body", "certificate", "signature"))
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)

Ticket = Mapping[str, Any]


@frozen(kw_only=True)
class TicketSigner:
    """What a scheduler makes tickets with. With `tls` it signs them as the node that its certificate names.

    A node signs nothing else that begins with `purpose`: a ticket for one thing is none for another.
    """

    purpose: bytes
    cluster_id: str
    runtime: Runtime
    tls: Tls | None = None

    def issue(self, values: Mapping[str, Any]) -> dict[str, str]:
        """A ticket that says these, JSON-ready as they are. Raises `ConfigError` for a key that cannot sign."""
        (ticket,) = self.issue_all([values])
        return ticket

    def issue_all(self, several: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
        """A ticket for each of these, as `issue` makes them; the certificate is read once."""
        certificate, key = (b"", b"") if self.tls is None else self.tls.read().pair()
        sign = None if self.tls is None else _signing(key)
        said = {
            "cluster": self.cluster_id,
            "until_ms": self.runtime.wall_ms() + TICKET_MS,
            "certificate": sha256(certificate).hexdigest(),
        }
        for values in several:
            body = to_json({**values, **said})
            ticket = {"body": base64.b64encode(body).decode()}
            if sign is not None:
                ticket["certificate"] = certificate.decode()
                ticket["signature"] = base64.b64encode(sign(self.purpose + body)).decode()
            yield ticket


@frozen(kw_only=True)
class TicketCheck:
    """What a node looks at tickets with. With `tls` it asks for the signature of a scheduler that was not removed: an
    executor's key signs nothing.
    """

    purpose: bytes
    cluster_id: str
    runtime: Runtime
    tls: Tls | None = None
    removed: Removed = field(factory=Removed)

    def values(self, ticket: Ticket) -> dict[str, Any]:
        """What a ticket says that was issued for this purpose.

        Raises `Unauthenticated` for one that is too old, was changed or that no scheduler of the cluster has signed,
        and `WrongCluster` for one of another cluster.
        """
        body = _decoded(ticket, "body")
        if self.tls is not None:
            self._check_signature(self.tls, ticket, body)
        values = from_json(body)
        check_cluster(str(values.get("cluster") or ""), self.cluster_id)
        check_time(values.get("until_ms"), self.runtime.wall_ms())
        if "certificate" not in values:
            raise Unauthenticated("the ticket is of an earlier release: run the statement again")
        signer = sha256(str(ticket.get("certificate", "")).encode()).hexdigest()
        if values.get("certificate") != signer or not ticket.keys() <= _FIELDS:
            raise changed()
        return values

    def _check_signature(self, tls: Tls, ticket: Ticket, body: bytes) -> None:
        """That a scheduler of the cluster has signed the body."""
        try:
            leaf, *others = x509.load_pem_x509_certificates(str(ticket.get("certificate")).encode())
            authorities = x509.load_pem_x509_certificates(tls.read().ca or b"")
            _check_in_its_time(leaf, self.runtime.wall_ms())
            now = datetime.fromtimestamp(self.runtime.wall_ms() / 1e3, UTC)
            verifier = PolicyBuilder().store(Store(authorities)).time(now).build_client_verifier()
            names = verifier.verify(leaf, others).subjects or ()
            _verify(leaf.public_key(), _decoded(ticket, "signature"), self.purpose + body)
        except Unauthenticated:
            raise
        except Exception as error:  # whatever the library says of bytes that anybody may have made up
            raise Unauthenticated(
                f"the ticket is signed by no node of this cluster ({type(error).__name__})"
            ) from None
        signer = identity_of(str(names[0].value) if names else "", self.removed)
        if signer.role != "scheduler":
            raise Unauthenticated(f"the ticket is signed by '{signer.node_id}', which is no scheduler")


def changed() -> Unauthenticated:
    """The error of a ticket that is not as it was given."""
    return Unauthenticated("the ticket was changed after a scheduler gave it: run the statement again")


def safe_location(said: str | None, data_address: str, *, is_plain: bool) -> str | None:
    """The URI at which clients are sent to a node that said it; None if they are not to go there.

    Drivers send their token along. So it must be the host at which the node proves itself to schedulers, and TLS
    wherever nodes have it.

    >>> safe_location("grpc://e1:5", "e1:4", is_plain=True), safe_location("grpc://other:5", "e1:4", is_plain=True)
    ('grpc://e1:5', None)
    """
    scheme, _, address = (said or "").partition("://")
    try:
        own = Address.parse(address).host == Address.parse(data_address).host
    except ConfigError:
        return None
    return said if own and scheme == ("grpc" if is_plain else "grpc+tls") else None


def check_time(until_ms: object, now_ms: float) -> None:
    """That a ticket which ends at `until_ms` counts now. Raises `Unauthenticated`.

    One that ends later than an hour from now comes from a clock that is ahead: it would count for as long as that is.

    >>> check_time(TICKET_MS, 0)
    >>> check_time(TICKET_MS + SKEW_MS + 1, 0)
    Traceback (most recent call last):
    ...
    ballista_py.errors.Unauthenticated: the ticket is from later than now: set its scheduler's clock, which is ahead
    """
    if not isinstance(until_ms, int | float) or not now_ms <= until_ms + SKEW_MS:
        raise Unauthenticated(
            "the ticket is too old: run the statement again; if new ones are too old as well, the clocks of its "
            "scheduler and of this executor differ: set both"
        )
    if until_ms > now_ms + TICKET_MS + SKEW_MS:
        raise Unauthenticated("the ticket is from later than now: set its scheduler's clock, which is ahead")


def _check_in_its_time(certificate: x509.Certificate, wall_ms: float) -> None:
    if said := out_of_its_time(certificate, wall_ms):
        raise Unauthenticated(f"the ticket is signed by no node of this cluster: its certificate {said}")


def _signing(key_pem: bytes) -> Callable[[bytes], bytes]:
    """What signs with the key."""
    key = serialization.load_pem_private_key(key_pem, None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return lambda signed: key.sign(signed, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, rsa.RSAPrivateKey):
        return lambda signed: key.sign(signed, _PSS, hashes.SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign
    raise ConfigError("TLS: the key of this node cannot sign; take one of an elliptic curve, RSA or Ed25519")


def _verify(key: Any, signature: bytes, signed: bytes) -> None:
    """Raises `InvalidSignature`."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, signed, _PSS, hashes.SHA256())
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, signed)
    else:
        raise InvalidSignature


def _decoded(ticket: Ticket, name: str) -> bytes:
    try:
        return base64.b64decode(str(ticket.get(name) or ""), validate=True)
    except ValueError:
        raise Unauthenticated("the ticket is none that a scheduler has given") from None
