"""Statements of one client are read and planned a few at once, large ones one after the other, beside all others.

Reading and planning take the interpreter: milliseconds for a lookup, seconds for thousands of expressions. A hundred
of one client at once would keep heartbeats and statements of others waiting for as long as all of them take together.
Those of all clients that are large have their place in the memory of the node, too, or wait for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from ballista_py.coordinator.queries.large_statements import is_large, is_much, room_to_plan
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.turns import Turns
from ballista_py.work import current_work

AT_ONCE = 4
LARGE_AT_ONCE = 1
IN_ALL = 1_000  # the memory of the node bounds them before


@define
class PlanningTurns:
    """Whose turn it is, in the order of asking. Safe to share between threads.

    What is done for no client waits for nobody: there is only the `budget`.
    """

    runtime: Runtime
    budget: MemoryBudget | None = None
    turns: Turns = field(init=False)
    _holders: set[int] = field(init=False, factory=set)  # the works that have a turn

    def __attrs_post_init__(self) -> None:
        self.turns = Turns(self.runtime, IN_ALL)

    @contextmanager
    def turn(self, statement: str, beside: int = 0) -> Iterator[None]:
        """The block reads or plans the statement: it waits for its turn, and then, if it is large, for room.

        Values of so many bytes `beside` it are to be written into its text.

        Within it the same work waits for no other turn. Raises as `Work.check` meanwhile, and as `room_to_plan`.
        """
        work = current_work()
        if work is not None and id(work) in self._holders:
            yield
            return
        if work is None:
            with room_to_plan(statement, self.budget):
                yield
            return
        large = is_large(statement) or is_much(beside)
        with self.turns.turn((work.client, large), LARGE_AT_ONCE if large else AT_ONCE):
            self._holders.add(id(work))
            try:
                with room_to_plan(statement, self.budget, beside):
                    yield
            finally:
                self._holders.discard(id(work))


__all__ = ["AT_ONCE", "PlanningTurns"]
