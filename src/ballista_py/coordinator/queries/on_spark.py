"""Queries that clients send to Spark: planned here for their partitions, run there over the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.cluster_view import ClusterView, words_of
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.errors import MergeTooLarge, SqlError, TransportError, TryLater, UnsupportedExpression
from ballista_py.runtime import Runtime
from ballista_py.sql.dialects.spark_meaning import known_columns
from ballista_py.sql.own_words import edited_places
from ballista_py.sql.parse.spark_sql import spark_sql
from ballista_py.sql.plan import QueryPlan
from ballista_py.work import carried, require_wanted

if TYPE_CHECKING:
    from ballista_py.spark.answers import Answer
    from ballista_py.spark.statement_jobs import StatementJobs

ENGINES = ("spark", "auto")
MAX_AT_ONCE = 4
MAX_RUNS = 2
LOOK_MS = 200.0


@define
class SparkQueries:
    """Queries for the Spark of `process`. Safe to share between threads.

    At most `MAX_AT_ONCE` queries run at once, each in a session of its own; the others wait for their turn.
    """

    queries: QueryService
    process: SparkProcess
    runtime: Runtime
    max_merge_bytes: int
    _turn: Any = field(init=False)
    _running: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._turn = self.runtime.condition()

    def takes(self, statement: str, engine: object) -> bool:
        """Whether a statement goes to Spark. Raises `SqlError` for an engine that there is not."""
        return self.choice(statement, engine)[0]

    def choice(self, statement: str, engine: object) -> tuple[bool, str]:
        """Whether a statement goes to Spark, and why, in words. Raises `SqlError` for an engine that there is not."""
        if engine is None:
            return False, "nobody asked for another engine"
        if engine not in ENGINES:
            raise SqlError(f"there is no engine '{engine}': take {' or '.join(ENGINES)}, or none")
        if engine == "spark":
            return True, "it was asked for"
        statement = self.queries.inlined.written_out(statement).text
        plan, view = self.queries.planned(statement)
        guess = plan.merge_bytes
        beyond = guess > self.max_merge_bytes
        if beyond and (reason := _refused_by_spark(statement, view)) is not None:
            return False, f"the merge is guessed at {guess:,} bytes, and Spark cannot take it over: {reason}"
        said = "more than" if beyond else "no more than"
        return (
            beyond,
            f"the merge is guessed at {guess:,} bytes, {said} max_merge_bytes ({self.max_merge_bytes:,})",
        )

    def with_both_reasons(self, statement: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a statement for which an engine was to be found; if none can run it, both say why."""
        try:
            yield from batches
        except MergeTooLarge as error:
            statement = self.queries.inlined.written_out(statement).text
            reason = _refused_by_spark(statement, self.queries.views.current(words_of(statement)))
            if reason is None:
                raise
            raise MergeTooLarge(f"{error.message.rstrip('.')}; and Spark cannot run it: {reason}") from None

    def explain(self, statement: str, engine: object, analyze: bool = False) -> dict[str, Any]:
        """As `QueryService.explain`; `engine` is the one that would run the statement, if another was asked for.

        The plan is that of the cluster; of it Spark takes the partitions. Raises `SqlError` for what runs on Spark
        and is to be analysed, too.
        """
        taken, why = self.choice(statement, engine)
        if taken and analyze:
            raise SqlError(
                "what runs on Spark has no legs to analyse: explain it without, or run it in the cluster"
            )
        plan = self.queries.explain(statement, analyze)
        if engine is None:
            return plan
        chosen = "spark" if taken else "cluster"
        return {**plan, "engine": chosen, "text": f"engine: {chosen}, because {why}\n{plan['text']}"}

    def open(self, statement: str) -> SparkQuery:
        """The statement, planned; it runs when its batches are read. The map of each table is that of one planning.

        Raises what planning raises.
        """
        started_ms = self.runtime.monotonic_ms()
        found = self.queries.inlined.written_out(statement)
        with edited_places(statement, found.edits):
            plan, view = self.queries.planned(found.text, fresh=True)
        return SparkQuery(self, found.text, plan, view, started_ms)

    def enter(self, cancelled: Callable[[], bool]) -> None:
        """Wait for a turn. Raises `TransportError` if the query is cancelled before."""
        with self._turn:
            while self._running >= MAX_AT_ONCE and not cancelled():
                self._turn.wait(LOOK_MS)
            if cancelled():
                raise TransportError("The query was cancelled")
            self._running += 1

    def leave(self) -> None:
        """Give the turn to the next."""
        with self._turn:
            self._running -= 1
            self._turn.notify_all()


def _refused_by_spark(statement: str, view: ClusterView) -> str | None:
    """Why the statement cannot be said in Spark's SQL, or None."""
    words = words_of(statement)
    named = [schema for name, schema in view.catalog.schemas.items() if name.lower() in words]
    try:
        spark_sql(statement, known_columns(named))
    except (SqlError, UnsupportedExpression) as error:
        return error.message
    return None


