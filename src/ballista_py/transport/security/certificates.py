"""A cluster's own certificate authority in a folder: made, added to, shown, and names taken off it again.

    ca.pem  ca.key  removed  nodes/{node_id}/certificate.pem  nodes/{node_id}/key.pem

Keys are readable by their owner alone. Files are replaced as a whole, key first: a reader that meets the new key
with the old certificate finds that they do not belong together and looks again. There are no lists of revoked
serial numbers, because Flight reads none: a node is removed by its id, for ever.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Any

from attrs import frozen

from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.runtime import Runtime
from ballista_py.transport.security.credentials import DOMAIN, REMAKE, Identity, Removed, Role, Tls, is_node_id

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingExtra.of("cryptography", "node") from error

CA_DAYS = 3_650
NODE_DAYS = 397
BACKDATED = timedelta(hours=1)  # clocks of other machines may be behind
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@frozen(kw_only=True)
class NodeCertificate:
    """What a certificate says, for people; times are ISO 8601 in UTC. The authority has no role, nor has a certificate
    of which no node knows what it may do.
    """

    node_id: str
    role: Role | None = None
    names: tuple[str, ...]
    not_before: str
    not_after: str
    serial: str
    removed: bool = False


@frozen
class CertificateFolder:
    """The authority in `folder`. Whoever can read `ca.key` can make nodes: keep it off the nodes."""

    folder: Path
    runtime: Runtime

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority, which everybody may have."""
        return self.folder / "ca.pem"

    @property
    def removed_file(self) -> Path:
        """The list of removed nodes, for `--node-mtls-removed-file`; missing while nobody was removed."""
        return self.folder / "removed"

    def init(self, days: float = CA_DAYS) -> None:
        """Make the authority. Raises `ConfigError` if there is one already."""
        if self.ca_file.exists() or self._ca_key.exists():
            raise ConfigError(f"{self.folder} holds an authority already; take another folder")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ballista_py cluster authority")])
        certificate = (
            self._builder(name, name, key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self._ca_key, _pem_of_key(key), 0o600)
        _write(self.ca_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)

    def add(self, node_id: str, role: Role, hosts: Sequence[str] = (), days: float = NODE_DAYS) -> NodeCertificate:
        """Make a certificate for the node, or a new one in place of its old one.

        Its names are node id and role, `hosts` (names and addresses it is reached at) and those of the local machine.
        Raises `ConfigError` for a folder without an authority, for names that are none, for a removed node, and for
        one that has had another role: its old certificate may be about.
        """
        if node_id in self._removed():
            raise ConfigError(
                f"node '{node_id}' was removed, and its old certificate may be about: take another id"
            )
        if not is_node_id(node_id):
            raise ConfigError(f"'{node_id}' is not usable as a node id; take letters, digits, '-' and '_'")
        self._check_role(node_id, role)
        ca, ca_key = self._authority()
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id[:64])])
        names = dict.fromkeys([*hosts, *LOCAL_HOSTS])
        certificate = (
            self._builder(name, ca.subject, key, days)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName(Identity(node_id, role).name), *map(_general_name, names)]
                ),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        place = self._place(node_id)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(place / "key.pem", _pem_of_key(key), 0o600)
        _write(place / "certificate.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return _described(certificate)

    def remove(self, node_id: str) -> None:
        """Let the node in no more, whatever certificate it has. Nodes that read the list refuse its next call.

        Raises `ConfigError` for a node that has no certificate here.
        """
        place = self._place(node_id)
        if not (place / "certificate.pem").exists():
            raise ConfigError(f"{self.folder} has no certificate of a node '{node_id}'")
        _write(self.removed_file, "".join(f"{name}\n" for name in [*self._removed(), node_id]).encode(), 0o644)
        for file in (place / "key.pem", place / "certificate.pem"):
            file.unlink(missing_ok=True)

    def show(self) -> list[NodeCertificate]:
        """The authority first, then every node, by id, then the removed ones."""
        ca, _ = self._authority()
        files = sorted(self.folder.glob("nodes/*/certificate.pem"))
        nodes = [_described(x509.load_pem_x509_certificate(file.read_bytes())) for file in files]
        gone = [
            NodeCertificate(node_id=name, names=(), not_before="", not_after="", serial="", removed=True)
            for name in self._removed()
        ]
        return [_described(ca), *nodes, *gone]

    def tls(self, node_id: str) -> Tls:
        """The files of one node."""
        place = self._place(node_id)
        return Tls(
            ca_file=str(self.ca_file),
            certificate_file=str(place / "certificate.pem"),
            key_file=str(place / "key.pem"),
        )

    def _check_role(self, node_id: str, role: Role) -> None:
        before = self._place(node_id) / "certificate.pem"
        if before.exists():
            had = _described(x509.load_pem_x509_certificate(before.read_bytes())).role
            if had is not None and had != role:
                raise ConfigError(f"node '{node_id}' has a certificate as {had}: take another id for the {role}")

    @property
    def _ca_key(self) -> Path:
        return self.folder / "ca.key"

    def _place(self, node_id: str) -> Path:
        return self.folder / "nodes" / node_id

    def _removed(self) -> list[str]:
        return Removed(str(self.removed_file)).listed()

    def _authority(self) -> tuple[x509.Certificate, Any]:
        try:
            ca = x509.load_pem_x509_certificate(self.ca_file.read_bytes())
            return ca, serialization.load_pem_private_key(self._ca_key.read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.folder} holds no authority that can be used ({type(error).__name__}); "
                "make one with 'ballista-py cluster tls init'"
            ) from None

    def _builder(self, subject: x509.Name, issuer: x509.Name, key: Any, days: float) -> x509.CertificateBuilder:
        now = datetime.fromtimestamp(self.runtime.wall_ms() / 1e3, UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - max(BACKDATED, timedelta(days=-2 * days)))
            .not_valid_after(now + timedelta(days=days))
        )


