"""Data files of a run, and rows of data files, for a Spark elsewhere: its tasks put and read them at the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.partitions.columns import plain
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.layout import Numbering, spread_rows
from ballista_py.spark.on_workers import on_workers
from ballista_py.spark.schema import arrow_schema
from ballista_py.state.documents.codec import converter
from ballista_py.storage.manifest import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MAX_PUT_BYTES = 128 << 20  # a file is in the memory of a worker's Python when it is put
RECEIPT = "number int, file string"
# Spark takes rows that tasks read for few, whatever there are: it may send around only what it has counted.
NO_GUESSES = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": str(10 << 20),
}
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def put_partitions(
    rows: DataFrame,
    numbering: Numbering,
    tasks: TaskStore,
    claim: str,
    prefix: str,
    sort_by: Sequence[str],
    compression: str,
    max_file_bytes: int,
) -> dict[int, list[DataFile]]:
    """Let tasks put `rows` below `prefix` as Parquet files: one Spark job.

    Returns the files of each partition that has rows, those of one attempt at each task. Others may lie there, too,
    which nobody names. Raises as `worker_tasks.put_rows`, and `DocumentUnreadable` for a receipt that is none.
    """
    if not len(numbering):
        return {}
    schema = pa.schema([column.with_nullable(True) for column in arrow_schema(rows.schema)])
    most = min(max_file_bytes, MAX_PUT_BYTES)
    arguments = (tasks.payload(), claim, prefix, schema, compression, most)
    told = on_workers(spread_rows(rows, numbering, sort_by), "put_rows", arguments, RECEIPT).collect()
    found: dict[int, list[DataFile]] = {}
    for number, text in sorted(tuple(row) for row in told):
        found.setdefault(number, []).append(_received(text, prefix))
    return found


def stored_rows(
    spark: SparkSession, files: Sequence[DataFile], table: pa.Schema, kinds: StructType, tasks: TaskStore
) -> DataFrame:
    """The rows of data files of a table whose columns are `table`, which tasks read from the store, one a file."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for file in files:
        if file.rows_format not in ("parquet", "vortex"):
            raise ConfigError(f"data file '{file.path}' has format '{file.rows_format}', which tasks do not read")
    texts = tuple(orjson.dumps(converter().unstructure(file)) for file in files)
    numbers = spark.range(0, len(files), 1, max(1, len(files)))
    wanted = to_arrow_schema(kinds, timezone="UTC")
    return on_workers(numbers, "read_files", (tasks.payload(), texts, table, wanted), kinds)


def spark_columns(table: pa.Schema) -> StructType:
    """The columns of a table as Spark has them. Raises `ConfigError` for a type that it does not have."""
    from pyspark.sql.pandas.types import from_arrow_schema

    kinds = [pa.field(column.name, _WIDER.get(column.type, column.type)) for column in plain(table)]
    try:
        return from_arrow_schema(pa.schema(kinds), prefer_timestamp_ntz=True)
    except Exception as error:  # pyspark has no one class for these
        said = str(error).splitlines()[0]
        raise ConfigError(f"Spark has no type for a column: {said}") from None


def _received(text: str, prefix: str) -> DataFile:
    try:
        file = converter().loads(text, DataFile)
    except Exception as error:
        raise DocumentUnreadable("a task of Spark told of a data file in other words than these") from error
    if not file.path.startswith(f"{prefix}/"):
        raise DocumentUnreadable(f"a task of Spark put a data file at '{file.path}', where it was not sent")
    return file
