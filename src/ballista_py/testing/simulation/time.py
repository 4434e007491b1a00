"""A world in which time is a number: blocking code of many machines, run in one thread, in an order from a seed.

Every thread of every machine is a greenlet. It runs undisturbed until it sleeps, waits or calls over the network;
then the world goes on with whatever comes next in virtual time. So an hour takes as long as its work, and the same
seed gives the same hour. What a machine is lies in `virtual_machine`, what can go wrong in `virtual_faults`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol

from ballista_py.errors import MissingExtra
from ballista_py.runtime import seeded_chance

try:
    import greenlet
except ImportError as error:
    raise MissingExtra.of("greenlet", "testing") from error

Act = Callable[[], object]


class Schedulable(Protocol):
    """Whose events they are: none is run while it is paused, and never again once it is dead."""

    dead: bool
    paused_until_ms: float


class World:
    """Virtual time, in milliseconds from 0. One world runs in one thread; nothing in it may block for real.

    >>> world = World(seed=1)
    >>> seen = []
    >>> world.spawn(None, lambda: (world.sleep(None, 5_000), seen.append(world.now_ms)))
    >>> world.run(60_000)
    >>> seen, world.now_ms
    ([5000.0], 60000)
    """

    def __init__(self, seed: int) -> None:
        self.chance = seeded_chance(seed)
        self.now_ms = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Schedulable | None, Act]] = []
        self._count = 0
        self._hub = greenlet.getcurrent()
        self._kept: list[greenlet.greenlet] = []
        self._closed = False

    def at(self, delay_ms: float, whose: Schedulable | None, act: Act) -> None:
        """Let `act` happen after `delay_ms`, or when its machine is no longer paused."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, whose, act))

    def spawn(self, whose: Schedulable | None, work: Act) -> None:
        """Run `work` as a thread of that machine. What it raises ends `run`."""
        made = greenlet.greenlet(work, parent=self._hub)
        self._kept.append(made)  # a thread of a dead machine must not unwind while the world lives
        self.at(0.0, whose, made.switch)
        if len(self._kept) >= 1_024:
            self._kept = [kept for kept in self._kept if not kept.dead]

    def park(self) -> Any:
        """Give up the turn until somebody switches back to this thread; returns what it was switched with."""
        if self._closed:
            raise greenlet.GreenletExit
        return self._hub.switch()

    def here(self) -> Callable[..., object]:
        """What wakes the current thread up; to be scheduled before it parks."""
        wake: Callable[..., object] = greenlet.getcurrent().switch
        return wake

    def sleep(self, whose: Schedulable | None, duration_ms: float) -> None:
        """Let `duration_ms` pass for the current thread."""
        self.at(duration_ms if duration_ms > 0.0 else 0.0, whose, self.here())
        self.park()

    def run(self, until_ms: float) -> None:
        """Go on until that time. Raises what a thread raised."""
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= until_ms:
            at_ms, _, whose, act = pop(queue)
            self.now_ms = at_ms
            if whose is not None:
                if whose.dead:
                    continue
                if whose.paused_until_ms > at_ms:
                    self.at(whose.paused_until_ms - at_ms, whose, act)
                    continue
            self.events += 1
            act()
        self.now_ms = until_ms

    def close(self) -> None:
        """End every thread; none of them does anything any more."""
        self._closed = True
        self._queue.clear()
        kept, self._kept = self._kept, []
        for thread in kept:
            if not thread.dead and thread:  # started and not ended: let it unwind
                thread.throw(greenlet.GreenletExit)
