"""Statements of one client whose text is large are bound and planned one after the other, beside all others.

Planning thousands of expressions takes seconds of the interpreter and megabytes for each statement. Many at once would
keep heartbeats and point lookups of others waiting for as long as all of them take together. So those of all clients
together also have their place in the memory of the node, by the length of their texts, or wait for one.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ballista_py.errors import MergeTooLarge
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.work import current_work, require_wanted

LARGE_CHARACTERS = 8_192
LOOK_MS = 100.0
# Trees of the parser, the plan of the engine, its fragments: up to 2 kB a character where they are made, and 0.9 kB in
# the process of the engine where the statement is bound there.
PLANNED_BYTES_PER_CHARACTER = 3_072
# Names and constants are no smaller for being few: a literal of 500 kB is one.
PLANNED_BYTES_PER_PIECE = 8_192
KEPT_BYTES_PER_CHARACTER = 64
_BETWEEN = re.compile(r"\W")
COLLECTED_CHARACTERS = 32_768


class LargeStatements:
    """Whose turn it is. Safe to share between threads."""

    def __init__(self, runtime: Runtime, budget: MemoryBudget | None = None) -> None:
        self._budget = budget
        self._changed = runtime.condition()
        self._taken: set[str] = set()  # by which clients

    @contextmanager
    def turn(self, statement: str) -> Iterator[None]:
        """The block plans the statement. If it is large it waits for its turn, and then for room.

        Raises as `require_wanted` meanwhile, and as `MemoryBudget.begin`.
        """
        if len(statement) < LARGE_CHARACTERS:
            yield
            return
        work = current_work()
        client = "" if work is None else work.client
        with self._changed:
            while client in self._taken:
                self._changed.wait(LOOK_MS)
                require_wanted()
            self._taken.add(client)
        try:
            with room_to_plan(statement, self._budget):
                yield
        finally:
            with self._changed:
                self._taken.discard(client)
                self._changed.notify_all()


def planned_bytes(statement: str) -> int:
    """What planning it may take, by its length and by how many names, constants and operators there may be.

    >>> planned_bytes("select " + "a + " * 10_000) // len("select " + "a + " * 10_000)
    3072
    >>> planned_bytes(f"select '{'x' * 500_000}'") < 100 * 500_000
    True
    """
    pieces = len(_BETWEEN.findall(statement)) + 1
    by_pieces = PLANNED_BYTES_PER_PIECE * pieces + KEPT_BYTES_PER_CHARACTER * len(statement)
    return min(PLANNED_BYTES_PER_CHARACTER * len(statement), by_pieces)


@contextmanager
def room_to_plan(statement: str, budget: MemoryBudget | None) -> Iterator[None]:
    """The block reads or plans the statement and waits for nothing else that has a place in the `budget`.

    Raises as `MemoryBudget.begin`, and `MergeTooLarge` for a statement for which the node has never room.
    """
    if budget is None or len(statement) < LARGE_CHARACTERS:
        yield
        return
    size = planned_bytes(statement)
    most = budget.ledger.max_bytes
    if size > most:
        raise MergeTooLarge(
            f"planning a statement of {len(statement):,} characters may take more memory than this node has: send one "
            f"of {most // PLANNED_BYTES_PER_CHARACTER:,} at most, or several, or its values as parameters"
        )
    with budget.held(size):
        if len(statement) > COLLECTED_CHARACTERS:
            gc.collect()  # trees name each other: what the one before has left stays until somebody looks
        yield
