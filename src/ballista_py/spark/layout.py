"""Spreads rows over partitions and writes them: one shuffle by partition, one task and one file a partition.

Every row gets the number of its partition by a native Spark expression (static keys) or by a broadcast join with
the values found (other keys). Rows then travel straight to the task of that number, which writes what it gets: no
sort, no folder per value. Beyond `MAX_DIRECT_TASKS` partitions share tasks and each task sorts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import field, frozen

from ballista_py.errors import StoreUnavailable, UnsupportedExpression
from ballista_py.partitions.expression.nodes import quote_text
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.values import MAX_KEY_BYTES, as_key
from ballista_py.spark.file_size import MAX_FILE_BYTES, rows_per_file, split_large
from ballista_py.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

MAX_DIRECT_TASKS = 256
MAX_DISCOVERED_PARTITIONS = 100_000
MAX_LARGE_VALUES_BYTES = 64 << 20
COMPRESSION = "zstd"
NO_PARTITION = "ballista_py: a row belongs to no partition"

_ID = "__ballista_partition"
_KEY = "__ballista_key"
_SIZE = "__ballista_key_bytes"
_SIZED = ("string", "char", "varchar", "binary")
_FILE = re.compile(r"part-(\d+)-.*\.parquet\Z")
_GROUP = re.compile(rf"{_ID}=(\d+)\Z")

# The job writes into a folder of its own, so neither marker nor checksum files are wanted there.
_PLAIN_FILES = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


@frozen
class Numbering:
    """The partitions of a table in the order in which rows are numbered by them.

    `keys` holds the values of other than static keys as Spark gave them, row i for partition i. A `partial` numbering
    leaves the rows of all other partitions out.
    """

    spec: PartitionSpec
    values: Sequence[tuple[Any, ...]] = field(repr=False)
    keys: pa.Table | None = field(default=None, repr=False)
    partial: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def number(self, rows: DataFrame) -> DataFrame:
        """`rows` with the number of each row's partition as a last column; a row of none fails the job."""
        from pyspark.sql import functions as sf

        missing = f"raise_error({quote_text(NO_PARTITION, 'spark')})"
        if self.keys is None:
            return rows.withColumn(_ID, sf.expr(_static_number(self.spec, missing)))
        found = rows.sparkSession.createDataFrame(
            self.keys.append_column(_ID, pa.array(range(len(self)), pa.int32()))
        )
        same = None
        for place, expression in enumerate(self.spec.spark_sql()):
            one = sf.expr(expression).eqNullSafe(found[f"{_KEY}{place}"])
            same = one if same is None else same & one
        kind = "inner" if self.partial else "left"
        joined = rows.join(sf.broadcast(found), same, kind).drop(*self.keys.column_names)
        return joined.withColumn(_ID, sf.expr(f"coalesce({_ID}, {missing})"))

    def only(self, wanted: Callable[[tuple[Any, ...]], bool]) -> Numbering:
        """The partitions whose values are wanted, of found keys."""
        kept = [number for number, value in enumerate(self.values) if wanted(value)]
        keys = None if self.keys is None else self.keys.take(pa.array(kept, pa.int64()))
        return Numbering(self.spec, [self.values[number] for number in kept], keys, partial=True)


def static_numbering(spec: PartitionSpec) -> Numbering | None:
    """The numbering of static keys, without a look at any row; None for other keys."""
    values = spec.static_values()
    return None if values is None else Numbering(spec, values)


def find_numbering(spec: PartitionSpec, rows: DataFrame, max_partitions: int) -> Numbering:
    """The distinct partition values of `rows`, in the order of their paths: one Spark job.

    Raises `UnsupportedExpression` when there are more than `max_partitions`, or more bytes of large ones than
    `MAX_LARGE_VALUES_BYTES`.
    """
    from pyspark.sql import functions as sf

    keys = [sf.expr(sql).alias(f"{_KEY}{place}") for place, sql in enumerate(spec.spark_sql())]
    found = _distinct(rows.select(*keys), max_partitions + 1)
    if len(found) > max_partitions:
        raise UnsupportedExpression(
            f"the partition keys have more than {max_partitions:,} distinct values: partition by bucket(N, column)"
        )
    columns = [
        as_key(column.combine_chunks(), key.type).to_pylist() for column, key in zip(found, spec.keys, strict=True)
    ]
    values = list(zip(*columns, strict=True))
    order = sorted(range(len(values)), key=lambda row: spec.path(values[row]))
    return Numbering(spec, [values[row] for row in order], found.take(pa.array(order, pa.int64())))


