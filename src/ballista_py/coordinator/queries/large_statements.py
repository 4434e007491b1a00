"""Statements whose text is large have their place in the memory of the node while they are planned, or wait for one.

Planning thousands of expressions takes megabytes for each statement; how many is told by the length of its text.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ballista_py.errors import MergeTooLarge
from ballista_py.memory_budget import MemoryBudget
from ballista_py.sql.parse.elements import signs_of
from ballista_py.sql.parse.parsing import MAX_BOUND_CHARS, READ_BYTES_PER_CHARACTER

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