def check_own(tls: Tls | None, node_id: str, role: Role, runtime: Runtime) -> None:
    """That the certificate of this side, if it has one, is of that node in that role, and valid by the clock.

    Raises `ConfigError`.
    """
    if tls is None:
        return
    pems = tls.read()
    certificate, _ = pems.pair()
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
        found = _described(loaded)
    except ValueError:
        raise ConfigError(f"TLS: {tls.certificate_file} holds no certificate") from None
    if found.role is None:
        raise ConfigError(f"TLS: {tls.certificate_file} names no role, so no node would hear this one: {REMAKE}")
    if (found.node_id, found.role) != (node_id, role):
        raise ConfigError(
            f"TLS: {tls.certificate_file} is that of the {found.role} '{found.node_id}', not of the {role} '{node_id}'"
        )
    if said := out_of_its_time(loaded, runtime.wall_ms()):
        raise ConfigError(
            f"TLS: {tls.certificate_file} {said}: set the clock, or make a new one ('cluster tls add {node_id}')"
        )
    if pems.ca is not None and not _is_of_authority(certificate, pems.ca):
        raise ConfigError(
            f"TLS: {tls.ca_file} holds no authority that made {tls.certificate_file}: nobody could connect"
        )


def _is_of_authority(certificate: bytes, authorities: bytes) -> bool:
    """Whether one of the authorities made a certificate of the chain."""
    try:
        pairs = product(x509.load_pem_x509_certificates(certificate), x509.load_pem_x509_certificates(authorities))
    except ValueError:
        return False
    for one, authority in pairs:
        with suppress(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            one.verify_directly_issued_by(authority)
            return True
    return False


def out_of_its_time(certificate: x509.Certificate, wall_ms: float) -> str | None:
    """What is wrong with a certificate by a clock that says `wall_ms`, with both times; None if it is valid then."""
    clock = datetime.fromtimestamp(wall_ms / 1e3, UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begin <= clock <= end:
        return None
    when = f"is valid from {_short(begin)} on" if clock < begin else f"was valid until {_short(end)}"
    return f"{when}, and the clock of this node says {_short(clock)}"


def _short(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")


def remaining_ms(tls: Tls, runtime: Runtime) -> float:
    """How long the certificate of this side is valid still, by the wall clock; for people and alarms.

    Raises `ConfigError` for a file that cannot be used.
    """
    certificate, _ = tls.read().pair()
    try:
        ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        raise ConfigError(f"TLS: {tls.certificate_file} holds no certificate") from None
    return ends.timestamp() * 1e3 - runtime.wall_ms()


def _described(certificate: x509.Certificate) -> NodeCertificate:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(name.value) for name in found)
    except x509.ExtensionNotFound:
        names = (certificate.subject.rfc4514_string().removeprefix("CN="),)
    identity = Identity.parse(names[0])
    return NodeCertificate(
        node_id=names[0] if identity is None else identity.node_id,
        role=None if identity is None else identity.role,
        names=names,
        not_before=certificate.not_valid_before_utc.isoformat(timespec="seconds"),
        not_after=certificate.not_valid_after_utc.isoformat(timespec="seconds"),
        serial=f"{certificate.serial_number:x}",
    )


def _general_name(host: str) -> x509.GeneralName:
    if host.lower().rstrip(".").endswith(f".{DOMAIN}"):
        raise ConfigError(f"'{host}' is no host: names that end in '.{DOMAIN}' are those of nodes")
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"'{host}' is neither a host name nor an address") from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of_key(key: Any) -> bytes:
    data: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return data


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace the file as a whole; it never exists with more rights than `mode`."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
