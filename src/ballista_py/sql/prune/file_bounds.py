"""What the statistics of a data file say about one of its columns."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen(kw_only=True)
class ColumnBounds:
    """One column of one file: no value is below `low` or above `high` (None: unknown), `nulls` are null."""

    low: Any = None
    high: Any = None
    nulls: int | None = None
