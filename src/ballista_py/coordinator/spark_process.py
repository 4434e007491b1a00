"""The Spark on which a scheduler runs statements: started with the first one, and anew when it has ended or hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ballista_py.logs import log_event
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore

if TYPE_CHECKING:
    from ballista_py.spark.answers import AnswerFolder
    from ballista_py.spark.statement_jobs import StatementJobs
    from ballista_py.spark.statements import SparkStatements

_log = logging.getLogger(__name__)
STUCK_MS = 30_000.0


@define
class SparkProcess:
    """One Spark at most, whose large answers are kept in `answers`. Safe to share between threads.

    A task of Spark looks up from its rows only now and then: one that joins everything with everything may never
    hear that it was cancelled, and keeps its core from all others; and a statement that is cancelled between two of its
    stages may wait for ever for its answer. So `tick` ends a Spark in which a cancelled
    statement is still at work after `stuck_ms`; what else ran there raises `TryLater`, and the next `get` starts
    another.
    """

    store: ConditionalStore
    runtime: Runtime
    stuck_ms: float = STUCK_MS
    answers: AnswerFolder | None = None
    _lock: Any = field(init=False)
    _spark: SparkStatements | None = field(init=False, default=None)
    _stop: Callable[[], None] = field(init=False, default=lambda: None)
    _kill: Callable[[], None] = field(init=False, default=lambda: None)
    _cancelled: list[tuple[StatementJobs, float]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def get(self) -> SparkStatements:
        """Spark, started now if it was not. Raises `MissingExtra` or `ConfigError` where it cannot start."""
        with self._lock:
            if self._spark is not None and self._spark.ended:
                self._kill()
                self._let_go()
            if self._spark is None:
                from ballista_py.spark.session import embedded_session, kill_session, stop_session
                from ballista_py.spark.statements import SparkStatements

                session = embedded_session()
                try:
                    self._spark = SparkStatements(session, self.store, self.runtime, self.answers)
                except BaseException:
                    stop_session(session)
                    raise
                self._stop = lambda: stop_session(session)
                self._kill = lambda: kill_session(session)
            return self._spark

    def was_cancelled(self, jobs: StatementJobs) -> None:
        """See to it that the work of `jobs` ends."""
        with self._lock:
            self._cancelled.append((jobs, self.runtime.monotonic_ms()))

    def tick(self) -> None:
        """Look whether what was cancelled has ended, and end Spark if it does not."""
        with self._lock:
            if self._spark is None or self._spark.ended:
                self._cancelled.clear()
            self._cancelled = [(jobs, since_ms) for jobs, since_ms in self._cancelled if jobs.hold_on]
            oldest_ms = min((since_ms for _jobs, since_ms in self._cancelled), default=None)
            if oldest_ms is not None and self.runtime.monotonic_ms() - oldest_ms > self.stuck_ms:
                log_event(_log, "spark_ended", logging.WARNING, reason="a cancelled statement went on in it")
                self._kill()
                self._let_go()

    def close(self) -> None:
        """End Spark, if it was started; what still runs there fails."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        spark, self._spark = self._spark, None
        self._cancelled.clear()
        if spark is not None:
            spark.close()
            with suppress(Exception):  # py4j raises what it likes of a JVM that is going down
                self._stop()
