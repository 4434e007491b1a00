"""Turns for what takes much at once: so many in all, so many of each lane, and nobody is overtaken in his own lane.

A lane is whatever shall not keep others waiting, as a rule a client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from ballista_py.runtime import Runtime
from ballista_py.work import require_wanted

LOOK_MS = 100.0


@define(eq=False)
class _Waiting:
    number: int
    changed: Any  # a Condition
    has_turn: bool = False


@define
class Turns:
    """At most `in_all` at once, and of each lane as many as it asks for. Safe to share between threads.

    Of those who wait, the first of the lane that has the fewest turns is next.
    """

    runtime: Runtime
    in_all: int
    _lock: Any = field(init=False)
    _taken: dict[Hashable, int] = field(init=False, factory=dict)
    _waiting: dict[Hashable, deque[_Waiting]] = field(init=False, factory=dict)
    _most: dict[Hashable, int] = field(init=False, factory=dict)  # of the lanes in which somebody waits
    _asked: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    @contextmanager
    def turn(self, lane: Hashable, most: int) -> Iterator[None]:
        """The block waits until fewer than `most` of the lane are in theirs. Raises as `require_wanted` meanwhile."""
        self._take(lane, most)
        try:
            yield
        finally:
            self._give_back(lane)

    def taken(self, lane: Hashable) -> int:
        """How many of the lane have their turn."""
        return self._taken.get(lane, 0)

    def waiting(self, lane: Hashable) -> int:
        """How many of the lane wait."""
        return len(self._waiting.get(lane, ()))

    def _take(self, lane: Hashable, most: int) -> None:
        with self._lock:
            if lane not in self._waiting and self._is_free(lane, most):
                self._taken[lane] = self.taken(lane) + 1
                return
            self._asked += 1
            mine = _Waiting(self._asked, self.runtime.condition())
            self._waiting.setdefault(lane, deque()).append(mine)
            self._most[lane] = most
        try:
            while not mine.has_turn:
                with mine.changed:
                    if not mine.has_turn:
                        mine.changed.wait(LOOK_MS)
                require_wanted()
        except BaseException:
            self._leave(lane, mine)
            raise

    def _is_free(self, lane: Hashable, most: int) -> bool:
        return self.taken(lane) < most and sum(self._taken.values()) < self.in_all

    def _leave(self, lane: Hashable, mine: _Waiting) -> None:
        with self._lock:
            waits = mine in self._waiting.get(lane, ())
            if waits:
                self._drop(lane, mine)
        if not waits:  # it was its turn in the meantime
            self._give_back(lane)

    def _give_back(self, lane: Hashable) -> None:
        with self._lock:
            left = self._taken.pop(lane) - 1
            if left:
                self._taken[lane] = left
            following = self._next()
        for one in following:
            with one.changed:
                one.has_turn = True
                one.changed.notify_all()

    def _next(self) -> list[_Waiting]:
        """Those whose turn it is now; it is theirs from here on."""
        found: list[_Waiting] = []
        while True:
            free = [lane for lane in self._waiting if self._is_free(lane, self._most[lane])]
            if not free:
                return found
            lane = min(free, key=lambda one: (self.taken(one), self._waiting[one][0].number))
            found.append(self._waiting[lane][0])
            self._drop(lane, found[-1])
            self._taken[lane] = self.taken(lane) + 1

    def _drop(self, lane: Hashable, one: _Waiting) -> None:
        self._waiting[lane].remove(one)
        if not self._waiting[lane]:
            del self._waiting[lane], self._most[lane]


__all__ = ["Turns"]
