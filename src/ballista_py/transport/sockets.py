"""Cutting TCP connections of this process from underneath.

A server thread that writes to a reader which no longer reads hangs in gRPC, where nothing of Python reaches it.
Its socket can still be shut down, and then the write fails at once.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote

_OPEN_FILES = "/dev/fd"


def sever(peers: Iterable[str]) -> int:
    """Shut down every TCP connection of this process to one of `peers`; returns how many there were.

    `peers` are as gRPC names them: `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`. Where the system does not list
    its open files under `/dev/fd` nothing is shut down.
    """
    wanted = {peer for peer in map(_parse_peer, peers) if peer is not None}
    if not wanted or not os.path.isdir(_OPEN_FILES):
        return 0
    return sum(_shut_down_if(int(name), wanted) for name in os.listdir(_OPEN_FILES))


def _shut_down_if(number: int, wanted: set[tuple[str, int]]) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        with socket.socket(fileno=os.dup(number)) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            host, port = found.getpeername()[:2]
            if (_plain_host(host), port) not in wanted:
                return False
            found.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:  # closed meanwhile, or it never was connected
        return False


def _parse_peer(peer: str) -> tuple[str, int] | None:
    _family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    try:
        return _plain_host(host.strip("[]")), int(port)
    except ValueError:
        return None


def _plain_host(host: str) -> str:
    address = ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
