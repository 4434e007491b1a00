"""Statements of one client that merge what executors answer are computed a few at once, beside all others.

Each takes threads, memory and the interpreter for as long as it reads; a hundred at once are no faster, and whoever
asks for a row meanwhile would wait for all of them. A statement has its turn until its first rows are there, or for
`LONGEST_MS`: one that takes minutes keeps no small one of the same client waiting for as long. While the node takes all
of its memory those that are not over count, too: what they computed is kept until it was read.
"""

from __future__ import annotations

import os

from attrs import define, field

from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import QueryPlan
from ballista_py.turns import Turn, Turns
from ballista_py.work import Work, current_work

OF_CLIENT = max(4, 2 * (os.cpu_count() or 1))
LONGEST_MS = 10_000.0
WAIT_MS = 30_000.0
IN_ALL = 1_000


@define
class MergingTurns:
    """Whose turn it is, in the order of asking. Safe to share between threads.

    What is done for no call waits for nobody, and within a call nothing waits that has the call's turn already.
    """

    runtime: Runtime
    budget: MemoryBudget | None = None
    turns: Turns = field(init=False)
    _taken: dict[int, Turn] = field(init=False, factory=dict)  # by the works that have one

    def __attrs_post_init__(self) -> None:
        self.turns = Turns(self.runtime, IN_ALL, self._is_short, LONGEST_MS)

    def take(self, plan: QueryPlan) -> None:
        """Wait for the turn of a statement with this plan, if it merges. It is given back when its call is over.

        Raises as `Work.check` meanwhile, and as `Turns.take`.
        """
        work = current_work()
        if work is None or id(work) in self._taken or (plan.merge_sql is None and not plan.broadcasts):
            return
        turn = self._taken[id(work)] = self.turns.take(work.client, OF_CLIENT, WAIT_MS)
        work.when_over(lambda: self._over(work, turn))

    def has_rows(self) -> None:
        """The work of this thread has its first rows."""
        work = current_work()
        turn = None if work is None else self._taken.get(id(work))
        if turn is not None:
            self.turns.begun(turn)

    def _is_short(self) -> bool:
        return self.budget is not None and self.budget.is_full

    def _over(self, work: Work, turn: Turn) -> None:
        if self._taken.get(id(work)) is turn:
            del self._taken[id(work)]
        self.turns.over(turn)


__all__ = ["MergingTurns"]
