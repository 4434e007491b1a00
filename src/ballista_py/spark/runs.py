"""One run of the pipeline: written to files that nobody sees, then published whole, or taken away again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from attrs import evolve, frozen

from ballista_py.errors import BallistaError, ObjectMissing, OutcomeUnknown
from ballista_py.partitions.table import TableSpec, check_same_keys
from ballista_py.partitions.values import require_short_value
from ballista_py.runtime import Runtime
from ballista_py.spark.checks import check_nulls, failure_of, origin_of
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.jobs import JobWatch, Progress, RunSteps, tell_nobody
from ballista_py.spark.layout import COMPRESSION, Numbering, tasks_of, write_partitions
from ballista_py.spark.report import MaterializeReport, WrittenPartition
from ballista_py.spark.sources import Source
from ballista_py.spark.staging import Staging, staging
from ballista_py.spark.store_files import put_partitions
from ballista_py.state.documents.claims import Spawn
from ballista_py.state.documents.documents import PartitionMapDocument, partition_map_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.publication import Begun, Publication, RunAll

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Announce: TypeAlias = Callable[[MaterializeReport], None]


@frozen(kw_only=True)
class Run:
    """One run: what it is about, and how it was asked for."""

    table: TableSpec
    origin: Source
    run_id: str
    token: str
    sort_by: Sequence[str]
    compression: str
    progress: Progress
    announce: Announce

    def report(self, numbering: Numbering, files: Iterable[Sequence[DataFile]]) -> MaterializeReport:
        """What was written: `files` of each partition, in the order of the numbering."""
        found = zip(numbering.values, map(WrittenPartition.of, files), strict=True)
        return MaterializeReport(table=self.table.name, run_id=self.run_id, partitions=dict(found))


class Runs:
    """Begins runs on `store`, writes their rows by Spark `jobs`, and publishes them."""

    def __init__(
        self,
        store: ConditionalStore,
        jobs: JobWatch,
        runtime: Runtime,
        run_all: RunAll,
        max_file_bytes: int,
        tasks: TaskStore | None = None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._jobs = jobs
        self._runtime = runtime
        self._run_all = run_all
        self._max_file_bytes = max_file_bytes

    def new(
        self,
        table: TableSpec,
        source: Source | None,
        sort_by: Sequence[str] = (),
        compression: str = COMPRESSION,
        progress: Progress | None = None,
        token: str | None = None,
        announce: Announce | None = None,
    ) -> Run:
        """A run that may be begun. Raises `UnsupportedExpression` when the table has a map of other keys."""
        self._check_keys(table)
        run_id = self._runtime.new_id()
        return Run(
            table=table,
            origin=origin_of(table, source),
            run_id=run_id,
            token=token or run_id,
            sort_by=sort_by,
            compression=compression,
            progress=progress or tell_nobody,
            announce=announce or _nobody,
        )

    def begin(self, run: Run) -> Begun:
        """What is there before the run reads anything. To be called before that."""
        static = run.table.spec.static_values() or ()
        return self._of(run).begin((run.table.spec.path(value) for value in static), token=run.token)

    def write(
        self, run: Run, begun: Begun, rows: DataFrame, numbering: Numbering, stage: Staging
    ) -> tuple[dict[str, Sequence[DataFile]], RunSteps]:
        """Write the rows to files that nobody sees yet: those of every partition, by path, in order. Or to none.

        Raises `SchemaMismatch`, before it writes anything, for a value that is too large to name a new partition.
        """
        known, keys = set(begun.paths), [key.expression for key in numbering.spec.keys]
        for value in () if numbering.keys is None else numbering.values:
            if numbering.spec.path(value) not in known:
                require_short_value(run.table.name, keys, value)
        steps = RunSteps(run.progress, tasks_of(len(numbering), rows), len(numbering))
        what = f"writing table '{run.table.name}'"
        try:
            with self._jobs.group(what, progress=steps.tasks_done, last_tasks=steps.last_tasks):
                files = self._written(run, rows, numbering, stage)
            stage.settle()
            check_nulls(run.table, run.origin, files)
        except BaseException as error:
            stage.discard()
            if isinstance(error, BallistaError) or not isinstance(error, Exception):
                raise
            raise failure_of(run.table, run.origin, error) from error
        paths_in_order = map(numbering.spec.path, numbering.values)
        return {path: files.get(number, ()) for number, path in enumerate(paths_in_order)}, steps

    def stage(self, run: Run, spawn: Spawn | None) -> AbstractContextManager[Staging]:
        """The place of the files of a run, as `staging` gives it."""
        put = self._tasks is not None
        return staging(self._store, run.table.folder, run.run_id, self._runtime, spawn, put=put)

    def _written(
        self, run: Run, rows: DataFrame, numbering: Numbering, stage: Staging
    ) -> dict[int, list[DataFile]]:
        if self._tasks is not None:
            put = put_partitions(
                rows, numbering, self._tasks, stage.claim.key, stage.prefix, run.sort_by, run.compression,
                self._max_file_bytes,
            )  # fmt: skip
            return {number: stage.took(files) for number, files in put.items()}
        paths = write_partitions(rows, numbering, stage.folder, run.sort_by, run.compression, self._max_file_bytes)
        return dict(zip(paths, self._run_all(stage.publish, paths.values()), strict=True))

    def publish(
        self,
        run: Run,
        begun: Begun,
        wanted: Mapping[str, Sequence[DataFile]],
        stage: Staging,
        steps: RunSteps,
        position: str,
        report: MaterializeReport,
        *,
        replaces: bool = True,
    ) -> MaterializeReport:
        """Announce the run, then make the files all that is there (or come to it, without `replaces`) at one instant.

        Gives the report, as one that is repeated if an earlier run under the token counts. The files are removed when
        it fails, or was published already, except after `OutcomeUnknown`.
        """
        try:
            run.announce(report)
            decision = self._of(run).publish(
                begun,
                wanted,
                attempt=run.run_id,
                token=run.token,
                position=position,
                replaces=replaces,
                done=lambda count: steps.committed(min(count, steps.manifests)),
                confirm=stage.confirm,
            )
        except OutcomeUnknown:
            raise
        except BallistaError:
            stage.discard()
            raise
        if decision.attempt != run.run_id:  # the same run, sent twice at once
            stage.discard()
            report = evolve(report, repeated=True)
        steps.committed(steps.manifests)
        return report

    def _of(self, run: Run) -> Publication:
        return Publication(self._store, run.table.folder, self._runtime, self._run_all)

    def _check_keys(self, table: TableSpec) -> None:
        """A table that has a map keeps the keys of it: the partitions of other keys would mix with these."""
        kept = ObjectState(
            self._store, partition_map_key(table.map_name), PartitionMapDocument, runtime=self._runtime
        )
        try:
            found = kept.read().document
        except ObjectMissing:
            return
        if found.incarnation == table.incarnation:
            check_same_keys(table.name, found.map.spec, table.spec)


def _nobody(_report: MaterializeReport) -> None:
    return None
