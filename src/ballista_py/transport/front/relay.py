"""The links of a front and what the system tells of them: all that happens is in `tick`, on one thread.

Clients over which a call was let in come first in a tick; handshakes and what strangers send have a small part of it.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from attrs import evolve, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.front.client_reader import ClientBounds, Offence
from ballista_py.transport.front.link import ClientLink, LinkOver
from ballista_py.transport.front.server_certificate import ServerCertificate
from ballista_py.transport.front.turnstile import Pace, Turnstile
from ballista_py.transport.security.callers import Refusals, Refused
from ballista_py.transport.security.connection_guard import (
    HURRY_MS,
    HURRY_SHARE,
    Calls,
    ConnectionLimits,
    ConnectionWatch,
    say_cut,
)
from ballista_py.transport.sockets import Peer, peer_of

ROOM_BYTES = 64 << 10
STRANGERS_MS = 5.0  # of a tick, for those over whose connection no call was ever let in
ACCEPTED_AT_ONCE = 64
LINGER_MS = 30_000  # for what one side has not read yet when the other has ended
BEGIN_MS = 10_000  # for a handshake, and once more for what a client of HTTP/2 says first
UPKEEP_MS = 200.0
SOON_MS = 10.0
PACES = {"own": Pace(burst=512, per_s=256), "together": Pace(burst=4_096, per_s=2_048)}
_READ, _WRITE, _BROKEN = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP

_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class RelayOptions:
    """Where gRPC listens, what it has said that clients may do, and the limits of connections."""

    backend: str
    port: int
    settings: dict[int, int]
    bounds: ClientBounds = field(factory=ClientBounds)
    limits: ConnectionLimits = field(factory=ConnectionLimits)


class Relay:
    """Relays between the clients that `listeners` accept and gRPC. Call `tick` again and again; it waits."""

    def __init__(
        self,
        listeners: list[socket.socket],
        certificate: ServerCertificate,
        options: RelayOptions,
        runtime: Runtime,
    ) -> None:
        self._options = options
        self._certificate = certificate
        self._runtime = runtime
        self._poll = select.epoll()
        self._listeners = {one.fileno(): one for one in listeners}
        self._others: dict[int, Callable[[], None]] = {}
        self._links: dict[Peer, ClientLink] = {}
        self._by_fd: dict[int, ClientLink] = {}
        self._by_group: Counter[str] = Counter()
        self._again: set[ClientLink] = set()  # bytes of theirs are here, and the system does not know
        self._waiting: set[ClientLink] = set()  # until they may go on
        self._room = memoryview(bytearray(ROOM_BYTES))
        self._watch = ConnectionWatch(options.limits, runtime)
        self._turnstile = Turnstile(**PACES)
        self._refusals = Refusals(runtime)
        self._busy: set[Peer] = set()
        self._looks_soon = False
        self._next_look_ms = 0.0
        self._upkeep_at_ms = 0.0
        self._turn = 0
        self._is_listening = self._is_finishing = False
        self._listen(True)

    def __len__(self) -> int:
        return len(self._links)

    def watch(self, fd: int, readable: Callable[[], None]) -> None:
        """Call `readable` whenever there is something to read at `fd`."""
        self._others[fd] = readable
        self._poll.register(fd, _READ)

    def tick(self) -> None:
        """Wait for something to do, for a moment at most, and do it."""
        self._turn += 1
        events = self._poll.poll(0 if self._again else (SOON_MS if self._waiting else UPKEEP_MS) / 1e3)
        now_ms = self._runtime.monotonic_ms()
        found = {link: [(link.client.fileno(), _READ)] for link in self._again}
        self._again.clear()
        for fd, mask in events:
            link = self._by_fd.get(fd)
            if link is not None:
                found.setdefault(link, []).append((fd, mask))
            elif fd in self._others:
                self._others[fd]()
        strangers = []
        for link, asked in found.items():
            if link.is_heard:
                self._serve(link, asked, now_ms)
            else:
                strangers.append((link, asked))
        self._serve_strangers(strangers, now_ms)
        for fd, _mask in events:
            if fd in self._listeners:
                self._accept(self._listeners[fd], now_ms)
        for link in [link for link in self._waiting if now_ms >= link.resumes_ms]:
            self._waiting.discard(link)
            self._ask(link, now_ms)
        if now_ms >= self._upkeep_at_ms:
            self._upkeep(now_ms)
        if self._looks_soon and now_ms >= self._next_look_ms:
            self._look(Calls(busy=self._busy))

    def heard(self, peer: Peer) -> None:
        """A call of that peer was let in."""
        link = self._links.get(peer)
        if link is not None and not link.is_heard:
            link.is_heard = True
            self._busy.add(peer)
            self._ask(link, self._runtime.monotonic_ms())

    def known(self, calls: Calls) -> None:
        """What the node knows of its calls now; what is too much is cut."""
        for peer in calls.busy:
            self.heard(peer)
        self._busy = set(calls.busy)
        self._look(calls)

    def cut(self, peer: Peer) -> None:
        """Hang up on that peer, and drop what is on its way."""
        link = self._links.get(peer)
        if link is not None:
            self._end(link, reset=True)

    def finish(self) -> None:
        """Accept nobody any more; who waits for nothing is sent away."""
        self._listen(False)
        self._is_finishing = True
        for link in list(self._links.values()):
            if link.backend is None:
                self._end(link)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left after `finish`."""
        return self._is_finishing and not self._links

    def _serve_strangers(self, strangers: list[tuple[ClientLink, list[tuple[int, int]]]], now_ms: float) -> None:
        """Those first that waited longest; the others are asked for again by the next tick."""
        strangers.sort(key=lambda one: one[0].turn)
        began_ms = self._runtime.monotonic_ms()
        for number, (link, asked) in enumerate(strangers):
            if self._runtime.monotonic_ms() - began_ms > STRANGERS_MS:
                self._again |= {other for other, _ in strangers[number:] if other.has_more()}
                return
            link.turn = self._turn
            self._serve(link, asked, now_ms)

    def _serve(self, link: ClientLink, asked: list[tuple[int, int]], now_ms: float) -> None:
        """Do for a link what its events ask for."""
        if self._links.get(link.peer) is not link:
            return
        try:
            for fd, mask in asked:
                if fd == link.client.fileno():
                    self._serve_client(link, mask, now_ms)
                elif link.backend is not None:
                    if mask & (_WRITE | _BROKEN) and link.writes_backend:
                        link.flush_backend()
                    if mask & (_READ | _BROKEN) and link.wants_backend():
                        link.read_backend(self._room)
        except Offence as offence:
            self._refusals.offend(link.name, str(offence))
            self._looks_soon = True
            self._end(link, reset=True)
        except LinkOver as over:
            if not link.is_shaken:
                self._refusals.note(link.name, over)
            self._end(link)
        except Exception:
            _log.exception("a link failed, and was ended")
            self._end(link, reset=True)
        else:
            if link.is_over:
                self._end(link)
            else:
                self._ask(link, now_ms)

    def _serve_client(self, link: ClientLink, mask: int, now_ms: float) -> None:
        if not link.is_shaken:
            link.last_ms = now_ms
            if not link.shake(self._certificate.context()):
                return
            link.since_ms = now_ms
        if mask & _BROKEN and not link.wants_client(now_ms):
            raise LinkOver("the client is gone")
        if mask & _WRITE and link.writes_client:
            link.flush_client()
        if mask & (_READ | _BROKEN) and link.wants_client(now_ms):
            before = link.reader.blocks
            link.read_client(self._room, self._options.backend, now_ms)
            calls = link.reader.blocks - before
            if calls and not link.is_heard:
                self._turnstile.charge(link.group, calls, now_ms)
                wait_ms = self._turnstile.wait_ms(link.group, now_ms)
                if wait_ms:
                    link.resumes_ms = now_ms + wait_ms
                    self._waiting.add(link)

    def _ask(self, link: ClientLink, now_ms: float) -> None:
        """Ask the system for what the link waits for now."""
        reads = link.wants_client(now_ms) if link.is_shaken else True
        wanted = (_READ if reads else 0) | (_WRITE if link.writes_client else 0)
        if wanted != link.client_events:
            link.client_events = wanted
            self._poll.modify(link.client.fileno(), wanted)
        if reads and link.has_more():
            self._again.add(link)
        if link.backend is None:
            return
        wanted = (_READ if link.wants_backend() else 0) | (_WRITE if link.writes_backend else 0)
        if wanted == link.backend_events:
            return
        fd = link.backend.fileno()
        if not link.backend_events:
            self._by_fd[fd] = link
            self._poll.register(fd, wanted)
        elif wanted:
            self._poll.modify(fd, wanted)
        else:  # the system would tell of its end again and again
            self._poll.unregister(fd)
        link.backend_events = wanted

    def _accept(self, listener: socket.socket, now_ms: float) -> None:
        limits = self._options.limits
        for _ in range(ACCEPTED_AT_ONCE):
            if len(self._links) >= limits.connections + ACCEPTED_AT_ONCE:
                self._looks_soon = True
                return
            try:
                client, place = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # too many open files, most likely
                _log.warning("connections cannot be accepted now: %s", error.strerror)
                self._looks_soon = True
                self._listen(False)
                return
            client.setblocking(False)
            with suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            options = self._options
            link = ClientLink(
                client, peer_of(place), options.bounds, options.settings, options.limits.stranger_bytes
            )
            link.since_ms = link.last_ms = now_ms
            link.client_events = _READ
            older = self._links.get(link.peer)
            if older is not None:  # reset, and its port used again, before anybody looked at it
                self._end(older, reset=True)
            self._links[link.peer] = self._by_fd[client.fileno()] = link
            self._by_group[link.group] += 1
            self._poll.register(client.fileno(), _READ)
            if self._by_group[link.group] > limits.per_address or len(self._links) > limits.connections:
                self._looks_soon = True

    def _listen(self, listening: bool) -> None:
        if listening != self._is_listening:
            self._is_listening = listening
            for fd in self._listeners:
                if listening:
                    self._poll.register(fd, _READ)
                else:
                    self._poll.unregister(fd)

    def _upkeep(self, now_ms: float) -> None:
        self._upkeep_at_ms = now_ms + UPKEEP_MS
        self._refusals.tick()
        self._turnstile.tick(now_ms)
        self._listen(not self._is_finishing)
        late = [link for link in self._links.values() if _is_late(link, now_ms)]
        for link in late:
            self._end(link, reset=True)

    def _look(self, calls: Calls) -> None:
        """Cut what is beyond the limits, and whoever offended."""
        now_ms = self._runtime.monotonic_ms()
        connections = [link.as_connection(now_ms) for link in self._links.values()]
        own = self._refusals.take()
        gone = self._watch.look(connections, evolve(calls, refused=_both(calls.refused, own)))
        say_cut(self._options.port, gone, connections)
        for peer in gone:
            self.cut(peer)
        self._looks_soon = False
        took_ms = self._runtime.monotonic_ms() - now_ms
        self._next_look_ms = now_ms + took_ms + max(HURRY_MS, HURRY_SHARE * took_ms)

    def _end(self, link: ClientLink, reset: bool = False) -> None:
        if self._links.get(link.peer) is not link:
            return
        del self._links[link.peer]
        self._by_group[link.group] -= 1
        if not self._by_group[link.group]:
            del self._by_group[link.group]
        self._again.discard(link)
        self._waiting.discard(link)
        self._busy.discard(link.peer)
        for one in (link.client, link.backend):
            if one is not None:
                self._by_fd.pop(one.fileno(), None)
        link.close(reset)


def _is_late(link: ClientLink, now_ms: float) -> bool:
    """Whether a link did not begin in time, or does not end."""
    if link.client_ended or link.backend_ended:
        return now_ms - link.last_ms > LINGER_MS
    return not link.is_settled and now_ms - link.since_ms > BEGIN_MS


def _both(one: Refused, other: Refused) -> Refused:
    return Refused(
        offenders=one.offenders | other.offenders,
        by_address=Counter(one.by_address) + Counter(other.by_address),
    )


def known_of(message: Mapping[str, Any]) -> Calls:
    """What a node said of its calls (`message_of`)."""
    return Calls(
        busy={(host, port) for host, port in message["busy"]},
        crowded=message["crowded"],
        refused=Refused(
            offenders=frozenset((host, port) for host, port in message["offenders"]),
            by_address=message["refused"],
        ),
    )


def message_of(known: Calls) -> dict[str, Any]:
    """What a node says of its calls."""
    return {
        "busy": sorted(known.busy),
        "crowded": known.crowded,
        "offenders": sorted(known.refused.offenders),
        "refused": dict(known.refused.by_address),
    }
