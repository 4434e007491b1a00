"""The data pipeline: a table's source becomes its partitions on the store.

Promises: rows are written once, to files that nobody sees before the run is published; a run is published whole, at
one instant, or not at all, wherever it fails or is killed; running again replaces, or adds what is missing: no row
comes in twice, and no run overwrites what was changed after it had begun. Leaves to others how that is done
(`storage/publication.py`), which executor holds a partition (planning, state) and how rows are changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError, ObjectMissing, OutcomeUnknown
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
from ballista_py.spark.staging import Staging, staging
from ballista_py.spark.watermark import Watermark, position_text, watermark_in
from ballista_py.state.documents import PartitionMapDocument, partition_map_key
from ballista_py.state.object_state import ObjectState
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.publication import Begun, Publication, RunAll

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RefreshMode: TypeAlias = Literal["full", "append"]
Announce: TypeAlias = Callable[[MaterializeReport], None]

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
    announce: Announce


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
        announce: Announce | None = None,
    ) -> MaterializeReport:
        """Make the rows of the source the whole table: one file and one manifest a partition, empty ones included.

        `source` overrides that of the table and may be a DataFrame; columns that the table does not have are left
        out. `watermark` keeps how far the source was read, for appends to come. `sort_by` names columns that order
        the rows within a partition. `progress(done, total)` counts Spark's tasks, then manifests. A run whose `token`
        (default: a fresh one) was published before changes nothing. `announce` is called with the report once all
        files are there, before any row of them can be seen: to name new partitions.

        Everything becomes visible at one instant to queries of a cluster. A process that is killed before it leaves
        the table as it was; one that is killed after it leaves the rest of the work to whoever comes across it.

        Raises `ConfigError` for a source that cannot be read, `SchemaMismatch` when it lacks the table's columns
        or holds a null that the table forbids, `UnsupportedExpression` when the table has a map of other keys, by
        which rows lie elsewhere, `VersionConflict` when rows were changed since the run began (by a newer run, mostly:
        nothing was changed, run again), and what `discover` and the store raise. The files of a failed run are
        removed, except after `OutcomeUnknown`: then it may have been published.
        """
        run = self._run(table, source, sort_by, compression, progress, token, announce)
        kind = watermark.check(table) if watermark is not None else None
        begun = self._begin(run)
        rows = self._read(table, run.origin)
        numbering = static_numbering(table.spec) or self._find(table, run.origin, rows, self._discovery_timeout_ms)
        if begun.earlier is not None:
            return _report_of(run, numbering, begun)
        with staging(self._store, table.folder, run.run_id) as stage:
            files, steps = self._write(run, rows, numbering, stage)
            position = position_text(run.run_id)
            if watermark is not None and kind is not None:
                position = position_text(run.run_id, watermark, _highest(watermark, kind, files, None))
            # A partition that the source no longer has becomes empty.
            wanted: dict[str, Sequence[DataFile]] = {
                **dict.fromkeys(begun.paths, ()),
                **_by_path(numbering, files),
            }
            self._publish(run, begun, wanted, stage, steps, position, _report(run, numbering, files))
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
        announce: Announce | None = None,
    ) -> MaterializeReport:
        """Bring the table up to its source: anew ("full", as `materialize`) or by the rows it lacks ("append").

        An append needs a `watermark`. It compares what the source and the table show from the last position less
        the overlap on, whole rows and how often each occurs, and adds what the table lacks: so it may be repeated
        at will, after a kill or a lost reply too, and no row comes in twice. It is meant for sources that only grow
        and for tables filled from them alone: it takes nothing away, sees no change of a row below the overlap,
        and brings a row back that a statement deleted above it. Rows without a watermark are compared each time.

        Raises `ConfigError` for another mode and an unusable watermark, and what `materialize` raises.
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
                announce=announce,
            )
        if mode != "append":
            raise ConfigError(
                f"table '{table.name}' cannot be refreshed by '{mode}': take 'full', or 'append' with a watermark"
            )
        if watermark is None:
            raise ConfigError(
                f"table '{table.name}': an append needs a watermark, the column by which new rows are found"
            )
        run = self._run(table, source, sort_by, compression, progress, token, announce)
        return self._append(run, watermark, watermark.check(table))

    def extend(
        self, table: TableSpec, known: Callable[[tuple[Any, ...]], bool], *, source: Source | None = None
    ) -> list[tuple[Any, ...]]:
        """Find the partition values as `discover` does, and give those that are not `known` partitions with their rows.

        Returns the values, without new ones that were gone again before their rows could be read. The partitions
        that are known stay as they are; a new one is complete before this returns, so that it can be named.
        Raises what `discover` and `materialize` raise.
        """
        run = self._run(table, source, (), COMPRESSION, None, None, None)
        rows = self._read(table, run.origin)
        every = static_numbering(table.spec) or self._find(table, run.origin, rows, self._discovery_timeout_ms)
        new = every.only(lambda value: not known(value))
        if table.spec.is_static or not len(new):
            return list(every.values)
        begun = self._begin(run)
        with staging(self._store, table.folder, run.run_id) as stage:
            files, steps = self._write(run, rows, new, stage)
            wanted = {path: found for path, found in _by_path(new, files).items() if found}
            # What an append asks for: without it, it would have to compare the whole table with its source.
            watermark = next(
                (mark for m in begun.manifests.values() if (mark := watermark_in(m.source_position))), None
            )
            reached = None if watermark is None else _highest(watermark, watermark.check(table), files, None)
            position = position_text(run.run_id, watermark, reached)
            if wanted:
                self._publish(run, begun, wanted, stage, steps, position, _report(run, new, files))
        empty = {value for value in new.values if table.spec.path(value) not in wanted}
        return [value for value in every.values if value not in empty]

    def _append(self, run: _Run, watermark: Watermark, kind: pa.DataType) -> MaterializeReport:
        table = run.table
        begun = self._begin(run)
        before = begun.manifests
        window = window_of(before, watermark, kind, complete=len(before) == len(begun.paths))
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
            report = _report(run, numbering, files)
            self._publish(run, begun, wanted, stage, steps, position, report, replaces=False)
        return report

    def _begin(self, run: _Run) -> Begun:
        static = run.table.spec.static_values() or ()
        return self._publication(run).begin((run.table.spec.path(value) for value in static), token=run.token)

    def _publication(self, run: _Run) -> Publication:
        return Publication(self._store, run.table.folder, self._runtime, self._run_all)

    def _publish(
        self,
        run: _Run,
        begun: Begun,
        wanted: Mapping[str, Sequence[DataFile]],
        stage: Staging,
        steps: Steps,
        position: str,
        report: MaterializeReport,
        *,
        replaces: bool = True,
    ) -> None:
        try:
            run.announce(report)
            decision = self._publication(run).publish(
                begun,
                wanted,
                attempt=run.run_id,
                token=run.token,
                position=position,
                replaces=replaces,
                done=lambda count: steps.committed(min(count, steps.manifests)),
            )
        except OutcomeUnknown:
            raise
        except BallistaError:
            stage.discard()
            raise
        if decision.attempt != run.run_id:  # the same run, sent twice at once
            stage.discard()
        steps.committed(steps.manifests)

    def _run(
        self,
        table: TableSpec,
        source: Source | None,
        sort_by: Sequence[str],
        compression: str,
        progress: Progress | None,
        token: str | None,
        announce: Announce | None,
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
            announce=announce or _announce_to_nobody,
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


def _report_of(run: _Run, numbering: Numbering, begun: Begun) -> MaterializeReport:
    """What the partitions hold since the run was published the first time."""
    manifests = {value: begun.manifests.get(numbering.spec.path(value)) for value in numbering.values}
    found = {value: _written(manifest.files if manifest else ()) for value, manifest in manifests.items()}
    return MaterializeReport(table=run.table.name, run_id=run.run_id, partitions=found)


def _announce_to_nobody(_report: MaterializeReport) -> None:
    return None


def _written(files: Sequence[DataFile]) -> WrittenPartition:
    return WrittenPartition(
        rows=sum(file.rows for file in files), bytes=sum(file.bytes for file in files), files=len(files)
    )
