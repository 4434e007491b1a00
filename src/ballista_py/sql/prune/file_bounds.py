"""What statistics say about a column of some rows, and which tests of a condition these rows can pass.

Whoever gives rows has no parser: a condition comes as tests that were written down when it was planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from attrs import frozen

Operator: TypeAlias = Literal["=", "<", "<=", ">", ">=", "is null", "is not null"]


@frozen(kw_only=True)
class ColumnBounds:
    """One column of one file: no value is below `low` or above `high` (None: unknown), `nulls` are null."""

    low: Any = None
    high: Any = None
    nulls: int | None = None


@frozen
class ColumnTest:
    """A comparison of a column with a value of its type."""

    column: str
    operator: Operator
    value: Any = None


Condition: TypeAlias = tuple[tuple[tuple[ColumnTest, ...], ...], ...]
"""True at most for rows that pass, of each clause, all tests of at least one of its branches."""


def columns_of(condition: Condition) -> set[str]:
    """The columns that are tested."""
    return {test.column for clause in condition for branch in clause for test in branch}


def may_pass(condition: Condition, rows: int, columns: Mapping[str, ColumnBounds]) -> bool:
    """Whether one of so many rows, with these bounds by column, may pass.

    >>> least = ColumnTest("id", ">", 7)
    >>> [may_pass((((least,),),), 10, {"id": ColumnBounds(low=1, high=high)}) for high in (7, 8, None)]
    [False, True, True]
    """
    return rows > 0 and all(
        any(all(_may(test, rows, columns.get(test.column)) for test in branch) for branch in clause)
        for clause in condition
    )


def _may(test: ColumnTest, rows: int, bounds: ColumnBounds | None) -> bool:
    if bounds is None:
        return True
    if test.operator == "is null":
        return bounds.nulls is None or bounds.nulls > 0
    if bounds.nulls == rows:
        return False
    low, high, value = bounds.low, bounds.high, test.value
    match test.operator:
        case "=":
            return (low is None or low <= value) and (high is None or high >= value)
        case "<":
            return bool(low is None or low < value)
        case "<=":
            return bool(low is None or low <= value)
        case ">":
            return bool(high is None or high > value)
        case ">=":
            return bool(high is None or high >= value)
    return True
