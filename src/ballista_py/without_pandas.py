"""pyarrow without pandas: a node makes no data frames, and pandas would be 27 MB and half a second of each."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


def spare_pandas() -> None:
    """Let pyarrow find no pandas when it looks for one, which it does once, for the first list that becomes an array.

    Whoever imports pandas afterwards gets it (Spark does), and `to_pandas` works as ever.
    """
    import pyarrow as pa

    sys.meta_path.insert(0, _NO_PANDAS)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NO_PANDAS)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


_NO_PANDAS = _NoPandas()
