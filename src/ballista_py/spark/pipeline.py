"""The data pipeline: a table's source becomes its partitions on the store.

Promises: rows are written once, to files that nobody sees before a manifest names them; a run that fails or is
killed before its last step leaves every manifest as it was; running again replaces, or adds what is missing: no row
comes in twice. Leaves to others which executor holds a partition (planning, state) and how rows are changed
afterwards (storage).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError, ObjectMissing
from ballista_py.planning.table import TableSpec, check_same_keys
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.spark.append import new_rows, on_this_machine, window_of
from ballista_py.spark.checks import check_columns, check_nulls, failure_of, origin_of
from ballista_py.spark.file_size import MAX_FILE_BYTES
from ballista_py.spark.jobs import JobWatch, Progress, Spawn, Steps, tell_nobody
from ballista_py.spark.layout import (
    COMPRESSION,
    MAX_DISCOVERED_PARTITIONS,
    Numbering,
    find_numbering,
    static_numbering,
    tasks_of,
    write_partitions,
)
from ballista_py.spark.report import MaterializeReport, WrittenPartition
from ballista_py.spark.sources import Source, describe_source, read_source
from ballista_py.spark.staging import Staging, partition_paths, staging
from ballista_py.spark.watermark import Watermark, position_text
from ballista_py.state.documents import PartitionMapDocument, partition_map_key
from ballista_py.state.object_state import ObjectState
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.manifest import DataFile, ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RunAll: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
RefreshMode: TypeAlias = Literal["full", "append"]

DISCOVERY_TIMEOUT_MS = 60_000.0


@frozen(kw_only=True)
class _Run:
    """One run: what it is about, and how it was asked for."""

    table: TableSpec
    origin: Source
    run_id: str
    token: str
    sort_by: Sequence[str]
    compression: str
    progress: Progress


class SparkPipeline:
    """Reads sources with `spark` and writes partitions to `store`. Not for several threads.

    `spawn` starts a thread that looks on while Spark works: with it progress comes task by task and discovery ends
    in time; without it progress comes after the tasks and discovery takes as long as it takes. `run_all` works as
    the built-in `map` does, its default; that of an executor makes requests to the store overlap. Files go
    straight to a store that is a folder of this machine, else to a temporary folder first, so Spark's workers must
    share the file system of this process (those of an embedded session do). A partition whose file would be larger
    than `max_file_bytes` gets several.
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
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._spark = spark
        self._store = store
        self._runtime = runtime or SystemRuntime()
        self._run_all = run_all
        self._jobs = JobWatch(spark, self._runtime, spawn)
        self._discovery_timeout_ms = discovery_timeout_ms if spawn is not None else None
        self._max_partitions = max_partitions
        self._max_file_bytes = max_file_bytes
        # The default, INT96, has no statistics and readers disagree about it.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def describe(self, table: str, source: Source) -> pa.Schema:
        """The schema that a table over `source` has: names and types as Spark reads them.

        A column is not nullable where the source itself promises it (the schemas of Parquet files, a DataFrame).
        Raises `ConfigError`, naming table and source, when it is missing, unreadable or of a type that tables
        cannot hold.
        """
        return describe_source(self._spark, source, f"table '{table}'")

    def discover(
        self, table: TableSpec, *, source: Source | None = None, progress: Progress | None = None
    ) -> list[tuple[Any, ...]]:
        """Every partition value of the table, one item per key; static keys need no look at the source.

        `progress(done, total)` counts Spark's tasks.

        Raises `TryLater` when the search took longer than `discovery_timeout_ms` (it is cancelled then),
        `UnsupportedExpression` beyond `max_partitions` values, `ConfigError` for a source that cannot be read.
        """
        numbering = static_numbering(table.spec)
        if numbering is None:
            origin = origin_of(table, source)
            rows = self._read(table, origin)
            numbering = self._find(table, origin, rows, self._discovery_timeout_ms, progress or tell_nobody)
        return list(numbering.values)

    def materialize(
        self,
        table: TableSpec,
        *,
        source: Source | None = None,
        watermark: Watermark | None = None,
        sort_by: Sequence[str] = (),
        compression: str = COMPRESSION,
        progress: Progress | None = None,
        token: str | None = None,
    ) -> MaterializeReport:
        """Make the rows of the source the whole table: one file and one manifest a partition, empty ones included.

        `source` overrides that of the table and may be a DataFrame; columns that the table does not have are left
        out. `watermark` keeps how far the source was read, for appends to come. `sort_by` names columns that order
        the rows within a partition. `progress(done, total)` counts Spark's tasks, then manifests. A manifest that
        has applied `token` (default: a fresh one) already is left as it is. Manifests are committed one by one
        once all files are there, so a process killed among them leaves some partitions new and some old: run again.

        Raises `ConfigError` for a source that cannot be read, `SchemaMismatch` when it lacks the table's columns
        or holds a null that the table forbids, `UnsupportedExpression` when the table has a map of other keys, by
        which rows lie elsewhere, and what `discover` and the store raise. The files of a failed run
        are removed.
        """
        run = self._run(table, source, sort_by, compression, progress, token)
        kind = watermark.check(table) if watermark is not None else None
        rows = self._read(table, run.origin)
        numbering = static_numbering(table.spec) or self._find(table, run.origin, rows, self._discovery_timeout_ms)
        with staging(self._store, table.folder, run.run_id) as stage:
            files, steps = self._write(run, rows, numbering, stage)
            position = position_text(run.run_id)
            if watermark is not None and kind is not None:
                position = position_text(run.run_id, watermark, _highest(watermark, kind, files, None))
            wanted = _by_path(numbering, files)
            if not table.spec.is_static:
                # A partition that the source no longer has becomes empty.
                wanted |= dict.fromkeys(partition_paths(self._store, table.folder) - wanted.keys(), ())

            def replace(path: str) -> None:
                self._storage(run, path).replace_files(wanted[path], token=run.token, source_position=position)

            self._commit(replace, wanted, steps)
        return _report(run, numbering, files)

    def refresh(
        self,
        table: TableSpec,
        *,
        mode: RefreshMode = "full",
        source: Source | None = None,
        watermark: Watermark | None = None,
        sort_by: Sequence[str] = (),
        compression: str = COMPRESSION,
        progress: Progress | None = None,
        token: str | None = None,
    ) -> MaterializeReport:
        """Bring the table up to its source: anew ("full", as `materialize`) or by the rows it lacks ("append").

        An append needs a `watermark`. It compares what the source and the table show from the last position less
        the overlap on, whole rows and how often each occurs, and adds what the table lacks: so it may be repeated
        at will, after a kill or a lost reply too, and no row comes in twice. It is meant for sources that only grow
        and for tables filled from them alone: it takes nothing away, sees no change of a row below the overlap,
        and brings a row back that a statement deleted above it. Rows without a watermark are compared each time.

        Raises `ConfigError` for another mode and an unusable watermark, `VersionConflict` when another run changed
        a partition in between (some may be done: run again), and what `materialize` raises.
        """
        if mode == "full":
            return self.materialize(
                table,
                source=source,
                watermark=watermark,
                sort_by=sort_by,
                compression=compression,
                progress=progress,
                token=token,
            )
        if mode != "append":
            raise ConfigError(
                f"table '{table.name}' cannot be refreshed by '{mode}': take 'full', or 'append' with a watermark"
            )
        if watermark is None:
            raise ConfigError(
                f"table '{table.name}': an append needs a watermark, the column by which new rows are found"
            )
        run = self._run(table, source, sort_by, compression, progress, token)
        return self._append(run, watermark, watermark.check(table))

    def _append(self, run: _Run, watermark: Watermark, kind: pa.DataType) -> MaterializeReport:
        table = run.table
        paths = self._paths(table)
        found = dict(zip(paths, self._run_all(self._manifest(run), paths), strict=True))
        before = {path: manifest for path, manifest in found.items() if manifest is not None}
        window = window_of(before, watermark, kind, complete=len(before) == len(found))
        source = self._read(table, run.origin)
        with (
            staging(self._store, table.folder, run.run_id) as stage,
            on_this_machine(self._store, window.held) as held,
        ):
            rows = new_rows(source, held, watermark, kind, window.start)
            static = static_numbering(table.spec)
            # Other keys need two looks at the rows, which must be the same ones.
            rows = rows if static is not None else rows.persist()
            try:
                numbering = static or self._find(table, run.origin, rows, timeout_ms=None)
                files, steps = self._write(run, rows, numbering, stage)
            finally:
                if static is None:
                    rows.unpersist()
            reached = _highest(watermark, kind, files, window.reached)
            position = position_text(run.run_id, watermark, reached)
            wanted: dict[str, Sequence[DataFile]] = {**dict.fromkeys(before, ()), **_by_path(numbering, files)}
            # All manifests are there before the first position moves on: what has none yet counts as not read.
            new = [path for path in wanted if path not in before]
            for _ in self._run_all(lambda path: self._storage(run, path).create(), new):
                pass

            def append(path: str) -> None:
                after = before[path].source_position if path in before else None
                self._storage(run, path).append_files(
                    wanted[path], token=run.token, source_position=position, after=after
                )

            self._commit(append, wanted, steps)
        return _report(run, numbering, files)

    def _run(
        self,
        table: TableSpec,
        source: Source | None,
        sort_by: Sequence[str],
        compression: str,
        progress: Progress | None,
        token: str | None,
    ) -> _Run:
        self._check_keys(table)
        run_id = self._runtime.new_id()
        return _Run(
            table=table,
            origin=origin_of(table, source),
            run_id=run_id,
            token=token or run_id,
            sort_by=sort_by,
            compression=compression,
            progress=progress or tell_nobody,
        )

    def _check_keys(self, table: TableSpec) -> None:
        """A table that has a map keeps the keys of it: the partitions of other keys would mix with these."""
        kept = ObjectState(self._store, partition_map_key(table.name), PartitionMapDocument, runtime=self._runtime)
        try:
            found = kept.read().document
        except ObjectMissing:
            return
        if found.incarnation == table.incarnation:
            check_same_keys(table.name, found.map.spec, table.spec)

    def _read(self, table: TableSpec, origin: Source) -> DataFrame:
        """The table's columns of the source, checked."""
        rows = read_source(self._spark, origin, f"table '{table.name}'")
        check_columns(table, origin, rows)
        return rows.select(*("`" + name.replace("`", "``") + "`" for name in table.schema.names))

    def _find(
        self,
        table: TableSpec,
        origin: Source,
        rows: DataFrame,
        timeout_ms: float | None,
        progress: Progress = tell_nobody,
    ) -> Numbering:
        what = f"discovering the partitions of table '{table.name}'"
        try:
            with self._jobs.group(what, progress=progress, timeout_ms=timeout_ms):
                return find_numbering(table.spec, rows, self._max_partitions)
        except BallistaError:
            raise
        except Exception as error:
            raise failure_of(table, origin, error) from error

    def _write(
        self, run: _Run, rows: DataFrame, numbering: Numbering, stage: Staging
    ) -> tuple[dict[int, list[DataFile]], Steps]:
        """The published files of every partition that has rows, or none of them."""
        steps = Steps(run.progress, tasks_of(len(numbering), rows), len(numbering))
        what = f"writing table '{run.table.name}'"
        try:
            with self._jobs.group(what, progress=steps.tasks_done, last_tasks=steps.last_tasks):
                paths = write_partitions(
                    rows, numbering, stage.folder, run.sort_by, run.compression, self._max_file_bytes
                )
            files = dict(zip(paths, self._run_all(stage.publish, paths.values()), strict=True))
            stage.settle()
            check_nulls(run.table, run.origin, files)
        except BaseException as error:
            stage.discard()
            if isinstance(error, BallistaError) or not isinstance(error, Exception):
                raise
            raise failure_of(run.table, run.origin, error) from error
        return files, steps

    def _commit(self, change: Callable[[str], None], paths: Iterable[str], steps: Steps) -> None:
        for done, _ in enumerate(self._run_all(change, paths), start=1):
            steps.committed(min(done, steps.manifests))

    def _paths(self, table: TableSpec) -> Sequence[str]:
        """The partitions that have a manifest, and those that static keys want."""
        static = table.spec.static_values() or ()
        return sorted(partition_paths(self._store, table.folder) | {table.spec.path(value) for value in static})

    def _manifest(self, run: _Run) -> Callable[[str], ManifestDocument | None]:
        def read(path: str) -> ManifestDocument | None:
            try:
                return self._storage(run, path).read().document
            except ObjectMissing:
                return None

        return read

    def _storage(self, run: _Run, path: str) -> PartitionStorage:
        return PartitionStorage(
            self._store, run.table.folder, path, runtime=self._runtime, committed_by=run.run_id
        )


def _by_path(numbering: Numbering, files: Mapping[int, Sequence[DataFile]]) -> dict[str, Sequence[DataFile]]:
    return {numbering.spec.path(value): files.get(number, ()) for number, value in enumerate(numbering.values)}


def _highest(
    watermark: Watermark, kind: pa.DataType, files: Mapping[int, Sequence[DataFile]], before: int | None
) -> int | None:
    found = (watermark.reached(kind, file) for several in files.values() for file in several)
    return max((number for number in (before, *found) if number is not None), default=None)


def _report(run: _Run, numbering: Numbering, files: Mapping[int, Sequence[DataFile]]) -> MaterializeReport:
    return MaterializeReport(
        table=run.table.name,
        run_id=run.run_id,
        partitions={value: _written(files.get(number, ())) for number, value in enumerate(numbering.values)},
    )


def _written(files: Sequence[DataFile]) -> WrittenPartition:
    return WrittenPartition(
        rows=sum(file.rows for file in files), bytes=sum(file.bytes for file in files), files=len(files)
    )
