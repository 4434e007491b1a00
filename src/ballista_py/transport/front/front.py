"""The node's side of a front: it keeps the listening sockets and starts the process that reads them.

Connections wait in the sockets while no process is there, so one that ends and is started again refuses nobody.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import asdict

from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.logs import OURS
from ballista_py.runtime import Runtime
from ballista_py.transport.endpoints import FLIGHT_METADATA_BYTES, Address, cannot_listen
from ballista_py.transport.front.channel import Channel
from ballista_py.transport.security.connection_guard import Calls, ConnectionLimits
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.sockets import Peer, parse_peer

try:
    from ballista_py.transport.front.relay import message_of
except ImportError as error:
    raise MissingExtra.of("hpack", "node") from error

MOST_PATH_BYTES = 100  # of a Unix socket; systems allow 103 to 107
BACKLOG = 4_096
SILENT_MS = 30_000.0  # after which a process that says nothing is ended
STEADY_MS = 10_000.0  # one that lived so long is started again at once
LONGEST_PAUSE_MS = 5_000.0
END_MS, END_POLL_MS = 2_000.0, 10.0
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what a node is told  # nosec B104

_log = logging.getLogger(__name__)


class StartedFront(Protocol):
    """A process that was started for a front."""

    def returncode(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        ...

    def kill(self) -> None:
        """End it at once, and wait for its end; more than once is fine."""
        ...


StartFront = Callable[[socket.socket, Sequence[socket.socket]], StartedFront]
"""Starts `transport/front/process.py`; it gets these sockets (first that to its node) and no other."""


def has_fronts() -> bool:
    """Whether this system has what a front waits with."""
    return sys.platform == "linux"


class Front:
    """The front of one port. From its construction clients can connect, from `open` on they are answered.

    `name` is what the lines of its log begin with. A process that says nothing for `silent_ms` is ended, and another
    one takes its place. gRPC has to listen at `target`. Raises `ConfigError` naming the address when it cannot be had,
    or the file of `tls` that cannot be used. Safe to use from many threads; `tick` several times a second.
    """

    def __init__(
        self,
        address: Address,
        tls: Tls,
        limits: ConnectionLimits,
        start: StartFront,
        runtime: Runtime,
        *,
        name: str = "front",
        silent_ms: float = SILENT_MS,
    ) -> None:
        tls.check()
        tls.read().pair()
        self._listeners = _listen(address)
        self.port = int(self._listeners[0].getsockname()[1])
        self._name = name
        self._silent_ms = silent_ms
        self._home = _home()
        self.target = f"unix:{self._home}/grpc"
        self._tls = tls
        self._limits = limits
        self._start = start
        self._runtime = runtime
        self._lock = runtime.lock()
        self._process: StartedFront | None = None
        self._channel: Channel | None = None
        self._known: set[Peer] = set()  # whom the process was told of since the last tick
        self._began_ms = self._said_ms = 0.0
        self._starts_at_ms = 0.0
        self._pause_ms = 0.0
        self._closed = False

    def open(self) -> None:
        """Start the process; gRPC listens now."""
        with self._lock:
            self._begin()

    def tick(self, known: Callable[[], Calls]) -> None:
        """Tell the process what is known of calls, and see that there is one."""
        with self._lock:
            if self._closed:
                return
            self._look_after()
            if self._channel is not None and not self._channel.is_behind:
                self._known.clear()
                self._tell(message_of(known()))

    def heard(self, peer: str) -> None:
        """A call of `peer` was let in; what it sends is bounded no more as that of a stranger."""
        place = parse_peer(peer)
        with self._lock:
            if place is not None and place not in self._known:
                self._known.add(place)
                self._tell({"heard": [place]})

    def sever(self, peers: Iterable[str]) -> int:
        """Cut the connections of these clients; returns how many were named."""
        places = [place for peer in peers if (place := parse_peer(peer)) is not None]
        if places:
            with self._lock:
                self._tell({"cut": places})
        return len(places)

    def close(self) -> None:
        """Let go of the port; gRPC has hung up. What clients have not read yet is sent for a moment.

        Closing twice is fine.
        """
        with self._lock:
            self._closed = True
            self._tell({"end": True})
            until_ms = self._runtime.monotonic_ms() + END_MS
            process = self._process
            while process is not None and process.returncode() is None and self._runtime.monotonic_ms() < until_ms:
                self._runtime.sleep_ms(END_POLL_MS)
            self._end()
            for listener in self._listeners:
                listener.close()
            shutil.rmtree(self._home, ignore_errors=True)

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        self._began_ms = self._said_ms = self._runtime.monotonic_ms()
        try:
            self._process = self._start(theirs, self._listeners)
        except OSError as error:  # no memory, or too many processes
            _log.error("the process before port %s could not be started: %s", self.port, error.strerror)
            ours.close()
            self._start_later()
            return
        finally:
            theirs.close()
        self._channel = Channel(ours)
        self._tell(self._told())

    def _told(self) -> Mapping[str, Any]:
        return {
            "name": self._name,
            "level": logging.getLevelName(logging.getLogger(OURS).getEffectiveLevel()),
            "backend": f"{self._home}/grpc",
            "port": self.port,
            "listeners": [one.fileno() for one in self._listeners],
            # It works in another folder than the node.
            "certificate": os.path.abspath(self._tls.certificate_file or ""),
            "key": os.path.abspath(self._tls.key_file or ""),
            "limits": asdict(self._limits.before_grpc()),
            "header_bytes": FLIGHT_METADATA_BYTES,
        }

    def _look_after(self) -> None:
        now_ms = self._runtime.monotonic_ms()
        if self._channel is not None:
            try:
                self._channel.flush()
                if self._channel.receive():
                    self._said_ms = now_ms
            except EOFError:
                self._lost("ended")
            else:
                if now_ms - self._said_ms > self._silent_ms:
                    self._lost("said nothing for long")
        if self._channel is None and now_ms >= self._starts_at_ms:
            self._begin()

    def _lost(self, what: str) -> None:
        process = self._process
        self._end()
        _log.error(
            "the process before port %s %s (%s), its connections with it; another one takes its place",
            self.port,
            what,
            "unknown" if process is None else process.returncode(),
        )
        self._start_later()

    def _start_later(self) -> None:
        """At once for one that lived long, and ever later for those that do not."""
        now_ms = self._runtime.monotonic_ms()
        lived = now_ms - self._began_ms > STEADY_MS
        self._pause_ms = 0.0 if lived else min(LONGEST_PAUSE_MS, 2 * self._pause_ms + 50)
        self._starts_at_ms = now_ms + (self._pause_ms if self._pause_ms > 50 else 0)

    def _tell(self, message: Mapping[str, Any]) -> None:
        if self._channel is not None:
            try:
                self._channel.send(message)
            except EOFError:
                return  # the next tick sees it

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()


def _listen(address: Address) -> list[socket.socket]:
    """Sockets that listen at an address of this machine, at each that a name stands for."""
    if address.host in _EVERYWHERE and socket.has_dualstack_ipv6():
        places = [(socket.AF_INET6, "::", True)]
    else:
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except OSError:
            raise cannot_listen(address) from None
        places = list(dict.fromkeys((socket.AddressFamily(one[0]), str(one[4][0]), False) for one in found))
    made: list[socket.socket] = []
    port = address.port
    try:
        for family, host, dual in places:
            made.append(socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual))
            port = made[0].getsockname()[1]
            made[-1].setblocking(False)
    except OSError:
        for one in made:
            one.close()
        raise cannot_listen(address) from None
    return made


def _home() -> str:
    """A new folder that nobody else may enter, with a name that is short enough for a socket's."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - as mkdtemp makes it  # nosec B108
        if len(os.fsencode(parent)) + 32 <= MOST_PATH_BYTES and os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix="ballista-front-", dir=parent)
    raise ConfigError("no folder for temporary files has a name that is short enough; set TMPDIR to another one")
