"""Which answers of Spark are surely small, judged before they are computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_ROWS = 10_000
MAX_ROWS_READ = 100_000
MAX_GUESS_BYTES = 4 << 20

_MAKES_ROWS = re.compile(r"^[ :+-]*+Generate ", re.MULTILINE)


def looks_small(rows: DataFrame, rows_read: int | None) -> bool:
    """Whether the answer `rows` can be had through Spark's driver; `rows_read` are in the files that it comes from.

    None for files that Spark does not see: of what tasks read it has no idea.

    It can if Spark proves that it has few rows (a total, a LIMIT), or if it comes from few rows and Spark, which
    multiplies the sizes of what is joined, takes it for small. Spark's guess knows nothing of the rows that a
    function makes out of one, nor of what was compressed.
    """
    plan = rows._jdf.queryExecution().optimizedPlan()
    at_most = plan.maxRows()
    if at_most.isDefined() and at_most.get() <= MAX_ROWS:
        return True
    return bool(
        rows_read is not None
        and rows_read <= MAX_ROWS_READ
        and plan.stats().sizeInBytes() <= MAX_GUESS_BYTES
        and _MAKES_ROWS.search(plan.toString()) is None
    )