def _distinct(keys: DataFrame, most: int) -> pa.Table:
    """The distinct rows of the keys, `most` at most. What is too large for a name comes in a job of its own, if at all.

    New values of that size are refused, but there may be partitions that an earlier release named so. Spark's driver
    has all that it collects in its memory, so no value comes whole before it was measured.
    """
    from pyspark.sql import functions as sf

    sized = [field.name for field in keys.schema.fields if field.dataType.typeName() in _SIZED]
    if not sized:
        return keys.distinct().limit(most).toArrow()
    size = sf.greatest(*(sf.coalesce(sf.octet_length(name), sf.lit(0)) for name in sized), sf.lit(0))
    measured = keys.withColumn(_SIZE, sf.when(size > MAX_KEY_BYTES, size))
    cut = [sf.when(sf.col(_SIZE).isNull(), sf.col(name)).alias(name) for name in keys.columns]
    found = measured.select(*cut, _SIZE).distinct().limit(most).toArrow()
    largest = pc.max(found[_SIZE]).as_py()
    small = found.filter(pc.is_null(found[_SIZE])).drop_columns([_SIZE])
    if largest is None:
        return small
    room = max(1, MAX_LARGE_VALUES_BYTES // (largest * len(sized)))
    large = measured.where(sf.col(_SIZE).isNotNull()).drop(_SIZE).distinct().limit(room + 1).toArrow()
    if len(large) > room:
        raise UnsupportedExpression(
            f"the partition keys have values of up to {largest:,} bytes, more than {room:,} of them above "
            f"{MAX_KEY_BYTES:,}: partition by bucket(N, column), or by its first characters"
        )
    return pa.concat_tables([small, large])


def tasks_of(count: int, rows: DataFrame) -> int:
    """How many tasks write `count` partitions."""
    if count <= MAX_DIRECT_TASKS:
        return count
    return min(count, int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or MAX_DIRECT_TASKS))


def spread_rows(rows: DataFrame, numbering: Numbering, sort_by: Sequence[str]) -> DataFrame:
    """`rows` where they are written, each with the number of its partition as a last column.

    Those of one partition are in one task and follow each other there.
    """
    return _spread(numbering.number(rows), len(numbering), sort_by)


def _spread(numbered: DataFrame, count: int, sort_by: Sequence[str]) -> DataFrame:
    tasks = tasks_of(count, numbered)
    direct = tasks == count
    spread = numbered.repartitionById(tasks, numbered[_ID] if direct else numbered[_ID] % tasks)
    if not direct:
        return spread.sortWithinPartitions(_ID, *sort_by)
    return spread.sortWithinPartitions(*sort_by) if sort_by else spread


def write_partitions(
    rows: DataFrame,
    numbering: Numbering,
    folder: Path,
    sort_by: Sequence[str],
    compression: str,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> dict[int, list[Path]]:
    """Write `rows` as Parquet files below `folder`, which must not exist: one Spark job.

    Returns the files of each partition that has rows, in the order of these: usually one, more where it would be
    larger than `max_file_bytes`. The rows in them are counted against the rows
    that were read; raises `StoreUnavailable` if some are not there.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    if len(numbering) == 0:
        return {}
    direct = tasks_of(len(numbering), rows) == len(numbering)
    read = Observation()
    counted = numbering.number(rows).observe(read, sf.count(sf.lit(1)).alias("rows"))
    spread = _spread(counted, len(numbering), sort_by)
    writer = (spread.drop(_ID) if direct else spread).write.options(**_PLAIN_FILES)
    writer = writer.option("compression", compression).option(
        "maxRecordsPerFile", rows_per_file(arrow_schema(rows.schema), max_file_bytes)
    )
    # Hadoop takes the path as it is, without percent-encoding.
    (writer if direct else writer.partitionBy(_ID)).parquet(f"file://{folder}")
    found = {
        number: [piece for path in paths for piece in split_large(path, max_file_bytes)]
        for number, paths in _files_by_partition(folder, direct).items()
    }
    written = sum(pq.read_metadata(path).num_rows for paths in found.values() for path in paths)
    expected = _counted(read)
    if written != expected or not folder.is_dir():
        raise StoreUnavailable(
            f"Spark read {expected} rows, {written} of them were found in its files: those of a run that stood still "
            "may be gone, run it again"
        )
    return found


def _counted(read: Observation) -> int:
    """The rows that Spark read. It takes the counter out of a plan that surely has none."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return int(read.get["rows"])
    except Py4JError:
        return 0


def _static_number(spec: PartitionSpec, missing: str) -> str:
    """SQL for the place of a row's value in `spec.static_values()`, which counts the last key fastest."""
    number = "0"
    for key, sql in zip(spec.keys, spec.spark_sql(), strict=True):
        size = key.buckets or 0
        digit = f"coalesce({sql}, {size if key.nullable else missing})"
        number = f"({number} * {size + key.nullable} + {digit})" if number != "0" else digit
    return f"cast({number} as int)"


def _files_by_partition(folder: Path, direct: bool) -> dict[int, list[Path]]:
    """Spark names a file after the number of its task, which here is the number of the partition."""
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.rglob("part-*.parquet")):
        match = _FILE.match(path.name) if direct else _GROUP.match(path.parent.name)
        if match is None:
            raise AssertionError(f"Spark wrote an unexpected file: {path.name}")
        found.setdefault(int(match[1]), []).append(path)
    return found
