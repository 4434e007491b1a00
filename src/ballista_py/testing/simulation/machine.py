"""One machine of a simulated world: its clocks, chance, locks and threads. It is the `Runtime` of what it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from ballista_py.runtime import Condition
from ballista_py.testing.simulation.time import Act, World

MAX_DRIFT = 0.05
MAX_WALL_SKEW_MS = 600_000.0
_WALL_START_MS = 1_700_000_000_000.0

In = TypeVar("In")
Out = TypeVar("Out")


class Machine:
    """A process on a machine of its own, from its start to its death.

    The monotonic clock starts anywhere and runs up to 5 % too fast or too slow; the wall clock is up to ten
    minutes off and drifts as well, so whoever decides by it is found out. A paused machine does
    nothing and notices nothing; a dead one never does anything again, though requests that it had sent arrive.
    """

    def __init__(self, world: World, name: str) -> None:
        chance = world.chance
        self.world = world
        self.name = name
        self.dead = False
        self.stopping = False  # its loops end
        self.paused_until_ms = 0.0
        self.cut_until_ms = 0.0  # from the store
        self.slow_until_ms = 0.0  # to and from the store
        self.rate = chance.uniform(1 - MAX_DRIFT, 1 + MAX_DRIFT)
        self._offset_ms = chance.uniform(0, 1e8) - self.rate * world.now_ms
        self._wall_rate = chance.uniform(1 - MAX_DRIFT, 1 + MAX_DRIFT)
        self._wall_offset_ms = _WALL_START_MS + chance.uniform(-MAX_WALL_SKEW_MS, MAX_WALL_SKEW_MS)

    def wall_ms(self) -> int:
        return int(self._wall_offset_ms + self._wall_rate * self.world.now_ms)

    def monotonic_ms(self) -> float:
        return self._offset_ms + self.rate * self.world.now_ms

    def true_ms(self, own_ms: float) -> float:
        """How long a span of this machine's clock really takes."""
        return own_ms / self.rate

    def sleep_ms(self, duration_ms: float) -> None:
        self.world.sleep(self, duration_ms / self.rate)

    def random(self) -> float:
        return self.world.chance.random()

    def new_id(self) -> str:
        return f"{self.world.chance.getrandbits(128):032x}"

    def lock(self) -> AbstractContextManager[object]:
        return VirtualLock(self)

    def condition(self) -> Condition:
        return VirtualCondition(self)

    def spawn(self, work: Act) -> None:
        """Start a thread of this machine."""
        self.world.spawn(self, work)

    def pause(self, duration_ms: float) -> None:
        """Do nothing from now on for that long, or until an earlier pause ends."""
        self.paused_until_ms = max(self.paused_until_ms, self.world.now_ms + duration_ms)

    def map(self, call: Callable[[In], Out], items: Iterable[In], /) -> Iterator[Out]:
        """`map` on a thread for each item. The calls must not raise."""
        todo = list(items)
        done: dict[int, Out] = {}
        finished = self.condition()

        def work(place: int) -> None:
            result = call(todo[place])
            with finished:
                done[place] = result
                finished.notify_all()

        for place in range(len(todo)):
            self.spawn(lambda place=place: work(place))  # type: ignore[misc]
        with finished:
            while len(done) < len(todo):
                finished.wait()
        return iter([done[place] for place in range(len(todo))])


class VirtualLock:
    """A lock that is handed on in the order of asking."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._held = False
        self._waiting: deque[Act] = deque()

    def __enter__(self) -> object:
        if not self._held:
            self._held = True
            return self
        world = self._machine.world
        self._waiting.append(world.here())
        world.park()
        return self  # whoever released it left it held for us

    def __exit__(self, *exc: object) -> None:
        if self._waiting:
            self._machine.world.at(0.0, self._machine, self._waiting.popleft())
        else:
            self._held = False


class VirtualCondition:
    """A condition variable with a lock of its own."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = VirtualLock(machine)
        self._waiting: list[_Waiter] = []

    def __enter__(self) -> object:
        return self._lock.__enter__()

    def __exit__(self, *exc: object) -> bool | None:
        self._lock.__exit__(*exc)
        return None

    def wait(self, timeout_ms: float | None = None) -> bool:
        machine, world = self._machine, self._machine.world
        waiter = _Waiter(world.here())
        self._waiting.append(waiter)
        if timeout_ms is not None:
            world.at(max(0.0, machine.true_ms(timeout_ms)), machine, lambda: waiter.wake(False))
        self._lock.__exit__()
        notified = bool(world.park())
        if waiter in self._waiting:  # it timed out
            self._waiting.remove(waiter)
        self._lock.__enter__()
        return notified

    def notify_all(self) -> None:
        for waiter in self._waiting:
            self._machine.world.at(0.0, self._machine, lambda waiter=waiter: waiter.wake(True))  # type: ignore[misc]
        self._waiting.clear()


class _Waiter:
    """One thread in `wait`; the first of notification and timeout wakes it."""

    def __init__(self, switch: Callable[..., object]) -> None:
        self._switch: Callable[..., object] | None = switch

    def wake(self, notified: bool) -> None:
        switch, self._switch = self._switch, None
        if switch is not None:
            switch(notified)
