"""What the source of a table has: its rows, and the partitions into which they fall."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ballista_py.errors import BallistaError
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.checks import check_columns, failure_of
from ballista_py.spark.jobs import JobWatch, Progress, tell_nobody
from ballista_py.spark.layout import Numbering, find_numbering, static_numbering
from ballista_py.spark.sources import Source, read_source, reader_options, source_name
from ballista_py.spark.text.settings import NO_SUBSTITUTION, require_settings
from ballista_py.spark.text_check import check_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SourceRows:
    """Reads sources with `spark`. Errors name table and source."""

    def __init__(self, spark: SparkSession, jobs: JobWatch, max_partitions: int) -> None:
        self._spark = spark
        self._jobs = jobs
        self._max_partitions = max_partitions

    def check(self, table: TableSpec, origin: Source) -> None:
        """Look through text files of the source for what Spark would read as something else without a word."""
        if not isinstance(origin, str | os.PathLike | Mapping):
            return
        owner = f"table '{table.name}'"
        options = reader_options(origin, owner)
        try:
            with self._jobs.group(f"looking through the source of {owner}"):
                check_text(self._spark, options, f"{owner}: source {source_name(origin)}")
        except BallistaError:
            raise
        except Exception as error:
            raise failure_of(table, origin, error) from error

    def read(self, table: TableSpec, origin: Source) -> DataFrame:
        """The table's columns of the source, checked."""
        rows = read_source(self._spark, origin, f"table '{table.name}'")
        require_settings(rows.sparkSession, NO_SUBSTITUTION)  # a DataFrame may come from another session
        check_columns(table, origin, rows)
        return rows.select(*("`" + name.replace("`", "``") + "`" for name in table.schema.names))

    def find(
        self,
        table: TableSpec,
        origin: Source,
        rows: DataFrame,
        timeout_ms: float | None,
        progress: Progress = tell_nobody,
    ) -> Numbering:
        """The partitions that these rows of the table fall into: one Spark job, unless the keys are static.

        Raises `TryLater` when it takes longer than `timeout_ms`, and what `find_numbering` raises.
        """
        static = static_numbering(table.spec)
        if static is not None:
            return static
        what = f"discovering the partitions of table '{table.name}'"
        try:
            with self._jobs.group(what, progress=progress, timeout_ms=timeout_ms):
                return find_numbering(table.spec, rows, self._max_partitions)
        except BallistaError:
            raise
        except Exception as error:
            raise failure_of(table, origin, error) from error
