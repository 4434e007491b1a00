"""PySpark: the data pipeline that turns sources into partitions, `bucket` inside Spark, tables as a format of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ballista_py.spark.data_source import BallistaDataSource

__all__ = ["BallistaDataSource"]


def __getattr__(name: str) -> Any:
    """Loaded at first use, because whoever needs something else of this folder need not have PySpark."""
    if name != "BallistaDataSource":
        raise AttributeError(f"module 'ballista_py.spark' has no attribute '{name}'")
    from ballista_py.spark.data_source import BallistaDataSource

    return BallistaDataSource
