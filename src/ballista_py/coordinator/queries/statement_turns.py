"""Whose turn it is: large texts, planning and merging are shared out between the clients of a scheduler.

Statements whose text is large have their place in the memory of the node while they are planned, or wait for one.

Planning thousands of expressions takes megabytes for each statement; how many is told by the length of its text.

Statements of one client that merge what executors answer are computed a few at once, beside all others.

Each takes threads, memory and the interpreter for as long as it reads; a hundred at once are no faster, and whoever
asks for a row meanwhile would wait for all of them. A statement has its turn until its first rows are there, or for
`LONGEST_MS`: one that takes minutes keeps no small one of the same client waiting for as long. While the node takes all
of its memory those that are not over count, too: what they computed is kept until it was read.

Statements of one client are read and planned a few at once, large ones one after the other, beside all others.

Reading and planning take the interpreter: milliseconds for a lookup, seconds for thousands of expressions. A hundred
of one client at once would keep heartbeats and statements of others waiting for as long as all of them take together.
Those of all clients that are large have their place in the memory of the node, too, or wait for one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from ballista_py.errors import MergeTooLarge
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.measures import signs_of
from ballista_py.sql.parse.parsing import MAX_BOUND_CHARS, READ_BYTES_PER_CHARACTER
from ballista_py.sql.plan import QueryPlan
from ballista_py.turns import Turn, Turns
from ballista_py.work import Work, current_work

__all__ = ["AT_ONCE", "MergingTurns", "PlanningTurns"]


LARGE_CHARACTERS = 8_192
# Names and constants are no smaller for being few: a literal of 500 kB is one.
PLANNED_BYTES_PER_PIECE = 8_192
KEPT_BYTES_PER_CHARACTER = 64
WRITTEN_BYTES_PER_BYTE = (
    200  # of values that become trees and text, at most half of what there is: it is one at a time
)
COLLECTED_CHARACTERS = 32_768


def planned_bytes(statement: str) -> int:
    """What planning it may take, by its length and by how many names, constants and operators there may be.

    >>> planned_bytes("select " + "a + " * 10_000) // len("select " + "a + " * 10_000)
    3072
    >>> planned_bytes(f"select '{'x' * 500_000}'") < 100 * 500_000
    True
    """
    pieces = signs_of(statement) + 1
    by_pieces = PLANNED_BYTES_PER_PIECE * pieces + KEPT_BYTES_PER_CHARACTER * len(statement)
    return min(READ_BYTES_PER_CHARACTER * len(statement), by_pieces)


def is_large(statement: str) -> bool:
    """Whether a statement is planned one after the other for each client, and only where there is room for it."""
    return len(statement) >= LARGE_CHARACTERS


def is_much(beside: int) -> bool:
    """Whether values of so many bytes make a statement large."""
    return beside >= LARGE_CHARACTERS


@contextmanager
def room_to_plan(statement: str, budget: MemoryBudget | None, beside: int = 0) -> Iterator[None]:
    """The block reads or plans the statement and waits for nothing else that has a place in the `budget`.

    Values of so many bytes `beside` it are written into its text.

    Raises as `MemoryBudget.begin`, and `MergeTooLarge` for a statement for which the node has never room.
    """
    if budget is None or not (is_large(statement) or is_much(beside)):
        yield
        return
    written = min(beside, MAX_BOUND_CHARS) * WRITTEN_BYTES_PER_BYTE
    size = planned_bytes(statement) + min(written, budget.ledger.max_bytes // 2)
    most = budget.ledger.max_bytes
    if size > most:
        raise MergeTooLarge(
            f"planning a statement of {len(statement):,} characters may take more memory than this node has: send one "
            f"of {most // READ_BYTES_PER_CHARACTER:,} at most, or several, or its values as parameters"
        )
    with budget.held(size):
        if len(statement) > COLLECTED_CHARACTERS:
            gc.collect()  # trees name each other: what the one before has left stays until somebody looks
        yield


OF_CLIENT = max(4, 2 * (os.cpu_count() or 1))
LONGEST_MS = 10_000.0
WAIT_MS = 30_000.0
MERGING_IN_ALL = 1_000


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
        self.turns = Turns(self.runtime, MERGING_IN_ALL, self._is_short, LONGEST_MS)

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


AT_ONCE = 4
LARGE_AT_ONCE = 1
PLANNING_IN_ALL = 1_000  # the memory of the node bounds them before


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
        self.turns = Turns(self.runtime, PLANNING_IN_ALL)

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
