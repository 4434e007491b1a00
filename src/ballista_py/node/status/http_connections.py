"""The connections of an HTTP port: how many there may be, and which of them goes for the next one.

Somebody who opens connections and says nothing takes the place of nobody who asks: when there are too many, the one
that has waited longest without a whole request is cut.
"""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager, suppress

from attrs import define, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.sockets import address_group


@frozen(kw_only=True)
class HttpLimits:
    """Of one port: connections in all and of one address, bytes of a request, and ms from the first byte of a
    connection to the last one of its answer.
    """

    connections: int = 64
    connections_per_address: int = 32
    request_bytes: int = 16 << 10
    request_ms: float = 15_000


@define
class _Open:
    link: socket.socket
    group: str
    since_ms: float
    answering: bool = False


@define(eq=False)
class HttpConnections:
    """The open connections, by the socket that was accepted, which lives as long. Safe to share between threads."""

    _limits: HttpLimits
    _runtime: Runtime
    _open: dict[int, _Open] = field(init=False, factory=dict)
    _lock: AbstractContextManager[object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self._runtime.lock()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, link: socket.socket, host: str) -> bool:
        """Whether the connection may stay. Another one may have been cut for it."""
        group = address_group(host)
        with self._lock:
            own = [one for one in self._open.values() if one.group == group]
            if len(own) >= self._limits.connections_per_address and not self._cut_oldest(own):
                return False
            if len(self._open) >= self._limits.connections and not self._cut_oldest(list(self._open.values())):
                return False
            self._open[id(link)] = _Open(link, group, self._runtime.monotonic_ms())
            return True

    def wrapped(self, admitted: socket.socket, link: socket.socket) -> None:
        """The connection is reached by this socket now."""
        with self._lock:
            if id(admitted) in self._open:
                self._open[id(admitted)].link = link

    def answering(self, link: socket.socket) -> None:
        """Its request is whole; it is not cut for another any more."""
        with self._lock:
            for one in self._open.values():
                one.answering = one.answering or one.link is link

    def forget(self, admitted: socket.socket) -> None:
        """The connection is closed."""
        with self._lock:
            self._open.pop(id(admitted), None)

    def tick(self) -> None:
        """Cut those that have taken too long."""
        with self._lock:
            long_ago = self._runtime.monotonic_ms() - self._limits.request_ms
            for one in self._open.values():
                if one.since_ms < long_ago:
                    _cut(one.link)

    def _cut_oldest(self, among: list[_Open]) -> bool:
        """The thread of the connection notices and closes it; until then it counts no more."""
        waiting = [one for one in among if not one.answering]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda one: one.since_ms)
        _cut(oldest.link)
        for key in [key for key, one in self._open.items() if one is oldest]:
            del self._open[key]
        return True


def _cut(link: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)  # an SSLSocket's own would forget its keys under its reader
