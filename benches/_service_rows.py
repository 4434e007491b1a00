"""The rows that the benchmarks of services look up and fetch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROW_BYTES = 24


def numbers(rows: int) -> pa.Table:
    """Three columns of eight bytes."""
    ids = np.arange(rows, dtype=np.int64)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64()), ("y", pa.float64())])
    return pa.table({"id": ids, "x": ids * 0.5, "y": np.sqrt(ids)}, schema=schema)
