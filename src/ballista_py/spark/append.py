"""The rows of a source that a table does not have yet, found by comparing what both show above a watermark.

Promises that a row comes in exactly as often as the source has it, whatever was taken before and however often the
question is asked: rows are compared whole and counted, not recognised by a key. So a run that was killed half-way
needs no undoing, and a late row is found as long as it lies within the overlap.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.errors import ConfigError
from ballista_py.partitions.expression.nodes import quote_name
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.store_files import stored_rows
from ballista_py.spark.watermark import Watermark, position_of
from ballista_py.state.stores.store import ConditionalStore, local_path
from ballista_py.storage.formats.deletion_vector import numbered, original_of
from ballista_py.storage.formats.files import check_bytes, read_places
from ballista_py.storage.formats.parquet import encode
from ballista_py.storage.manifest import DataFile, ManifestDocument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_GLOB = re.compile(r"([\\*?\[\]{}])")
_ROW, _TIMES, _NUMBER = "__ballista_row", "__ballista_times", "__ballista_number"


@frozen(kw_only=True)
class Window:
    """What an append has to look at: source rows from `start` on (None: all), and the files that may hold them.

    `reached` is the highest position that any partition knows. The start is counted from the lowest one: a run
    that was killed among its commits left some partitions behind.
    """

    start: int | None
    reached: int | None
    held: Sequence[DataFile]


def window_of(
    manifests: Mapping[str, ManifestDocument], watermark: Watermark, kind: pa.DataType, complete: bool
) -> Window:
    """The window after what `manifests` say; pure. Without `complete` there are partitions that nobody wrote yet."""
    positions = [position_of(manifest.source_position, watermark) for manifest in manifests.values()]
    known = [position for position in positions if position is not None]
    lowest = min(known) if complete and known and len(known) == len(positions) else None
    start = watermark.start(kind, lowest)
    files = [file for manifest in manifests.values() for file in manifest.files]
    return Window(
        start=start,
        reached=max(known, default=None),
        held=[file for file in files if start is None or watermark.may_hold(kind, file, start)],
    )


def new_rows(source: DataFrame, held: DataFrame | None, watermark: Watermark, kind: pa.DataType,
             start: int | None) -> DataFrame:  # fmt: skip
    """The rows of `source` from `start` on that are not `held`, each as often as it is missing."""
    from pyspark.sql import functions as sf

    asked = source if start is None else source.where(watermark.rows_from(kind, start))
    if held is None:
        return asked
    if start is not None:
        held = held.where(watermark.rows_from(kind, start))
    whole = sf.expr(comparable(source))
    counted = held.select(whole.alias(_ROW)).groupBy(_ROW).agg(sf.count(sf.lit(1)).alias(_TIMES))
    numbered = asked.withColumn(_ROW, whole)
    columns = [quote_name(name, "`", always=True) for name in source.columns]
    numbered = numbered.select(
        *columns, _ROW, sf.expr(f"row_number() over (partition by {_ROW} order by 0)").alias(_NUMBER)
    )
    joined = numbered.join(counted, _ROW, "left").where(f"{_TIMES} is null or {_NUMBER} > {_TIMES}")
    return joined.select(*columns)


@contextmanager
def held_rows(
    store: ConditionalStore,
    files: Sequence[DataFile],
    source: DataFrame,
    table: pa.Schema,
    tasks: TaskStore | None,
) -> Iterator[DataFrame | None]:
    """The rows of the files as Spark reads them while the block runs, in the columns of `source`; None for no files."""
    if tasks is not None:
        yield stored_rows(source.sparkSession, files, table, source.schema, tasks) if files else None
        return
    with on_this_machine(store, files) as paths:
        reader = source.sparkSession.read.schema(source.schema)
        yield reader.parquet(*("file://" + _GLOB.sub(r"\\\1", path) for path in paths)) if paths else None


@contextmanager
def on_this_machine(store: ConditionalStore, files: Sequence[DataFile]) -> Iterator[list[str]]:
    """Where Spark can read the files: in place, or temporary copies that are gone when the block ends."""
    for file in files:
        if file.rows_format != "parquet":
            raise ConfigError(
                f"data file '{file.path}' has format '{file.rows_format}', which Spark does not read"
            )
    places = [local_path(store, file.path) if file.original is None else None for file in files]
    if all(place is not None for place in places):
        yield [str(place) for place in places]
        return
    with tempfile.TemporaryDirectory(prefix="ballista-held-") as folder:
        copies = []
        for number, file in enumerate(files):
            copy = Path(folder) / f"{number}.parquet"
            copy.write_bytes(_as_parquet(store, file))
            copies.append(str(copy))
        yield copies


def _as_parquet(store: ConditionalStore, file: DataFile) -> bytes:
    """The rows of a file as a Parquet file of the same columns, its bytes checked."""
    if file.original is None:
        return check_bytes(store.get(file.path, file.bytes).data, file)
    original = original_of(file)
    data = check_bytes(store.get(original.path, original.bytes).data, original)
    rows = pq.read_table(pa.py_buffer(data))
    left = [batch for _, batch in numbered(rows.to_batches(), read_places(store, file))]
    return encode(pa.Table.from_batches(left, schema=rows.schema))[0]


def comparable(rows: DataFrame) -> str:
    """Spark SQL for a whole row as one value that can be compared, whatever is nested in it.

    Maps, which Spark does not compare, become their entries in order of the keys.
    """
    parts = [
        f"'c{place}', {_comparable(column.dataType, quote_name(column.name, '`', always=True), 0)}"
        for place, column in enumerate(rows.schema.fields)
    ]
    return f"named_struct({', '.join(parts)})"


def _comparable(kind: DataType, sql: str, depth: int) -> str:
    from pyspark.sql import types

    if not _has_map(kind):
        return sql
    item = f"x{depth}"
    if isinstance(kind, types.ArrayType):
        return f"transform({sql}, {item} -> {_comparable(kind.elementType, item, depth + 1)})"
    if isinstance(kind, types.MapType):
        key = _comparable(kind.keyType, f"{item}.key", depth + 1)
        value = _comparable(kind.valueType, f"{item}.value", depth + 1)
        return f"array_sort(transform(map_entries({sql}), {item} -> named_struct('key', {key}, 'value', {value})))"
    assert isinstance(kind, types.StructType)
    inner = [f"{sql}.{quote_name(field.name, '`', always=True)}" for field in kind.fields]
    fields = ", ".join(
        f"'c{place}', {_comparable(field.dataType, inner[place], depth)}"
        for place, field in enumerate(kind.fields)
    )
    return f"if({sql} is null, null, named_struct({fields}))"


def _has_map(kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, types.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, types.MapType)
