"""Which files and row groups may hold rows for which all conditions of a task hold, by bounds of columns; pure.

Bounds are of numbers, texts and times alike; NaN lies outside of them and above all numbers, so no bound speaks of a
column of floats where the condition is true for NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ballista_py.errors import SchemaMismatch
from ballista_py.scans.task import ScanCondition
from ballista_py.sql.prune.file_bounds import ColumnBounds

_NO_PYTHON_VALUE = (ValueError, OverflowError, ArithmeticError, TypeError)


def require_conditions(conditions: Iterable[ScanCondition], schema: pa.Schema) -> None:
    """Raises `SchemaMismatch` for a condition on a column that is not there, or with values of another type."""
    for one in conditions:
        if schema.names.count(one.column) != 1:
            raise SchemaMismatch(f"a condition is on '{one.column[:100]}', which is no column of the table")
        kind = schema.field(one.column).type
        if one.values and one.values[0].type != kind:
            raise SchemaMismatch(
                f"a condition on '{one.column[:100]}' has values of {one.values[0].type}, and the column is {kind}"
            )


def may_hold(conditions: Iterable[ScanCondition], rows: int | None, columns: Mapping[str, ColumnBounds]) -> bool:
    """Whether one of so many rows (None: unknown) may fulfil all conditions.

    >>> least = ScanCondition(column="id", operator=">", values=(pa.scalar(7),))
    >>> [may_hold([least], 3, {"id": ColumnBounds(low=1, high=high)}) for high in (7, 8, None)]
    [False, True, True]
    """
    return rows != 0 and all(_may(one, rows, columns.get(one.column)) for one in conditions)


def _may(one: ScanCondition, rows: int | None, bounds: ColumnBounds | None) -> bool:
    if bounds is None:
        return True
    if one.operator == "is_null":
        return bounds.nulls is None or bounds.nulls > 0
    if rows is not None and bounds.nulls == rows:
        return False
    if one.operator in ("is_not_null", "!="):  # that a bound is a value of the column nobody promises
        return True
    values = [_value(value) for value in one.values]
    if one.operator == "in":
        return any(_may_compare("=", value, bounds) for value in values)
    return _may_compare(one.operator, values[0], bounds)


def _may_compare(operator: str, value: Any, bounds: ColumnBounds) -> bool:
    low, high = bounds.low, bounds.high
    if value is None:  # without a form in Python
        return True
    if isinstance(value, float) and (math.isnan(value) or operator in (">", ">=")):
        return operator != ">" or not math.isnan(value)
    try:
        match operator:
            case "=":
                return bool((low is None or low <= value) and (high is None or high >= value))
            case "<":
                return bool(low is None or low < value)
            case "<=":
                return bool(low is None or low <= value)
            case ">":
                return bool(high is None or high > value)
            case ">=":
                return bool(high is None or high >= value)
    except TypeError:  # bounds of a type that was another one once
        return True
    return True


def _value(value: pa.Scalar) -> Any:
    try:
        found = value.as_py()
    except _NO_PYTHON_VALUE:
        return None
    return found if not hasattr(found, "nanosecond") else None
