"""How large the partitions of a table are, as far as anybody has said: for estimates, never for answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import Factory, define

from ballista_py.sql.estimate.column_ranges import Spread

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
