"""How large the partitions of a table are, and the ranges of their columns: for estimates, never for answers.

Ranges of columns, and how much of them a condition keeps: for estimates, never for answers.

How large the partitions of a table are, as far as anybody has said: for estimates, never for answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import Factory, define, frozen

Range: TypeAlias = tuple[float, float]
"""The least and the largest value, as positions on a line."""
_SMALLEST_SHARE = 0.01
_EPOCH = dt.date(1970, 1, 1)


@frozen
class Spread:
    """How the values of a column lie: parts of so many rows with a range each, taken to be even within it.

    >>> Spread(((10.0, (0.0, 9.0)), (30.0, (10.0, 19.0)))).share(10.0, 15.0)
    0.4166666666666667
    """

    parts: tuple[tuple[float, Range], ...]

    def share(self, low: float | None, high: float | None) -> float:
        """About which share of the rows lies between two values (None: no end); a hundredth at least.

        A range says little where a single value lies far from all others, so less than that is not believed.
        """
        rows = sum(count for count, _ in self.parts)
        kept = sum(count * _overlap(of, low, high) for count, of in self.parts)
        return max(_SMALLEST_SHARE, kept / rows) if rows else 1.0

    def is_like(self, other: Spread) -> bool:
        """Whether estimates by both would hardly differ: no end moved by more than a tenth of the whole range."""
        mine, theirs = self._whole(), other._whole()
        if mine is None or theirs is None or len(self.parts) != len(other.parts):
            return mine is theirs
        width = max(mine[1] - mine[0], theirs[1] - theirs[0])
        return all(
            abs(a - b) <= width / 10
            for (_, one), (_, two) in zip(self.parts, other.parts, strict=True)
            for a, b in zip(one, two, strict=True)
        )

    def _whole(self) -> Range | None:
        return spanning(*(of for _, of in self.parts)) if self.parts else None


def _overlap(of: Range, low: float | None, high: float | None) -> float:
    begin = of[0] if low is None else max(low, of[0])
    end = of[1] if high is None else min(high, of[1])
    width = of[1] - of[0]
    if begin > end:
        return 0.0
    return (end - begin) / width if width > 0 else 1.0


def spanning(*ranges: Range) -> Range:
    """The smallest range that holds them all."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def position_of(value: Any) -> float | None:
    """Where a value lies on the line of its type: numbers are themselves, days and moments are counted since 1970.

    >>> position_of(Decimal("1.5")), position_of(dt.date(1970, 1, 3)), position_of("a")
    (1.5, 2.0, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        return float(value)
    if isinstance(value, dt.datetime):
        day, second = value.date(), value.hour * 3600 + value.minute * 60 + value.second
        return (day - _EPOCH).days + second / 86_400
    return float((value - _EPOCH).days) if isinstance(value, dt.date) else None


def spreads(reports: Iterable[tuple[float, Mapping[str, Range]]]) -> dict[str, Spread]:
    """The spread of each column by what each of those who hold the table says: its rows and its ranges."""
    found: dict[str, list[tuple[float, Range]]] = {}
    for rows, ranges in reports:
        for name, one in ranges.items():
            found.setdefault(name, []).append((rows, one))
    return {name: Spread(tuple(parts)) for name, parts in found.items()}


Numbers: TypeAlias = npt.NDArray[np.float64]

TEXT_BYTES = 24
"""What one value of a column without a fixed width is taken to weigh in memory, unless the files say more."""
_TOLERANCE = 0.1
_SHIFT = 0.5
_FEW_ROWS = 1_000.0


@define(eq=False, frozen=True)
class TableSizes:
    """The rows of every partition, and the bytes of its files, by partition id; how the values of columns lie.

    >>> sizes = TableSizes(rows=np.array([100.0, 300.0]), bytes=np.array([1e4, 3e4]))
    >>> sizes.text_bytes(pa.schema([("id", pa.int64()), ("body", pa.string())]))
    92.0
    """

    rows: Numbers
    bytes: Numbers
    spreads: Mapping[str, Spread] = Factory(dict)

    def is_like(self, other: TableSizes) -> bool:
        """Whether no plan is worth making anew for the difference: at most a tenth of the table, or a thousand rows of
        it, and nowhere more than half of a partition."""
        if len(self.rows) != len(other.rows):
            return False
        totals = np.isclose(self.rows.sum(), other.rows.sum(), rtol=_TOLERANCE, atol=_FEW_ROWS)
        if not totals or not np.allclose(self.rows, other.rows, rtol=_SHIFT, atol=_FEW_ROWS):
            return False
        return float(self.rows.sum()) <= _FEW_ROWS or self._lies_like(other)

    def _lies_like(self, other: TableSizes) -> bool:
        if self.spreads.keys() != other.spreads.keys():
            return False
        return all(spread.is_like(other.spreads[name]) for name, spread in self.spreads.items())

    def text_bytes(self, schema: pa.Schema) -> float:
        """What one value of a column of no fixed width weighs in memory at least, by the bytes of the files.

        Files are compressed, so they give a lower bound; short texts stay at `TEXT_BYTES`.
        """
        loose = sum(fixed_bytes(column.type) is None for column in schema)
        rows, weight = float(self.rows.sum()), float(self.bytes.sum())
        if not loose or rows < 1:
            return float(TEXT_BYTES)
        fixed = sum(fixed_bytes(column.type) or 0 for column in schema)
        return max(float(TEXT_BYTES), (weight / rows - fixed) / loose)


def fixed_bytes(kind: Any) -> int | None:
    """The bytes of one value as Arrow holds it; None for a type without a fixed width."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return None
