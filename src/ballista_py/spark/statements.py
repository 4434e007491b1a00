"""Statements on Spark over the files of partitions: the way out when a merge at a scheduler would be too large.

An answer that is surely small comes back through Spark's driver. Any other one is written by Spark's tasks to files and
read from there, so neither the driver nor this process ever holds more of it than a few batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError, MergeTooLarge, ObjectMissing, SqlError, TryLater
from ballista_py.partitions.columns import plain
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.spark import answer_task
from ballista_py.spark.answer_size import looks_small
from ballista_py.spark.answers import Answer, AnswerFiles, AnswerFolder, Receipt, answer_of
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.on_workers import failure_on_a_worker, sent_ahead
from ballista_py.spark.reasons import is_of_a_lost_server, reason_of
from ballista_py.spark.session import has_ended
from ballista_py.spark.statement_jobs import ServerJobs, StatementJobs
from ballista_py.spark.store_answers import StoreAnswers
from ballista_py.spark.store_files import NO_GUESSES, spark_columns, stored_rows
from ballista_py.spark.text.guard import TextGuard
from ballista_py.spark.text.twin import TwinGuard
from ballista_py.sql.dialects.spark_meaning import known_columns
from ballista_py.sql.parse.spark_sql import spark_sql
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.decisions_check import DecisionsCheck
from ballista_py.storage.held.cache import FileCache, LocalCopy
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import visible_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen(kw_only=True)
class TablePart:
    """The partitions of one table that a statement needs, by the map of its planning."""

    table: TableSpec
    map: PartitionMap
    partitions: Sequence[int]


_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|Job \d+ cancelled|SparkContext was shut down")
_TOO_LARGE = re.compile(r"spark\.driver\.maxResultSize|OutOfMemoryError")
_NOT_KEPT = re.compile(rf"({answer_task.NO_SPACE}|{answer_task.NOT_WRITTEN}): ([^\n]*)")
_MAX_BATCH_BYTES = str(16 << 20)


class SparkStatements:
    """Runs statements on `spark` over files of `store`. Safe to share between threads.

    Large answers are kept in `answers`, which Spark has to reach, as it has to reach the files of tables; they can be
    read on when Spark has ended. With `tasks` its tasks open the store: they read the files of tables there, and put
    large answers there, as much as `answers` may hold. A session of Spark Connect needs that.

    What a statement may consist of is decided by `TextGuard`, for a session of Spark Connect by `TwinGuard`. Either
    raises `ConfigError` for a Spark that it cannot see through.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: ConditionalStore,
        runtime: Runtime | None = None,
        answers: AnswerFolder | None = None,
        tasks: TaskStore | None = None,
    ) -> None:
        self._spark = spark
        self._on_server = getattr(spark, "_jvm", None) is None
        if self._on_server and tasks is None:
            raise ConfigError("statements on a server of Spark Connect need to know how its tasks open the store")
        self._guard: TextGuard | TwinGuard = TwinGuard(spark) if self._on_server else TextGuard(spark)
        self._store = store
        self._runtime = runtime or SystemRuntime()
        self._answers = answers or AnswerFolder(runtime=self._runtime)
        self._tasks = tasks = sent_ahead(spark, tasks)
        self._stored = (
            None if tasks is None else StoreAnswers(store, self._runtime, tasks, self._answers.max_bytes)
        )
        self._lost = False
        self._cache = FileCache(store, runtime=self._runtime)

    @property
    def ended(self) -> bool:
        """Whether the Spark was stopped or killed: no statement runs here any more."""
        if self._on_server:
            return self._lost or bool(self._spark.is_stopped)  # type: ignore[attr-defined]
        return self._lost or has_ended(self._spark)

    def jobs(self) -> StatementJobs:
        """The handle of one statement, by which another thread may cancel it."""
        name = f"ballista-{self._runtime.new_id()}"
        return ServerJobs(name) if self._on_server else StatementJobs(self._spark.sparkContext, name)

    def run(
        self,
        statement: str,
        parts: Iterable[TablePart],
        output: pa.Schema,
        jobs: StatementJobs | None = None,
        *,
        collect: bool = True,
    ) -> Answer:
        """The answer, under the names and types of `output`. Nothing more is to be computed for it.

        All partitions of a table are read as of the moment at which the statement starts. Without `collect` the answer
        is kept on disk however small it looks. Raises `SqlError` for what Spark refuses or fails at, `TryLater` when
        that moment was too long ago once they were found, when Spark ended or somebody else ended the jobs,
        `MergeTooLarge` for an answer that the disk does not hold or a step that Spark's driver does not,
        `ConfigError` for a folder that cannot be written, and `TransportError` once `jobs` are cancelled.
        """
        jobs = jobs or self.jobs()
        acquired: list[LocalCopy] = []
        answer: Answer | None = None
        try:
            session, tables, schemas = self._guard.session(), list[str](), list[pa.Schema]()
            with jobs.running(session):  # to look at files is a job, too
                rows_read = 0
                for part in parts:
                    jobs.check()
                    files = self._files(part)
                    rows_read += sum(file.rows for file in files)
                    if self._tasks is None:
                        copies = [self._copy(part.table, file) for file in files]
                        acquired += copies
                        self._show(session, part.table, [copy.path for copy in copies])
                    else:
                        self._show_stored(session, part.table, files, self._tasks)
                    tables.append(part.table.name)
                    schemas.append(part.table.schema)
                rows = self._guard.rows(session, spark_sql(statement, known_columns(schemas)), tables)
                if len(rows.columns) != len(output):
                    raise SqlError(
                        f"Spark gave {len(rows.columns)} columns where a single node gives {len(output)}"
                    )
                if (
                    collect
                    and not self._on_server
                    and looks_small(rows, rows_read if self._tasks is None else None)
                ):
                    answer = self._collected(rows, output)
                    jobs.check()
                if answer is None:
                    answer = self._kept(rows, output)
        except BaseException as error:
            if answer is not None:  # cancelled in the last moment
                answer.close()
            if isinstance(error, BallistaError) or not isinstance(error, Exception):
                raise
            raise self._named(error) from None  # pyspark and py4j have no common one
        else:
            return answer
        finally:
            self._cache.release(acquired)

    def close(self) -> None:
        """Remove the copies of files that came from a store elsewhere."""
        self._cache.clear()
        if isinstance(self._guard, TwinGuard):
            self._guard.close()

    def _files(self, part: TablePart) -> list[DataFile]:
        folder, found = part.table.folder, list[DataFile]()
        decisions = TableDecisions(self._store, folder, runtime=self._runtime).read()
        for partition in part.partitions:
            storage = PartitionStorage(self._store, folder, part.map.path(partition), runtime=self._runtime)
            manifest = storage.read().document
            if manifest.sequence > decisions.sequence:  # decided since, or the decisions are an older copy
                DecisionsCheck(self._store, self._runtime).require(folder, manifest.sequence)
            found += visible_files(manifest, decisions)
        for file in found:
            if file.rows_format != "parquet":
                raise SqlError(
                    f"table '{part.table.name}' has {file.rows_format} files, which Spark does not read"
                )
        return [file for file in found if file.rows]

    def _copy(self, table: TableSpec, file: DataFile) -> LocalCopy:
        """A file that Spark can read: what was altered since, it would not find in the file as it is."""
        if table.definition or file.format != "parquet":
            return self._cache.acquire(file, table.schema, as_table=True)
        return self._cache.acquire(file)

    def _show_stored(
        self, session: SparkSession, table: TableSpec, files: Sequence[DataFile], tasks: TaskStore
    ) -> None:
        """Make the files, which tasks read at the store, a view of the table's name."""
        for name, value in NO_GUESSES.items():
            session.conf.set(name, value)
        kinds = spark_columns(table.schema)
        none = session.createDataFrame([], kinds)
        rows = stored_rows(session, files, table.schema, kinds, tasks) if files else none
        rows.createOrReplaceTempView(f"`{table.name}`")

    def _show(self, session: SparkSession, table: TableSpec, paths: Sequence[str]) -> None:
        """Make the files a view of the table's name."""
        view = f"`{table.name}`"
        if paths:
            columns = [f"`{name.replace('`', '``')}`" for name in table.schema.names]
            session.read.parquet(*paths).select(*columns).createOrReplaceTempView(view)
        else:
            session.createDataFrame(plain(table.schema).empty_table()).createOrReplaceTempView(view)

    def _collected(self, rows: DataFrame, output: pa.Schema) -> Answer | None:
        """The answer through Spark's driver; None if it is too large for that."""
        try:
            return answer_of(rows.toArrow(), output)
        except Exception as error:
            if isinstance(self._named(error), MergeTooLarge):
                return None
            raise

    def _kept(self, rows: DataFrame, output: pa.Schema) -> Answer:
        """The answer as Spark's tasks have written it down."""
        from pyspark import cloudpickle

        # Spark's Python gets the code itself: to import this package there would take longer than most answers.
        cloudpickle.register_pickle_by_value(answer_task)  # type: ignore[no-untyped-call]
        rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _MAX_BATCH_BYTES)
        columns = rows.toDF(*(f"c{place}" for place in range(len(output))))  # several may have one name
        files = self._answers.new() if self._stored is None else self._stored.new()
        try:
            if isinstance(files, AnswerFiles):
                keep = answer_task.keeper(files.folder, self._answers.max_bytes, files.home)
                told = columns.mapInArrow(keep, answer_task.RECEIPT)
            else:
                told = files.kept(columns)
            receipts = told.collect()
            return files.answer([Receipt(*receipt) for receipt in receipts], output)
        except BaseException:
            files.drop()
            raise

    def _named(self, error: Exception) -> BallistaError:
        """What Spark's error means to whoever sent the statement."""
        from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

        no_answer = type(error) is Py4JError and "Trace:" not in str(error)  # it has no other name for this
        if self.ended or no_answer or isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
            self._lost = True  # its process may still be on its way out
            return TryLater("Spark ended while it ran the statement: send it again")
        if self._on_server and is_of_a_lost_server(error):
            self._lost = True
            return TryLater(
                "the server of Spark Connect ended, or was not reached, amid the statement: send it again"
            )
        if (on_a_worker := failure_on_a_worker(error)) is not None:
            if isinstance(on_a_worker, ObjectMissing):  # by a collector, after a long wait
                return TryLater(f"a file of the statement is gone ({on_a_worker}): send it again")
            return on_a_worker
        text, reason = str(error), reason_of(error)
        if _CANCELLED.search(text):
            return TryLater(f"somebody ended the statement in Spark ({reason}): send it again")
        if (not_kept := _NOT_KEPT.search(text)) is not None:
            kind, why = not_kept.groups()
            if kind == answer_task.NO_SPACE:
                return MergeTooLarge(
                    f"Spark's answer does not fit the disk of the scheduler ({why}): ask for less of it"
                )
            return ConfigError(f"the folder for answers of Spark cannot be written: {why}")
        if _TOO_LARGE.search(text):
            return MergeTooLarge(f"the statement is too large for the Spark of the scheduler: {reason}")
        return SqlError(f"Spark refused the statement: {reason}")
