"""One budget of memory for all that a node does at once: who may begin, who waits for whom, and for how long.

Whatever takes much (a process of the engine, an answer that is larger than a few messages) asks before it begins and
gives back at its end, on every way out. What takes little, such as a lookup, asks for nothing and waits for nobody.
`Ledger` decides and is pure; `MemoryBudget` lets threads wait for what it decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import Factory, evolve, frozen

from ballista_py.errors import TryLater
from ballista_py.runtime import Runtime
from ballista_py.work import Work, current_work

WAIT_MS = 30_000.0
LOOK_MS = 100.0
OF_THE_REST = 3  # alone a client has three quarters, the next one three quarters of the rest


@frozen
class Request:
    """So many bytes for a client. Numbers grow in the order of asking. One that is `entitled` does not wait."""

    number: int
    client: str
    bytes: int
    entitled: bool = False


@frozen
class Ledger:
    """What is held and who waits, of `max_bytes`. `pressed`: more is taken than what is held explains.

    Promises: more than `max_bytes` is held only by one alone, by who grew, and by who was entitled; a client that
    holds something gets more only as long as it then has no more than `OF_THE_REST` times what is left for others; of
    those who wait the client that holds least comes first; and where nothing is held, somebody who waits is let in.
    """

    max_bytes: int
    held: Mapping[int, Request] = Factory(dict)
    waiting: tuple[Request, ...] = ()
    pressed: bool = False

    @property
    def held_bytes(self) -> int:
        """What all hold together."""
        return sum(request.bytes for request in self.held.values())

    def held_by(self, client: str) -> int:
        """What one client holds."""
        return sum(request.bytes for request in self.held.values() if request.client == client)

    def room(self, client: str) -> int:
        """How much the client would be given at once."""
        own, free = self.held_by(client), self.max_bytes - self.held_bytes
        return max(0, (OF_THE_REST * free - own) // (OF_THE_REST + 1) if own else free)

    def asked(self, request: Request) -> Ledger:
        """After somebody asked: the request is held or waits."""
        if request.entitled:
            return evolve(self, held={**self.held, request.number: request})
        return evolve(self, waiting=(*self.waiting, request)).settled()

    def grown(self, number: int, to_bytes: int) -> Ledger:
        """After it showed that something takes more than was asked for. Who has begun does not wait."""
        found = self.held.get(number)
        if found is None or found.bytes >= to_bytes:
            return self
        return evolve(self, held={**self.held, number: evolve(found, bytes=to_bytes)})

    def left(self, number: int) -> Ledger:
        """After somebody gave back what he held, or does not wait any more."""
        held = {other: request for other, request in self.held.items() if other != number}
        waiting = tuple(request for request in self.waiting if request.number != number)
        return evolve(self, held=held, waiting=waiting).settled()

    def under(self, pressed: bool) -> Ledger:
        """After another look at what the node really takes."""
        return self if pressed == self.pressed else evolve(self, pressed=pressed).settled()

    def settled(self) -> Ledger:
        """With everybody let in who can be."""
        ledger = self
        while (request := ledger._next()) is not None:
            ledger = evolve(
                ledger,
                held={**ledger.held, request.number: request},
                waiting=tuple(other for other in ledger.waiting if other is not request),
            )
        return ledger

    def no_room(self, number: int, waited_ms: float) -> str:
        """Why somebody who waits was not let in, and what to do about it."""
        asked = next(request for request in self.waiting if request.number == number)
        own = [request for request in self.held.values() if request.client == asked.client]
        return (
            f"statements and answers under way hold {_mb(self.held_bytes)} of this node's {_mb(self.max_bytes)} MB, "
            f"{len(own)} of {len(self.held)} of them yours with {_mb(self.held_by(asked.client))} MB, and the "
            f"{_mb(asked.bytes)} MB that this one may take did not come free in {waited_ms / 1e3:g} s: send fewer at "
            "once, read the answers that you asked for, or give the node a larger max_merge_bytes (an executor: "
            "memory_limit)"
        )

    def _next(self) -> Request | None:
        """Who is let in now. Nobody overtakes one that only waits for room, or it would wait for ever."""
        free = self.max_bytes - self.held_bytes
        for request in sorted(self.waiting, key=lambda one: (self.held_by(one.client), one.number)):
            if not self.held:
                return request
            if self.pressed or request.bytes > free:
                return None
            if not self.held_by(request.client) or request.bytes <= self.room(request.client):
                return request
        return None


def _mb(size: int) -> int:
    return max(1, round(size / 1e6)) if size else 0


class MemoryBudget:
    """At most `max_bytes` at once. Safe to share between threads."""

    def __init__(self, max_bytes: int, runtime: Runtime, wait_ms: float = WAIT_MS) -> None:
        self._ledger = Ledger(max_bytes)
        self._runtime = runtime
        self._wait_ms = wait_ms
        self._changed = runtime.condition()
        self._next = 0
        self._since_ms: dict[int, float] = {}  # who waits since when
        self._by_work: dict[int, list[Reservation]] = {}
        self.is_full = False

    @property
    def ledger(self) -> Ledger:
        """What is held now, and who waits."""
        return self._ledger

    def longest_wait_ms(self) -> float:
        """How long the one who has waited longest does so; 0 when nobody waits."""
        first = min(tuple(self._since_ms.values()), default=None)
        return 0.0 if first is None else self._runtime.monotonic_ms() - first

    def shown(self) -> dict[tuple[str, ...], float]:
        """What is held, what is waited for and what there is, in bytes."""
        ledger = self._ledger
        waited = sum(request.bytes for request in ledger.waiting)
        return {
            ("held",): float(ledger.held_bytes),
            ("waited_for",): float(waited),
            ("all",): float(ledger.max_bytes),
        }

    def room(self, client: str) -> int:
        """See `Ledger.room`."""
        return self._ledger.room(client)

    def press(self, pressed: bool, is_full: bool = False) -> None:
        """Say whether the node takes far more than it may, or just all that it may, as seen from outside."""
        self.is_full = is_full
        if pressed != self._ledger.pressed:
            with self._changed:
                self._ledger = self._ledger.under(pressed)
                self._changed.notify_all()

    def begin(
        self, size: int, client: str | None = None, waits: bool = True, wait_ms: float | None = None
    ) -> Reservation:
        """Wait until there is room for `size` bytes, and hold it.

        Work that holds as much already does not wait: others may wait for what it holds. Nor does what is short and
        part of something that may hold room elsewhere, which says that it does not `wait`. Raises as `Work.check`
        meanwhile, and `TryLater` when there is no room for long.
        """
        work = current_work()
        known = client if client is not None else "" if work is None else work.client or work.lane
        size = min(size, self._ledger.max_bytes)
        with self._changed:
            self._next += 1
            number = self._next
            mine = 0 if work is None else sum(one.bytes for one in self._by_work.get(id(work), ()))
            self._ledger = self._ledger.asked(Request(number, known, size, entitled=not waits or 0 < size <= mine))
            is_held = number in self._ledger.held
        if not is_held:
            self._wait(number, work, self._wait_ms if wait_ms is None else wait_ms)
        found = Reservation(self, number, size, work)
        if work is not None:
            with self._changed:
                self._by_work.setdefault(id(work), []).append(found)
        return found

    @contextmanager
    def held(self, size: int, client: str | None = None) -> Iterator[None]:
        """Around what takes so much."""
        reservation = self.begin(size, client)
        try:
            yield
        finally:
            reservation.end()

    def _wait(self, number: int, work: Work | None, wait_ms: float) -> None:
        began_ms = self._since_ms[number] = self._runtime.monotonic_ms()
        try:
            is_held = False
            while not is_held:
                is_held = self._is_held(number)
                if work is not None:
                    work.check()  # also when it is its turn: all that waited may have gone together
                if not is_held and self._runtime.monotonic_ms() - began_ms > wait_ms:
                    raise TryLater(self._ledger.no_room(number, wait_ms))
        except BaseException:
            self._give_back(number)
            raise
        finally:
            del self._since_ms[number]

    def _is_held(self, number: int) -> bool:
        """Whether it is its turn, perhaps after a moment."""
        with self._changed:
            if number not in self._ledger.held:
                self._changed.wait(LOOK_MS)
            return number in self._ledger.held

    def _grow(self, number: int, size: int) -> None:
        with self._changed:
            self._ledger = self._ledger.grown(number, size)

    def _end(self, reservation: Reservation) -> None:
        self._give_back(reservation.number)
        with self._changed:
            mine = self._by_work.get(id(reservation.work), [])
            if reservation in mine:
                mine.remove(reservation)
                if not mine:
                    del self._by_work[id(reservation.work)]

    def _give_back(self, number: int) -> None:
        with self._changed:
            self._ledger = self._ledger.left(number)
            self._changed.notify_all()


class Reservation:
    """Bytes that are held until `end`."""

    def __init__(self, budget: MemoryBudget, number: int, size: int, work: Any) -> None:
        self.number, self.bytes, self.work = number, size, work  # the work is kept: its id is a name here
        self._budget = budget

    def grow(self, size: int) -> None:
        """It takes `size` bytes, as it shows. This does not wait."""
        if size > self.bytes:
            self.bytes = size
            self._budget._grow(self.number, size)

    def end(self) -> None:
        """Give it back. More than once is fine."""
        self._budget._end(self)