@define(eq=False)
class SparkQuery:
    """One query on its way through Spark. Read `batches` once; `cancel` may come from any thread at any time.

    Where Spark ends amid it, it is run again, `MAX_RUNS` times in all: until then nothing of its answer was given out.
    """

    _of: SparkQueries
    _statement: str
    _plan: QueryPlan
    _view: ClusterView
    _started_ms: float
    _jobs: StatementJobs | None = field(init=False, default=None)
    _cancelled: bool = field(init=False, default=False)
    _answer: Answer | None = field(init=False, default=None)
    _error: BaseException | None = field(init=False, default=None)
    _left: bool = field(init=False, default=False)
    _changed: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._changed = self._of.runtime.condition()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer, as a single node gives them."""
        return self._plan.output

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows.

        Raises `MissingExtra` or `ConfigError` where Spark cannot start, what `SparkStatements.run` and `Answer.batches`
        raise, and `TransportError` after `cancel`. What Spark is asked may come back late, or not at all, however it
        is cancelled: it is asked on a thread of its own, and whoever is to wait no longer goes.
        """
        self._of.enter(lambda: self._cancelled)
        ask = carried(self._ask)
        self._of.process.spawn(lambda: ask(None))
        answer = self._awaited()
        try:
            if self._cancelled:  # before there was an answer
                answer.close()
            yield from answer.batches()
        finally:
            answer.close()

    def _ask(self, _: None) -> None:
        """Run it; what comes of it when nobody waits any more is given up."""
        answer: Answer | None = None
        error: BaseException | None = None
        try:
            answer = self._run()
        except BaseException as raised:
            error = raised
        finally:
            self._of.leave()
        with self._changed:
            self._answer, self._error = answer, error
            self._changed.notify_all()
            left = self._left
        if left and answer is not None:
            answer.close()

    def _awaited(self) -> Answer:
        """The answer, once it is there. Raises as `_run` does, and at once when it is not wanted any more."""
        with self._changed:
            try:
                while self._answer is None and self._error is None:
                    self._require_wanted()
                    self._changed.wait(LOOK_MS)
                if (
                    self._error is not None
                ):  # jobs that were cancelled are an error of Spark's, too: it may come first
                    self._require_wanted()
            except BaseException:
                self._left = True
                self.cancel()  # whoever sees first that nobody waits ends its jobs, and says so
                raise
            if self._error is not None:
                raise self._error
            assert self._answer is not None
            return self._answer

    def cancel(self) -> None:
        """End its jobs, or keep them from beginning, and give up its rows. Harmless after the end."""
        self._cancelled = True
        if self._answer is not None:
            self._answer.close()  # whoever waits in the midst of sending some may wait for long
        if self._jobs is not None:
            self._of.process.spawn(
                self._jobs.cancel
            )  # Spark answers when it likes, and others wait for this thread

    def stats(self) -> dict[str, Any]:
        """What it touched; as `RunningStatement.stats`."""
        needed, maps = self._needed(), self._view.catalog.maps
        return {
            "engine": "spark",
            "partitions": sum(map(len, needed.values())),
            "partitions_total": sum(len(maps[name].ids()) for name in needed),
            "executors": [],
            "legs": 0,
            "shipped_bytes": 0,
            "took_ms": self._of.runtime.monotonic_ms() - self._started_ms,
            "replans": 0,
        }

    def _run(self) -> Answer:
        from ballista_py.spark.statements import TablePart

        catalog = self._view.catalog
        parts = [
            TablePart(table=catalog.tables[name], map=catalog.maps[name], partitions=sorted(partitions))
            for name, partitions in sorted(self._needed().items())
        ]
        for run in range(MAX_RUNS):
            spark = self._of.process.get(self._require_wanted)
            self._jobs = jobs = spark.jobs()
            if self._cancelled:  # before there were jobs
                jobs.cancel()
            try:
                # An answer that was larger than it looked may have been what ended Spark.
                return spark.run(self._statement, parts, self._plan.output, jobs, collect=run == 0)
            except TryLater:
                if self._cancelled or not spark.ended or run == MAX_RUNS - 1:
                    raise
            finally:
                if self._cancelled:
                    self._of.process.was_cancelled(jobs)
        raise AssertionError("the last run gives an answer or raises")

    def _require_wanted(self) -> None:
        """Raise if it was cancelled, or if its time is over."""
        if self._cancelled:
            raise TransportError("The query was cancelled")
        require_wanted()

    def _needed(self) -> dict[str, set[int]]:
        """The partitions that any fragment reads of each table; a table that is named and not read has none."""
        tables: Mapping[str, object] = self._view.catalog.tables
        words = words_of(self._statement)
        needed: dict[str, set[int]] = {name: set() for name in words & set(tables)}
        for fragment in self._plan.fragments:
            for table in fragment.tables:
                needed.setdefault(table.table, set()).update(table.partitions)
        return needed
