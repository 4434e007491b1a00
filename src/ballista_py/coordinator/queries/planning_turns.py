"""Statements of one client are read and planned a few at once, large ones one after the other, beside all others.

Reading and planning take the interpreter: milliseconds for a lookup, seconds for thousands of expressions. A hundred
of one client at once would keep heartbeats and statements of others waiting for as long as all of them take together.
Those of all clients that are large have their place in the memory of the node, too, or wait for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from ballista_py.coordinator.queries.large_statements import is_large, room_to_plan
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.work import Work, current_work

AT_ONCE = 4
LARGE_AT_ONCE = 1
LOOK_MS = 100.0
_Lane = tuple[str, bool]  # a client, and whether its statement is large


@define(eq=False)
class _Waiting:
    changed: Any  # a Condition
    has_turn: bool = False


@define
class PlanningTurns:
    """Whose turn it is, in the order of asking. Safe to share between threads.

    What is done for no client waits for nobody: there is only the `budget`.
    """

    runtime: Runtime
    budget: MemoryBudget | None = None
    _lock: Any = field(init=False)
    _taken: dict[_Lane, int] = field(init=False, factory=dict)
    _waiting: dict[_Lane, deque[_Waiting]] = field(init=False, factory=dict)
    _holders: set[int] = field(init=False, factory=set)  # the works that have a turn

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    @contextmanager
    def turn(self, statement: str) -> Iterator[None]:
        """The block reads or plans the statement: it waits for its turn, and then, if it is large, for room.

        Within it the same work waits for no other turn. Raises as `Work.check` meanwhile, and as `room_to_plan`.
        """
        work = current_work()
        if work is None:
            with room_to_plan(statement, self.budget):
                yield
            return
        if id(work) in self._holders:
            yield
            return
        lane = (work.client, is_large(statement))
        self._take(lane, work)
        self._holders.add(id(work))
        try:
            with room_to_plan(statement, self.budget):
                yield
        finally:
            self._holders.discard(id(work))
            self._give_back(lane)

    def _take(self, lane: _Lane, work: Work) -> None:
        with self._lock:
            taken = self._taken.get(lane, 0)
            if taken < (LARGE_AT_ONCE if lane[1] else AT_ONCE):
                self._taken[lane] = taken + 1
                return
            mine = _Waiting(self.runtime.condition())
            self._waiting.setdefault(lane, deque()).append(mine)
        try:
            while not mine.has_turn:
                with mine.changed:
                    if not mine.has_turn:
                        mine.changed.wait(LOOK_MS)
                work.check()
        except BaseException:
            self._leave(lane, mine)
            raise

    def _leave(self, lane: _Lane, mine: _Waiting) -> None:
        with self._lock:
            waiting = self._waiting.get(lane, deque())
            if mine in waiting:
                waiting.remove(mine)
                if not waiting:
                    del self._waiting[lane]
                return
        self._give_back(lane)  # it was its turn in the meantime

    def _give_back(self, lane: _Lane) -> None:
        with self._lock:
            waiting = self._waiting.get(lane)
            if waiting is None:
                left = self._taken[lane] - 1
                if left:
                    self._taken[lane] = left
                else:
                    del self._taken[lane]
                return
            following = waiting.popleft()
            if not waiting:
                del self._waiting[lane]
        with following.changed:
            following.has_turn = True
            following.changed.notify_all()


__all__ = ["AT_ONCE", "PlanningTurns"]
