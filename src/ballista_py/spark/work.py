"""One block of work on Spark: how it is marked, cancelled and counted, on a classic session and on Spark Connect.

A classic session marks jobs by a group and is asked for their tasks; a Connect server marks operations by a tag and
tells about tasks while one runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STAGES = 2  # one that splits the rows by partition, one that writes them


class SparkWork(Protocol):
    """What is begun on this thread between `begin` and `end`. `cancel` and `tasks` may be called on another."""

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        """What a call raises when Spark itself is gone."""
        ...

    def begin(self, what: str) -> None: ...
    def cancel(self) -> None: ...
    def end(self) -> None: ...  # neither raises when Spark is gone: the block has failed, and says why

    def tasks(self, last_tasks: int) -> tuple[int, int]:
        """Tasks done, and tasks known: those of every stage that was started, and `last_tasks` of one to come."""
        ...


def work_on(spark: SparkSession, name: str) -> SparkWork:
    """A block called `name`, which must be fresh."""
    connected = type(spark).__module__.startswith("pyspark.sql.connect")
    return _ConnectWork(spark, name) if connected else _ClassicWork(spark, name)


class _ClassicWork:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self._context = spark.sparkContext
        self._name = name

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        return (Py4JError, OSError)

    def begin(self, what: str) -> None:
        self._context.setJobGroup(self._name, what)

    def cancel(self) -> None:
        with suppress(*self.lost):
            self._context.cancelJobGroup(self._name)

    def end(self) -> None:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            with suppress(*self.lost):
                self._context.setLocalProperty(name, None)  # type: ignore[arg-type]

    def tasks(self, last_tasks: int) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        done = total = started = 0
        for job in tracker.getJobIdsForGroup(self._name):
            info = tracker.getJobInfo(job)
            for stage_id in info.stageIds if info else ():
                stage = tracker.getStageInfo(stage_id)
                # A stage whose shuffle is there already is skipped: it never starts.
                if stage and (stage.numActiveTasks or stage.numCompletedTasks):
                    started += 1
                    done += stage.numCompletedTasks
                    total += stage.numTasks
        return done, total + (last_tasks if started < _STAGES else 0)


class _ConnectWork:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._heard: tuple[int, int, int] = (0, 0, 0)

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        from grpc import RpcError
        from pyspark.errors import PySparkException

        return (PySparkException, RpcError)

    def begin(self, what: str) -> None:
        self._spark.addTag(self._name)
        self._spark.registerProgressHandler(self._hear)  # type: ignore[arg-type]  # any callable will do

    def cancel(self) -> None:
        with suppress(*self.lost):
            self._spark.interruptTag(self._name)

    def end(self) -> None:
        self._spark.removeProgressHandler(self._hear)  # type: ignore[arg-type]
        self._spark.removeTag(self._name)

    def tasks(self, last_tasks: int) -> tuple[int, int]:
        done, total, started = self._heard
        return done, total + (last_tasks if started < _STAGES else 0)

    def _hear(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        begun = [stage for stage in stages or () if stage.num_tasks]
        completed = sum(stage.num_completed_tasks for stage in begun)
        self._heard = (completed, sum(stage.num_tasks for stage in begun), len(begun))
