"""The connections of an HTTP port: how many there may be, and which of them goes for the next one.

Somebody who opens connections and says nothing takes the place of nobody who asks: when there are too many, the one
that has waited longest without a whole request is cut.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from attrs import define, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.sockets import Peer, address_group

_ESTABLISHED = 1
_OF_TCP_INFO = 1  # the first byte is the state
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


@frozen(kw_only=True)
class HttpLimits:
    """Of one port: connections in all and of one address, bytes of the head of a request, and ms from the first byte of
    a connection, or from the end of the answer before, to the end of a request.
    """

    connections: int = 1_024
    connections_per_address: int = 256
    header_bytes: int = 16 << 10
    request_ms: float = 15_000


@define(eq=False)
class HttpConnection:
    """One connection that was let in. `abort` ends it at once, from the thread of the port."""

    link: socket.socket
    peer: Peer
    group: str
    since_ms: float
    answering: bool = False
    abort: Callable[[], None] | None = None
    close: Callable[[], None] | None = None

    def finish(self) -> None:
        """Close it once what was written has been taken; who does not take it is cut in time."""
        if self.close is not None:
            self.close()

    def cut(self) -> None:
        """End it, whatever it is doing."""
        if self.abort is not None:
            self.abort()
            return
        with suppress(OSError):  # it shakes hands, and whoever waits for that closes it
            self.link.shutdown(socket.SHUT_RDWR)

    @property
    def is_left(self) -> bool:
        """Whether the client has closed its side, as far as the system tells."""
        if sys.platform != "linux":
            return False
        try:
            return self.link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OF_TCP_INFO)[0] != _ESTABLISHED
        except OSError:
            return True


@define(eq=False)
class HttpConnections:
    """The open connections of one port. All but `len` is for the thread of the port."""

    _limits: HttpLimits
    _runtime: Runtime
    _open: set[HttpConnection] = field(init=False, factory=set)
    _lock: AbstractContextManager[object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self._runtime.lock()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, link: socket.socket, peer: Peer) -> HttpConnection | None:
        """The connection, if it may stay. Another one may have been cut for it."""
        group = address_group(peer[0])
        own = [one for one in self._open if one.group == group]
        if len(own) >= self._limits.connections_per_address and not self._cut_oldest(own):
            return None
        if len(self._open) >= self._limits.connections and not self._cut_oldest(list(self._open)):
            return None
        _keep_alive(link)
        made = HttpConnection(link, peer, group, self._runtime.monotonic_ms())
        self._open.add(made)
        return made

    def asked(self, one: HttpConnection) -> None:
        """Its request is whole; it is not cut for another any more."""
        one.answering = True

    def answered(self, one: HttpConnection) -> None:
        """It was given its answer, as far as the system has taken it."""
        one.answering = False
        one.since_ms = self._runtime.monotonic_ms()

    def forget(self, one: HttpConnection) -> None:
        """It is closed."""
        self._open.discard(one)

    def all(self) -> list[HttpConnection]:
        """Those that are open now."""
        return list(self._open)

    def tick(self) -> None:
        """Cut those that take too long to ask or to read the end of an answer, and those whose client has left."""
        long_ago = self._runtime.monotonic_ms() - self._limits.request_ms
        for one in self.all():
            if one.is_left if one.answering else one.since_ms < long_ago:
                one.cut()

    def _cut_oldest(self, among: list[HttpConnection]) -> bool:
        """It counts no more from now on."""
        waiting = [one for one in among if not one.answering]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda one: one.since_ms)
        self.forget(oldest)
        oldest.cut()
        return True


def _keep_alive(link: socket.socket) -> None:
    """Let the system find out that a client is gone without a word."""
    with suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
