"""The Spark jobs of one statement under one name, so that they can be ended from another thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ballista_py.errors import TransportError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_GROUP = "spark.jobGroup.id"
_INTERRUPT = "spark.job.interruptOnCancel"


class StatementJobs:
    """The jobs that one thread starts inside `running`. Once cancelled, none of them is to go on and none to begin.

    Spark remembers a cancelled group when a job begins and forgets it when the stage of an adaptive plan does: one that
    begins just after `cancel` goes on until `go_on_cancelled` is asked.
    """

    def __init__(self, context: SparkContext, name: str) -> None:
        self._context = context
        self._name = name
        self._cancelled = False
        self._inside = False

    def cancel(self) -> None:
        """End the jobs that run, and those that have not begun yet. From any thread, more than once."""
        self._cancelled = True
        jvm_context = self._context._jsc
        if jvm_context is not None:  # Spark has not been stopped meanwhile
            with suppress(Exception):  # py4j raises what it likes when the JVM is going down
                jvm_context.sc().cancelJobGroupAndFutureJobs(self._name)

    def go_on_cancelled(self) -> bool:
        """Cancel what goes on though it was cancelled: the statement has not come back, or a task is still at work."""
        if not (self._inside or self.are_running()):
            return False
        self.cancel()
        return True

    def are_running(self) -> bool:
        """Whether a task of theirs is still at work; one that was cancelled is until it looks up from its rows."""
        tracker = self._context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._name))
        stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
        return any(stage.numActiveTasks > 0 for stage in stages if stage is not None)

    def check(self) -> None:
        """Raises `TransportError` once the statement was cancelled."""
        if self._cancelled:
            raise TransportError("The query was cancelled")

    @contextmanager
    def running(self, session: SparkSession | None = None) -> Iterator[None]:
        """The jobs that this thread starts inside, in the `session`, are those of the statement.

        Raises `TransportError` instead of what Spark says of a job that was cancelled.
        """
        self._inside = True  # first: whoever cancels sees it, or this sees that it is cancelled
        try:
            self.check()
            self._context.setJobGroup(self._name, "ballista_py", interruptOnCancel=True)
            yield
        except Exception:
            self.check()
            raise
        finally:
            self._inside = False
            with suppress(Exception):  # of a JVM that has gone: its properties went with it
                for name in (_GROUP, _INTERRUPT):
                    self._context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None takes it away
        self.check()


class ServerJobs(StatementJobs):
    """The operations of one statement on a server of Spark Connect, which has a session to itself.

    The server tells nobody which tasks are still at work: what has come back counts as ended.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._cancelled = False
        self._session: SparkSession | None = None

    def cancel(self) -> None:
        """End the operations that run, and those that have not begun yet. From any thread, more than once."""
        self._cancelled = True
        session = self._session
        if session is not None:
            with suppress(Exception):  # it may have ended meanwhile, or the server
                session.interruptTag(self._name)

    def are_running(self) -> bool:
        """Whether the statement has not come back."""
        return self._session is not None

    def go_on_cancelled(self) -> bool:
        """Cancel what goes on though it was cancelled."""
        if not self.are_running():
            return False
        self.cancel()
        return True

    @contextmanager
    def running(self, session: SparkSession | None = None) -> Iterator[None]:
        """As for jobs; the session ends with it."""
        assert session is not None
        self._session = session
        try:
            self.check()
            session.addTag(self._name)
            yield
        except Exception:
            self.check()
            raise
        finally:
            self._session = None
            with suppress(Exception):
                session.stop()
        self.check()
