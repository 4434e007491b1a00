"""Looking at the TCP connections of this process from underneath, and cutting them.

A server thread that writes to a reader which no longer reads hangs in gRPC, where nothing of Python reaches it.
Its socket can still be shut down, and then the write fails at once. Nor does gRPC say which connections it has.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from typing import Any, TypeAlias
from urllib.parse import unquote

from attrs import frozen

try:
    import resource
except ImportError:  # not a system of that kind
    resource = None  # type: ignore[assignment]

Peer: TypeAlias = tuple[str, int]

MOST_TRIED = 1 << 16
_OPEN_FILES = "/dev/fd"
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_INFINITE = -1
_DROPPED_AT_ONCE = 1 << 20
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
# The places of two fields in Linux's `struct tcp_info`.
_LAST_DATA_RECEIVED = slice(52, 56)
_BYTES_RECEIVED = slice(128, 136)
_TCP_INFO_BYTES = 136


@frozen
class Connection:
    """One that this process has accepted. `silent_ms` passed since anything came over it, `received` bytes came at
    all; 0 where the system does not say.
    """

    host: str
    port: int
    silent_ms: int = 0
    received: int = 0

    @property
    def peer(self) -> Peer:
        """Who it leads to."""
        return self.host, self.port


def accepted(port: int) -> list[Connection]:
    """The connections that were accepted at that port of this machine; none where the system does not list them."""
    return [one for number in _open_files() if (one := _accepted_at(port, number)) is not None]


def cut(peers: Iterable[Peer]) -> int:
    """Shut down every TCP connection of this process to one of `peers`; returns how many there were.

    What has come over one and was not read yet is dropped: gRPC would work through all of it before it sees the end.
    """
    wanted = set(peers)
    return sum(_shut_down_if(number, wanted) for number in _open_files()) if wanted else 0


def let_open(files: int) -> int:
    """Let this process have that many open files, if the system allows it; how many it may have now."""
    if resource is None:
        return files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != _INFINITE and soft < files:
        soft = files if hard == _INFINITE else min(files, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return files if soft == _INFINITE else soft


def parse_peer(peer: str) -> Peer | None:
    """Host and port in a peer's name as gRPC writes it; None for what is none.

    >>> parse_peer("ipv6:%5B::1%5D:4711")
    ('::1', 4711)
    """
    _family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    try:
        return _plain_host(host.strip("[]")), int(port)
    except ValueError:
        return None


def peer_of(place: tuple[Any, ...]) -> Peer:
    """Who it is, of an address as `accept` gives it.

    >>> peer_of(("::ffff:10.0.0.7", 4711, 0, 0))
    ('10.0.0.7', 4711)
    """
    return _plain_host(place[0]), int(place[1])


def address_group(host: str) -> str:
    """What counts as one address: one of IPv4, or the /64 of IPv6 that one machine has to itself.

    >>> address_group("10.0.0.7"), address_group("2001:db8::1:2"), address_group("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::', '10.0.0.7')
    """
    try:
        plain = ip_address(_plain_host(host.partition("%")[0]))
    except ValueError:
        return host
    if isinstance(plain, IPv6Address):
        return str(IPv6Address(int(plain) >> 64 << 64))
    return str(plain)


def sever(peers: Iterable[str]) -> int:
    """Shut down every TCP connection of this process to one of `peers`; returns how many there were.

    `peers` are as gRPC names them: `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`. Where the system does not list
    its open files under `/dev/fd` nothing is shut down.
    """
    return cut(peer for peer in map(parse_peer, peers) if peer is not None)


def _open_files() -> Iterable[int]:
    """The numbers of the open files of this process. Listing them takes one more, which there may not be."""
    try:
        return list(map(int, os.listdir(_OPEN_FILES)))
    except OSError as error:
        if error.errno not in _NONE_LEFT or resource is None:
            return []
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return range(MOST_TRIED if soft == _INFINITE else min(soft, MOST_TRIED))


@contextmanager
def _borrowed(number: int) -> Iterator[socket.socket]:
    """The socket with that number, which stays open. Nothing is opened for it."""
    found = socket.socket(fileno=number)
    try:
        yield found
    finally:
        found.detach()


@contextmanager
def _kept(number: int) -> Iterator[socket.socket]:
    """The same, even if the number is given to another one meanwhile; unless no file can be opened."""
    try:
        number = os.dup(number)
    except OSError as error:
        if error.errno not in _NONE_LEFT:
            raise
        with _borrowed(number) as found:
            yield found
        return
    with socket.socket(fileno=number) as found:
        yield found


def _accepted_at(port: int, number: int) -> Connection | None:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        with _borrowed(number) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.getsockname()[1] != port:
                return None
            host, peer_port = found.getpeername()[:2]
            silent_ms, received = _traffic(found)
            return Connection(_plain_host(host), peer_port, silent_ms, received)
    except OSError:  # closed meanwhile, or a socket that listens
        return None


def _traffic(found: socket.socket) -> tuple[int, int]:
    if not hasattr(socket, "TCP_INFO") or sys.platform != "linux":
        return 0, 0
    info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return 0, 0
    return int.from_bytes(info[_LAST_DATA_RECEIVED], sys.byteorder), int.from_bytes(
        info[_BYTES_RECEIVED], sys.byteorder
    )


def _shut_down_if(number: int, wanted: set[Peer]) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        with _kept(number) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            host, port = found.getpeername()[:2]
            if (_plain_host(host), port) not in wanted:
                return False
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            _drop_unread(found)  # before, too: Linux opens the window of one that is shut down no more
            found.shutdown(socket.SHUT_RDWR)
            _drop_unread(found)
            return True
    except OSError:  # closed meanwhile, or it never was connected
        return False


def _drop_unread(found: socket.socket) -> None:
    if sys.platform != "linux":  # elsewhere nothing is dropped without being copied
        return
    with suppress(OSError):
        while found.recv(_DROPPED_AT_ONCE, socket.MSG_DONTWAIT | socket.MSG_TRUNC):
            pass


def _plain_host(host: str) -> str:
    address = ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
