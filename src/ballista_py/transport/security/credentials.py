"""What proves who a node or a cluster is: certificates in files, read anew whenever they are used for a connection.

The first subject alternative name of a node's certificate says its id and its role, `scheduler-1.scheduler.ballista`;
the hosts that it may be reached at follow. Whoever has the cluster's certificate authority can make such
certificates, and nobody else.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any, Literal, get_args

from attrs import field, frozen

from ballista_py.errors import ConfigError, Unauthenticated
from ballista_py.short_file import read_short_file

_log = logging.getLogger(__name__)
Role = Literal["scheduler", "executor"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_ID_CHARS = 128
DOMAIN = "ballista"  # no host is ever called so: names that end in it are those of nodes


@frozen
class Identity:
    """Which node it is, and what it may be in the cluster. The name is a DNS name, because that is what TLS libraries
    compare when they look at a server's certificate.

    >>> Identity("executor-1", "executor").name
    'executor-1.executor.ballista'
    """

    node_id: str
    role: Role

    @property
    def name(self) -> str:
        """The name in the certificate."""
        return f"{self.node_id}.{self.role}.{DOMAIN}"

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """The identity of that name; None for a name that is none.

        >>> Identity.parse("executor-1"), Identity.parse("e.executor.ballista")
        (None, Identity(node_id='e', role='executor'))
        """
        node_id, _, rest = name.partition(".")
        for role in ROLES:
            if is_node_id(node_id) and rest == f"{role}.{DOMAIN}":
                return cls(node_id, role)
        return None


@frozen(kw_only=True)
class Tls:
    """Where the certificates are, all PEM.

    `ca_file` holds the authorities that are trusted (None: those of the system), `certificate_file` and `key_file`
    what this side proves itself with (None: it does not). Clients of a cluster need `ca_file` at most.

    Raises `ConfigError` when only one of certificate and key is given.

    >>> Tls(ca_file="/etc/ballista/ca.pem")
    Tls(ca_file='/etc/ballista/ca.pem', certificate_file=None, key_file=None)
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigError("TLS: a certificate file needs its key file, and a key file its certificate file")

    def read(self) -> Pems:
        """What the files hold now. Raises `ConfigError` naming the file that cannot be used."""
        return Pems(
            ca=_read(self.ca_file, b"CERTIFICATE"),
            certificate=_read(self.certificate_file, b"CERTIFICATE"),
            key=_read(self.key_file, b"PRIVATE KEY"),
        )

    def check(self) -> None:
        """That the files can be used, and that certificate and key belong together. Raises `ConfigError`."""
        self.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (ssl.SSLError, OSError):
            raise ConfigError(
                f"TLS: {self.certificate_file} and {self.key_file} do not belong together or are no certificate and key"
            ) from None
        try:
            if self.ca_file is not None:
                context.load_verify_locations(self.ca_file)
        except (ssl.SSLError, OSError):
            raise ConfigError(f"TLS: {self.ca_file} holds no certificate", file=self.ca_file) from None

    def fingerprint(self) -> tuple[Any, ...]:
        """Differs once one of the files was replaced."""
        return tuple(_stamp(path) for path in (self.ca_file, self.certificate_file, self.key_file))


@frozen(kw_only=True, repr=False)
class Pems:
    """The bytes of the files of a `Tls`."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None

    def pair(self) -> tuple[bytes, bytes]:
        """Certificate and key of a server, which needs both."""
        if self.certificate is None or self.key is None:
            raise ConfigError("TLS: a server needs a certificate file and a key file")
        return self.certificate, self.key


@frozen
class Removed:
    """The nodes that were removed from the cluster and may not speak any more, although they have a certificate.

    `file` lists their ids, one a line, `#` starts a comment, and is read anew for each look; None: nobody was removed.
    An id that was ever read there stays removed, here, whatever becomes of the file.
    """

    file: str | None = None
    _known: dict[str, bool] = field(
        init=False, factory=dict, eq=False, repr=False
    )  # and whether the list has lost it

    def check(self, node_id: str) -> None:
        """Raises `Unauthenticated` for a removed node, and for every node while the list cannot be read or has a line
        that is no id: who was meant by it must not stay for a slip of the pen."""
        try:
            listed = self.listed()
        except ConfigError as error:
            raise Unauthenticated(f"{_without_place(error)}: nobody is let in") from None
        if node_id in listed:
            raise Unauthenticated(f"node '{node_id}' was removed from the cluster")

    def listed(self) -> list[str]:
        """The ids of the removed nodes; a missing list is an empty one. Raises `ConfigError` naming file and line."""
        try:
            data = b"" if self.file is None else read_short_file(self.file)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise ConfigError(
                f"{self.file}: the list of removed nodes cannot be read ({error.strerror})"
            ) from None
        lines = [line.strip() for line in data.decode(errors="replace").split("\n")]
        for number, line in enumerate(lines, 1):
            if line and not line.startswith("#") and not is_node_id(line):
                raise ConfigError(
                    f"{self.file}:{number}: the list of removed nodes has a line that is no id of a node"
                )
        return self._kept([line for line in lines if line and not line.startswith("#")])

    def _kept(self, listed: list[str]) -> list[str]:
        """Those, and whoever was listed before; the log says it once when the list has lost some."""
        self._known.update(dict.fromkeys(listed, False))
        lost = [name for name in tuple(self._known) if name not in listed]
        if any(not self._known[name] for name in lost):
            _log.warning("the list of removed nodes has lost ids, which stay removed here: put them back")
        self._known.update(dict.fromkeys(lost, True))
        return [*listed, *lost]


def is_node_id(text: str) -> bool:
    """Whether a node with a certificate can be called so.

    >>> is_node_id("executor-1"), is_node_id("executor 1"), is_node_id("../executor")
    (True, False, False)
    """
    return len(text) <= MAX_ID_CHARS and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


def _without_place(error: ConfigError) -> str:
    """What is told to a peer, which need not know where files are."""
    return error.message[error.message.index("the list") :]


def identity_of(proved: str, removed: Removed, claimed: str = "") -> Identity:
    """Who a peer is; `proved` is the first name in its certificate, `claimed` the id that it goes by, if it says one.

    Raises `Unauthenticated` for a peer without a certificate, for a certificate without a role or of another node,
    and for a removed node.
    """
    if not proved:
        raise Unauthenticated(f"node '{claimed}' showed no certificate" if claimed else "no certificate was shown")
    found = Identity.parse(proved)
    if found is None:
        raise Unauthenticated(f"the certificate of '{proved}' names no role: {REMAKE}")
    if claimed and found.node_id != claimed:
        raise Unauthenticated(f"the certificate is that of node '{found.node_id}', not of '{claimed}'")
    removed.check(found.node_id)
    return found


REMAKE = "make it anew with 'ballista-py cluster tls add NAME --role scheduler' or '--role executor'"


def _read(path: str | None, kind: bytes) -> bytes | None:
    if path is None:
        return None
    try:
        data = read_short_file(path)
    except OSError as error:
        raise ConfigError(f"TLS: {path} cannot be read: {error.strerror}", file=path) from None
    if kind + b"-----" not in data:
        raise ConfigError(f"TLS: {path} holds no {kind.decode().lower()} in PEM form", file=path)
    return data


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
