"""The data pipeline: a table's source becomes its partitions on the store.

Promises: rows are written once, to files that nobody sees before the run is published; a run is published whole, at
one instant, or not at all, wherever it fails or is killed; running again replaces, or adds what is missing: no row
comes in twice, and no run overwrites what was changed after it had begun. Leaves to others how that is done
(`storage/publication.py`), which executor holds a partition (planning, state) and how rows are changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import ConfigError
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.spark.append import held_rows, new_rows, window_of
from ballista_py.spark.checks import origin_of
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.file_size import MAX_FILE_BYTES
from ballista_py.spark.jobs import JobWatch, Progress, Spawn, tell_nobody
from ballista_py.spark.layout import (
    COMPRESSION,
    MAX_DISCOVERED_PARTITIONS,
    static_numbering,
)
from ballista_py.spark.on_workers import sent_ahead
from ballista_py.spark.report import MaterializeReport
from ballista_py.spark.runs import Announce, Run, Runs
from ballista_py.spark.source_rows import SourceRows
from ballista_py.spark.sources import Source, describe_source
from ballista_py.spark.text.settings import NO_SUBSTITUTION, require_settings
from ballista_py.spark.watermark import Watermark, declared_watermark, position_text, watermark_in
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.publication import RunAll

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RefreshMode: TypeAlias = Literal["full", "append"]

DISCOVERY_TIMEOUT_MS = 60_000.0
MAX_BATCH_BYTES = 16 << 20  # of what a task gets at a time that puts rows itself


class SparkPipeline:
    """Reads sources with `spark` and writes partitions to `store`. Not for several threads.

    `spawn` starts a thread that looks on while Spark works: with it progress comes task by task and discovery ends
    in time; without it progress comes after the tasks and discovery takes as long as it takes. `run_all` works as
    the built-in `map` does, its default; that of an executor makes requests to the store overlap. Files go
    straight to a store that is a folder of this machine, else to a temporary folder first, so Spark's workers must
    share the file system of this process (those of an embedded session do). For a Spark elsewhere `tasks` says how its
    tasks open the store: they put and read data files themselves, and its workers need this package. A partition whose
    file would be larger than `max_file_bytes` gets several.

    The session is told to take text as it is, without `${…}`: a column may have any name. Raises `ConfigError` for one
    that keeps replacing it.
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
        tasks: TaskStore | None = None,
    ) -> None:
        self._spark = spark
        self._tasks = tasks = sent_ahead(spark, tasks)
        self._store = store
        runtime = runtime or SystemRuntime()
        self._runtime, self._spawn = runtime, spawn
        jobs = JobWatch(spark, runtime, spawn)
        self._rows = SourceRows(spark, jobs, max_partitions)
        self._runs = Runs(store, jobs, runtime, run_all, max_file_bytes, tasks)
        self._discovery_timeout_ms = discovery_timeout_ms if spawn is not None else None
        require_settings(spark, NO_SUBSTITUTION)
        # The default, INT96, has no statistics and readers disagree about it.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if tasks is not None:
            spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(MAX_BATCH_BYTES))

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
            rows = self._rows.read(table, origin)
            numbering = self._rows.find(table, origin, rows, self._discovery_timeout_ms, progress or tell_nobody)
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
        out. `watermark` (default: that of the table) keeps how far the source was read, for appends to come. `sort_by`
        names columns that order the rows within a partition. `progress(done, total)` counts Spark's tasks, then
        manifests. A run whose `token` (default: a fresh one) was published before changes nothing. `announce` is
        called with the report once all files are there, before any row of them can be seen: to name new partitions.

        Everything becomes visible at one instant to queries of a cluster. A process that is killed before it leaves
        the table as it was; one that is killed after it leaves the rest of the work to whoever comes across it.

        Raises `ConfigError` for a source that cannot be read, `SchemaMismatch` when it lacks the table's columns
        or holds a null that the table forbids, `UnsupportedExpression` when the table has a map of other keys, by
        which rows lie elsewhere, `VersionConflict` when rows were changed since the run began (by a newer run, mostly:
        nothing was changed, run again), and what `discover` and the store raise. The files of a failed run are
        removed, except after `OutcomeUnknown`: then it may have been published.
        """
        run = self._runs.new(table, source, sort_by, compression, progress, token, announce)
        watermark = watermark or declared_watermark(table)
        kind = watermark.check(table) if watermark is not None else None
        begun = self._runs.begin(run)
        self._rows.check(table, run.origin)
        rows = self._rows.read(table, run.origin)
        numbering = self._rows.find(table, run.origin, rows, self._discovery_timeout_ms)
        if begun.earlier is not None:
            # What the partitions hold since the run was published the first time.
            held = (begun.manifests.get(table.spec.path(value)) for value in numbering.values)
            report = run.report(numbering, (manifest.files if manifest else () for manifest in held))
            return evolve(report, repeated=True)
        with self._runs.stage(run, self._spawn) as stage:
            files, steps = self._runs.write(run, begun, rows, numbering, stage)
            position = position_text(run.run_id)
            if watermark is not None and kind is not None:
                position = position_text(run.run_id, watermark, watermark.highest(kind, files.values()))
            # A partition that the source no longer has becomes empty.
            wanted: dict[str, Sequence[DataFile]] = {**dict.fromkeys(begun.paths, ()), **files}
            report = run.report(numbering, files.values())
            return self._runs.publish(run, begun, wanted, stage, steps, position, report)

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
        run = self._runs.new(table, source, sort_by, compression, progress, token, announce)
        return self._append(run, watermark, watermark.check(table))

    def extend(
        self, table: TableSpec, known: Callable[[tuple[Any, ...]], bool], *, source: Source | None = None
    ) -> list[tuple[Any, ...]]:
        """Find the partition values as `discover` does, and give those that are not `known` partitions with their rows.

        Returns the values, without new ones that were gone again before their rows could be read. The partitions
        that are known stay as they are; a new one is complete before this returns, so that it can be named.
        Raises what `discover` and `materialize` raise.
        """
        run = self._runs.new(table, source)
        rows = self._rows.read(table, run.origin)
        every = self._rows.find(table, run.origin, rows, self._discovery_timeout_ms)
        new = every.only(lambda value: not known(value))
        if table.spec.is_static or not len(new):
            return list(every.values)
        begun = self._runs.begin(run)
        self._rows.check(table, run.origin)
        with self._runs.stage(run, self._spawn) as stage:
            files, steps = self._runs.write(run, begun, rows, new, stage)
            wanted = {path: found for path, found in files.items() if found}
            # What an append asks for: without it, it would have to compare the whole table with its source.
            watermark = next(
                (mark for m in begun.manifests.values() if (mark := watermark_in(m.source_position))), None
            )
            reached = None if watermark is None else watermark.highest(watermark.check(table), files.values())
            position = position_text(run.run_id, watermark, reached)
            if wanted:
                report = run.report(new, files.values())
                self._runs.publish(run, begun, wanted, stage, steps, position, report)
        empty = {value for value in new.values if table.spec.path(value) not in wanted}
        return [value for value in every.values if value not in empty]

    def _append(self, run: Run, watermark: Watermark, kind: pa.DataType) -> MaterializeReport:
        table = run.table
        begun = self._runs.begin(run)
        before = begun.manifests
        window = window_of(before, watermark, kind, complete=len(before) == len(begun.paths))
        self._rows.check(table, run.origin)
        source = self._rows.read(table, run.origin)
        with (
            self._runs.stage(run, self._spawn) as stage,
            held_rows(self._store, window.held, source, table.schema, self._tasks) as held,
        ):
            rows = new_rows(source, held, watermark, kind, window.start)
            # Other than static keys need two looks at the rows, which must be the same ones.
            rows = rows if table.spec.is_static else rows.persist()
            try:
                numbering = self._rows.find(table, run.origin, rows, timeout_ms=None)
                files, steps = self._runs.write(run, begun, rows, numbering, stage)
            finally:
                if not table.spec.is_static:
                    rows.unpersist()
            reached = watermark.highest(kind, files.values(), window.reached)
            position = position_text(run.run_id, watermark, reached)
            wanted: dict[str, Sequence[DataFile]] = {**dict.fromkeys(before, ()), **files}
            report = run.report(numbering, files.values())
            return self._runs.publish(run, begun, wanted, stage, steps, position, report, replaces=False)
