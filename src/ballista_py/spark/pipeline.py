"""The data pipeline: a table's source becomes its partitions on the store.

Promises: rows are written once, to files that nobody sees before a manifest names them; a run that fails or is
killed before its last step leaves every manifest as it was; running again replaces, it never adds. Leaves to
others which executor holds a partition (planning, state) and how rows are changed afterwards (storage).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import BallistaError, ConfigError, SchemaMismatch
from ballista_py.planning.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.spark.jobs import JobWatch, Progress, Spawn, tell_nobody
from ballista_py.spark.layout import (
    COMPRESSION,
    MAX_DISCOVERED_PARTITIONS,
    NO_PARTITION,
    Numbering,
    find_numbering,
    static_numbering,
    tasks_of,
    write_partitions,
)
from ballista_py.spark.reasons import reason_of
from ballista_py.spark.schema import arrow_schema
from ballista_py.spark.sources import Source, describe_source, read_source, source_name
from ballista_py.spark.staging import Staging, partition_paths, staging
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RunAll: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

DISCOVERY_TIMEOUT_MS = 60_000.0


@frozen(kw_only=True)
class WrittenPartition:
    """What a run wrote for one partition."""

    rows: int
    bytes: int
    files: int


@frozen(kw_only=True)
class MaterializeReport:
    """What a run wrote, by partition value in the order of their numbers; its files lie under `run_id`."""

    table: str
    run_id: str
    partitions: Mapping[tuple[Any, ...], WrittenPartition] = field(repr=False)

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(partition.rows for partition in self.partitions.values())

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(partition.bytes for partition in self.partitions.values())


class SparkPipeline:
    """Reads sources with `spark` and writes partitions to `store`. Not for several threads.

    `spawn` starts a thread that looks on while Spark works: with it progress comes task by task and discovery ends
    in time; without it progress comes after the tasks and discovery takes as long as it takes. `run_all` works as
    the built-in `map` does, its default; that of an executor makes requests to the store overlap. Files go
    straight to a store that is a folder of this machine, else to a temporary folder first, so Spark's workers must
    share the file system of this process (those of an embedded session do).
    """

    def __init__(
        self,
        spark: SparkSession,
        store: ConditionalStore,
        *,
        runtime: Runtime | None = None,
        spawn: Spawn | None = None,
        run_all: RunAll = map,
        discovery_timeout_ms: float = DISCOVERY_TIMEOUT_MS,
        max_partitions: int = MAX_DISCOVERED_PARTITIONS,
    ) -> None:
        self._spark = spark
        self._store = store
        self._runtime = runtime or SystemRuntime()
        self._run_all = run_all
        self._jobs = JobWatch(spark, self._runtime, spawn)
        self._discovery_timeout_ms = discovery_timeout_ms if spawn is not None else None
        self._max_partitions = max_partitions
        # The default, INT96, has no statistics and readers disagree about it.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def describe(self, table: str, source: Source) -> pa.Schema:
        """The schema that a table over `source` has: names and types as Spark reads them.

        A column is not nullable where the source itself promises it (the schemas of Parquet files, a DataFrame).
        Raises `ConfigError`, naming table and source, when it is missing, unreadable or of a type that tables
        cannot hold.
        """
        return describe_source(self._spark, source, f"table '{table}'")

    def discover(self, table: TableSpec, *, source: Source | None = None) -> list[tuple[Any, ...]]:
        """Every partition value of the table, one item per key; static keys need no look at the source.

        Raises `TryLater` when the search took longer than `discovery_timeout_ms` (it is cancelled then),
        `UnsupportedExpression` beyond `max_partitions` values, `ConfigError` for a source that cannot be read.
        """
        numbering = static_numbering(table.spec)
        if numbering is None:
            origin = _origin(table, source)
            numbering = self._find(table, origin, self._read(table, origin))
        return list(numbering.values)

    def materialize(
        self,
        table: TableSpec,
        *,
        source: Source | None = None,
        sort_by: Sequence[str] = (),
        compression: str = COMPRESSION,
        progress: Progress | None = None,
        token: str | None = None,
    ) -> MaterializeReport:
        """Make the rows of the source the whole table: one file and one manifest a partition, empty ones included.

        `source` overrides that of the table and may be a DataFrame; columns that the table does not have are left
        out. `sort_by` names columns that order the rows within a partition. `progress(done, total)` counts Spark's
        tasks, then manifests. A manifest that has applied `token` (default: a fresh one) already is left as it is.
        Manifests are committed one by one once all files are there, so a process killed among them leaves some
        partitions new and some old: run again.

        Raises `ConfigError` for a source that cannot be read, `SchemaMismatch` when it lacks the table's columns
        or holds a null that the table forbids, and what `discover` and the store raise. The files of a failed run
        are removed.
        """
        origin = _origin(table, source)
        rows = self._read(table, origin)
        numbering = static_numbering(table.spec) or self._find(table, origin, rows)
        run_id = self._runtime.new_id()
        steps = _Steps(progress or tell_nobody, tasks_of(len(numbering), rows), len(numbering))
        with staging(self._store, table.name, run_id) as stage:
            try:
                files = self._write(table, origin, rows, numbering, stage, (sort_by, compression, steps))
            except BaseException:
                stage.discard()
                raise
            self._commit(table, numbering, files, run_id, token or run_id, steps)
        return MaterializeReport(
            table=table.name,
            run_id=run_id,
            partitions={value: _written(files.get(number, ())) for number, value in enumerate(numbering.values)},
        )

    def _read(self, table: TableSpec, origin: Source) -> DataFrame:
        """The table's columns of the source, checked."""
        rows = read_source(self._spark, origin, f"table '{table.name}'")
        found = {column.name: column.type for column in arrow_schema(rows.schema)}
        for column in table.schema:
            if column.name not in found:
                raise SchemaMismatch(f"table '{table.name}': source {source_name(origin)} has no '{column.name}'")
            if found[column.name] != column.type:
                raise SchemaMismatch(
                    f"table '{table.name}': column '{column.name}' is {found[column.name]} in source "
                    f"{source_name(origin)}, the table declares {column.type}"
                )
        return rows.select(*("`" + name.replace("`", "``") + "`" for name in table.schema.names))

    def _find(self, table: TableSpec, origin: Source, rows: DataFrame) -> Numbering:
        what = f"discovering the partitions of table '{table.name}'"
        try:
            with self._jobs.group(what, timeout_ms=self._discovery_timeout_ms):
                return find_numbering(table.spec, rows, self._max_partitions)
        except BallistaError:
            raise
        except Exception as error:
            raise _failure(table, origin, error) from error

    def _write(
        self,
        table: TableSpec,
        origin: Source,
        rows: DataFrame,
        numbering: Numbering,
        stage: Staging,
        options: tuple[Sequence[str], str, _Steps],
    ) -> dict[int, list[DataFile]]:
        """The published files of every partition that has rows."""
        sort_by, compression, steps = options
        what = f"writing table '{table.name}'"
        try:
            with self._jobs.group(what, progress=steps.tasks_done, last_tasks=steps.last_tasks):
                paths = write_partitions(rows, numbering, stage.folder, sort_by, compression)
        except BallistaError:
            raise
        except Exception as error:
            raise _failure(table, origin, error) from error
        files = dict(zip(paths, self._run_all(stage.publish, paths.values()), strict=True))
        stage.settle()
        _check_nulls(table, origin, files)
        return files

    def _commit(
        self,
        table: TableSpec,
        numbering: Numbering,
        files: Mapping[int, Sequence[DataFile]],
        run_id: str,
        token: str,
        steps: _Steps,
    ) -> None:
        """Name the files in the manifests; a partition that the source no longer has becomes empty."""
        wanted = {table.spec.path(value): files.get(number, ()) for number, value in enumerate(numbering.values)}
        if not table.spec.is_static:
            wanted |= dict.fromkeys(partition_paths(self._store, table.name) - wanted.keys(), ())

        def replace(path: str) -> None:
            storage = PartitionStorage(self._store, table.name, path, runtime=self._runtime, committed_by=run_id)
            storage.replace_files(wanted[path], token=token)

        for done, _ in enumerate(self._run_all(replace, wanted), start=1):
            steps.committed(min(done, len(numbering)))


