"""Turns for what takes much at once: so many in all, so many of each lane, and nobody is overtaken in his own lane.

A lane is whatever shall not keep others waiting, as a rule a client. What has begun, and only gives away what it
computed, counts no more, unless memory is short: what it computed is kept until it was given away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from ballista_py.errors import TryLater
from ballista_py.runtime import Runtime
from ballista_py.work import require_wanted

LOOK_MS = 100.0


@define(eq=False)
class Turn:
    """One turn, or the place of somebody who waits for his."""

    lane: Hashable
    most: int
    number: int
    changed: Any  # a Condition
    since_ms: float | None = None
    has_begun: bool = False


@define
class Turns:
    """At most `in_all` at once, and of each lane as many as it asks for. Safe to share between threads.

    Of those who wait, the first of the lane that has the fewest turns is next. A turn counts until it has begun, or is
    `longest_ms` old. While memory `is_short`, it counts until it is over, in its own lane: other lanes never wait.
    """

    runtime: Runtime
    in_all: int
    is_short: Callable[[], bool] = lambda: False
    longest_ms: float | None = None
    _lock: Any = field(init=False)
    _held: dict[Hashable, list[Turn]] = field(init=False, factory=dict)
    _waiting: dict[Hashable, deque[Turn]] = field(init=False, factory=dict)
    _asked: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    @contextmanager
    def turn(self, lane: Hashable, most: int, wait_ms: float | None = None) -> Iterator[Turn]:
        """Around what needs a turn. Raises as `take`."""
        turn = self.take(lane, most, wait_ms)
        try:
            yield turn
        finally:
            self.over(turn)

    def take(self, lane: Hashable, most: int, wait_ms: float | None = None) -> Turn:
        """Wait until fewer than `most` of the lane have their turn, and take one; `over` follows in any case.

        Raises as `require_wanted` meanwhile, and `TryLater` when memory is short for `wait_ms` while it waits: whoever
        reads no answer may wait for his own.
        """
        with self._lock:
            self._asked += 1
            turn = Turn(lane, most, self._asked, self.runtime.condition())
            self._waiting.setdefault(lane, deque()).append(turn)
        short_since_ms: float | None = None
        try:
            self._let_in()
            while turn.since_ms is None:
                with turn.changed:
                    if turn.since_ms is None:
                        turn.changed.wait(LOOK_MS)
                require_wanted()
                if turn.since_ms is None:
                    self._let_in()  # time has passed, and memory may not be short any more
                    now_ms = self.runtime.monotonic_ms()
                    short_since_ms = (short_since_ms or now_ms) if self.is_short() else None
                    if wait_ms is not None and short_since_ms is not None and now_ms - short_since_ms > wait_ms:
                        raise TryLater(self._no_turn(turn.lane))
        except BaseException:
            self.over(turn)
            raise
        return turn

    def begun(self, turn: Turn) -> None:
        """What had the turn gives away what it computed from now on."""
        turn.has_begun = True
        self._let_in()

    def over(self, turn: Turn) -> None:
        """Give the turn back, or the place among those who wait. More than once is fine."""
        with self._lock:
            for places in (self._held, self._waiting):
                if turn in places.get(turn.lane, ()):
                    self._drop(places, turn)
        self._let_in()

    def taken(self, lane: Hashable) -> int:
        """How many of the lane have their turn and have not begun."""
        return sum(not turn.has_begun for turn in self._held.get(lane, ()))

    def begun_of(self, lane: Hashable) -> int:
        """How many of the lane have begun and are not over."""
        return sum(turn.has_begun for turn in self._held.get(lane, ()))

    def waiting(self, lane: Hashable) -> int:
        """How many of the lane wait."""
        return len(self._waiting.get(lane, ()))

    def _no_turn(self, lane: Hashable) -> str:
        return (
            f"{len(self._held.get(lane, ()))} answers of this client are under way at a node that takes all of its "
            "memory, and no more are begun until some of them are over: read the answers that you asked for, or send "
            "fewer at once"
        )

    def _let_in(self) -> None:
        """Give those their turns whose turns it is now."""
        is_short, now_ms = self.is_short(), self.runtime.monotonic_ms()
        let_in: list[Turn] = []
        with self._lock:
            while self._waiting and (turn := self._next(is_short, now_ms)) is not None:
                self._drop(self._waiting, turn)
                self._held.setdefault(turn.lane, []).append(turn)
                turn.since_ms = now_ms
                let_in.append(turn)
        for turn in let_in:
            with turn.changed:
                turn.changed.notify_all()

    def _next(self, is_short: bool, now_ms: float) -> Turn | None:
        at_work = {lane: sum(self._counts(turn, now_ms) for turn in held) for lane, held in self._held.items()}
        if sum(at_work.values()) >= self.in_all:
            return None
        counted = {lane: len(held) for lane, held in self._held.items()} if is_short else at_work
        first = [waiting[0] for lane, waiting in self._waiting.items() if counted.get(lane, 0) < waiting[0].most]
        return min(first, key=lambda turn: (counted.get(turn.lane, 0), turn.number), default=None)

    def _counts(self, turn: Turn, now_ms: float) -> bool:
        if turn.has_begun or turn.since_ms is None:
            return False
        return self.longest_ms is None or now_ms - turn.since_ms < self.longest_ms

    def _drop(self, places: dict[Hashable, Any], turn: Turn) -> None:
        places[turn.lane].remove(turn)
        if not places[turn.lane]:
            del places[turn.lane]


__all__ = ["Turn", "Turns"]
