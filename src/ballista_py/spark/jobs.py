"""Watches what Spark does for one caller: progress out of its status tracker, a deadline, and an end in any case.

Promises that no job outlives the block that asked for it. Spark's own calls block, so looking on needs a thread:
it is started by the `spawn` that the caller hands in; without one, progress is told at the ends only and a
deadline cannot be kept, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from attrs import define

from ballista_py.errors import ConfigError, TryLater
from ballista_py.runtime import Runtime
from ballista_py.spark.work import SparkWork, work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress: TypeAlias = Callable[[int, int], None]
Spawn: TypeAlias = Callable[[Callable[[], None]], object]

POLL_MS = 200.0


def tell_nobody(_done: int, _total: int) -> None:
    """The progress callback of callers who do not care."""


@define
class RunSteps:
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


class JobWatch:
    """Runs blocks of Spark work as one job group each."""

    def __init__(self, spark: SparkSession, runtime: Runtime, spawn: Spawn | None) -> None:
        self._spark = spark
        self._runtime = runtime
        self._spawn = spawn

    @contextmanager
    def group(
        self, what: str, *, progress: Progress = tell_nobody, last_tasks: int = 0, timeout_ms: float | None = None
    ) -> Iterator[None]:
        """Spark work inside the block is one group, called `what`; it is cancelled when the block is left early.

        `progress(done, total)` counts tasks; `last_tasks` is how many the last stage will have, so that the total
        is known before that stage starts. Raises `TryLater` when `timeout_ms` passed (the work is cancelled) and
        `ConfigError` for a timeout without `spawn`.
        """
        if timeout_ms is not None and self._spawn is None:
            raise ConfigError(f"{what}: a timeout needs a thread that looks on; give SparkPipeline a 'spawn'")
        work = work_on(self._spark, f"ballista-{self._runtime.new_id()}")
        look = _Look(work, self._runtime, progress, last_tasks, timeout_ms)
        work.begin(what)
        if self._spawn is not None:
            self._spawn(look.run)
        try:
            yield
        except BaseException as error:
            work.cancel()
            if look.timed_out and isinstance(error, Exception):
                raise TryLater(
                    f"{what} took longer than {(timeout_ms or 0) / 1e3:g} s and was cancelled: give it more time "
                    "(partition_discovery_timeout) or Spark more cores"
                ) from error
            raise
        finally:
            look.end()
            work.end()


class _Look:
    """What the thread does that looks on."""

    def __init__(
        self,
        work: SparkWork,
        runtime: Runtime,
        progress: Progress,
        last_tasks: int,
        timeout_ms: float | None,
    ) -> None:
        self.timed_out = False
        self._work = work
        self._runtime = runtime
        self._progress = progress
        self._last_tasks = last_tasks
        self._deadline_ms = None if timeout_ms is None else runtime.monotonic_ms() + timeout_ms
        self._changed = runtime.condition()
        self._ended = False
        self._shown = (-1, 0)

    def run(self) -> None:
        try:
            while not self._wait():
                if self._deadline_ms is not None and self._runtime.monotonic_ms() >= self._deadline_ms:
                    # Again and again: Spark forgets a cancelling that comes before its job does.
                    self.timed_out = True
                    self._work.cancel()
                    continue
                self._tell(*self._work.tasks(self._last_tasks))
        except self._work.lost:  # Spark is gone: the block itself fails and says why
            return

    def end(self) -> None:
        """After this nobody is told anything."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _tell(self, done: int, total: int) -> None:
        now = (max(done, self._shown[0]), max(total, self._shown[1]))
        with self._changed:
            if now != self._shown and not self._ended:
                self._shown = now
                self._progress(*now)

    def _wait(self) -> bool:
        with self._changed:
            if not self._ended:
                self._changed.wait(POLL_MS)
            return self._ended
