"""Whether two results are the same answer: names, types and rows, floats within a tolerance."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

RELATIVE_TOLERANCE = 1e-9


def difference(actual: pa.Table, expected: pa.Table, *, ordered: bool = False) -> str | None:
    """The first difference between two results in words, or None when they are the same answer.

    Column names and types must be equal, decimals and everything else exactly; floats may differ by 1e-9 relative,
    because sums of floats depend on their order. Without `ordered` the rows are compared as a multiset.

    >>> one, two = pa.table({"a": [1, 2]}), pa.table({"a": [2, 1]})
    >>> difference(one, two), difference(one, two, ordered=True)
    (None, "row 0, column 'a': 1 instead of 2")
    """
    for name, got, wanted in (
        ("column names", actual.column_names, expected.column_names),
        ("column types", [str(t) for t in actual.schema.types], [str(t) for t in expected.schema.types]),
        ("row count", actual.num_rows, expected.num_rows),
    ):
        if got != wanted:
            return f"{name}: {got} instead of {wanted}"
    names = actual.column_names
    got_rows, wanted_rows = _rows(actual), _rows(expected)
    if not ordered:
        exact = [i for i, kind in enumerate(actual.schema.types) if not pa.types.is_floating(kind)]
        floats = [i for i, kind in enumerate(actual.schema.types) if pa.types.is_floating(kind)]
        for rows in (got_rows, wanted_rows):
            rows.sort(key=lambda row: [_sort_key(row[i]) for i in (*exact, *floats)])
    for number, (got_row, wanted_row) in enumerate(zip(got_rows, wanted_rows, strict=True)):
        for name, a, b in zip(names, got_row, wanted_row, strict=True):
            if not _same(a, b):
                return f"row {number}, column '{name}': {a!r} instead of {b!r}"
    return None


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*map(_values, table.columns), strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values, those of dates and times that Python does not reach as numbers."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        if not pa.types.is_temporal(column.type) or pa.types.is_interval(column.type):
            raise
        return list(column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist())


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())
    return bool(a == b)


def _sort_key(value: Any) -> tuple[int, str, Any]:
    if value is None:
        return (2, "", 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, "", 0)
    return (0, type(value).__name__, repr(value) if isinstance(value, list | dict) else value)