@define
class _Steps:
    """Tells how far a run is: Spark's tasks first, then one step a manifest."""

    progress: Progress
    last_tasks: int
    manifests: int
    tasks: int = 0

    def tasks_done(self, done: int, total: int) -> None:
        self.tasks = total
        self.progress(done, total + self.manifests)

    def committed(self, manifests: int) -> None:
        tasks = self.tasks or self.last_tasks
        self.progress(tasks + manifests, tasks + self.manifests)


def _origin(table: TableSpec, source: Source | None) -> Source:
    origin = table.source if source is None else source
    if origin is None:
        raise ConfigError(f"table '{table.name}' has no source: it is managed, its rows come by INSERT")
    return origin


def _failure(table: TableSpec, origin: Source, error: Exception) -> BallistaError:
    if NO_PARTITION in str(error):
        return SchemaMismatch(
            f"table '{table.name}': a row of source {source_name(origin)} has a key that is null though declared "
            "not null, or that came while the source was read: nothing was changed"
        )
    reason = reason_of(error)
    return ConfigError(
        f"table '{table.name}': Spark could not make partitions from source {source_name(origin)}: {reason}"
    )


def _check_nulls(table: TableSpec, origin: Source, files: Mapping[int, Sequence[DataFile]]) -> None:
    forbidden = [column.name for column in table.schema if not column.nullable]
    for file in (file for several in files.values() for file in several):
        for name in forbidden:
            if name in file.columns and file.columns[name].null_count:
                raise SchemaMismatch(
                    f"table '{table.name}': column '{name}' of source {source_name(origin)} holds nulls, though "
                    "it is declared not null: nothing was changed"
                )


def _written(files: Sequence[DataFile]) -> WrittenPartition:
    return WrittenPartition(
        rows=sum(file.rows for file in files), bytes=sum(file.bytes for file in files), files=len(files)
    )
