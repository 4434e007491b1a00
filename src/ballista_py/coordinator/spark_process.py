"""The Spark on which a scheduler runs statements: started with the first one, and anew when it has ended or hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ballista_py.errors import TryLater
from ballista_py.logs import log_event
from ballista_py.runtime import Runtime
from ballista_py.spark.elsewhere import NO_SETTINGS, SparkSettings
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.spawn import Spawn
from ballista_py.work import require_wanted

if TYPE_CHECKING:
    from ballista_py.spark.answers import AnswerFolder
    from ballista_py.spark.statement_jobs import StatementJobs
    from ballista_py.spark.statements import SparkStatements

_log = logging.getLogger(__name__)
STUCK_MS = 30_000.0
MEMORY_BYTES = 2 << 30
LOOK_MS = 200.0


@define(eq=False)
class _Start:
    """One start of Spark: under way, or done with one of the two."""

    spark: SparkStatements | None = None
    error: BaseException | None = None


@define
class SparkProcess:
    """One Spark at most, whose large answers are kept in `answers`. Safe to share between threads.

    Spark begins a stage though its statement was cancelled just before, so `tick` cancels again what goes on. A task
    looks up from its rows only now and then: one that joins everything with everything may never hear that it was
    cancelled, and keeps its core from all others. So `tick` ends a Spark in which a cancelled statement is still at
    work after `stuck_ms`; what else ran there raises `TryLater`, and the next `get` starts another. `settings` say
    which Spark it is (one elsewhere keeps large answers at the store), and `memory_bytes` is the heap of a JVM that is
    started here.

    A start takes many seconds and cannot be interrupted: it is made on a thread of `spawn`, and whoever waits for it
    no longer goes. The next one finds it done.
    """

    store: ConditionalStore
    runtime: Runtime
    stuck_ms: float = STUCK_MS
    answers: AnswerFolder | None = None
    memory_bytes: int = MEMORY_BYTES
    settings: SparkSettings = NO_SETTINGS
    spawn: Spawn = lambda call: call()
    _lock: Any = field(init=False)
    _spark: SparkStatements | None = field(init=False, default=None)
    _start: _Start | None = field(init=False, default=None)
    _stop: Callable[[], None] = field(init=False, default=lambda: None)
    _kill: Callable[[], None] = field(init=False, default=lambda: None)
    _cancelled: list[tuple[StatementJobs, float]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.condition()

    def get(self, wanted: Callable[[], None] = require_wanted) -> SparkStatements:
        """Spark, started now if it was not.

        While it starts `wanted` is called again and again, and may raise. Raises `MissingExtra` or `ConfigError` where
        it cannot start.
        """
        with self._lock:
            if self._spark is not None and self._spark.ended:
                self._kill()
                self._let_go()
            if self._spark is not None:
                return self._spark
            begins = self._start is None
            start = self._start = self._start or _Start()
        if begins:
            self.spawn(partial(self._started, start))
        with self._lock:
            while start.spark is None and start.error is None:
                wanted()
                self._lock.wait(LOOK_MS)
            if start.error is not None:
                raise start.error
            assert start.spark is not None
            return start.spark

    def _started(self, start: _Start) -> None:
        """Start Spark for all who wait for it; end it at once if nobody may have it any more."""
        try:
            from ballista_py.spark.opening import open_spark
            from ballista_py.spark.statements import SparkStatements

            memory = f"{max(1, self.memory_bytes >> 20)}m"
            tasks = self.settings.needed_tasks()
            opened = open_spark(self.settings, self.runtime, memory=memory)
            try:
                made = SparkStatements(opened.session, self.store, self.runtime, self.answers, tasks)
            except BaseException:
                opened.stop()
                raise
        except BaseException as error:
            with self._lock:
                start.error = error
                self._start = None if self._start is start else self._start
                self._lock.notify_all()
            return
        with self._lock:
            if self._start is start:
                self._start, self._spark, start.spark = None, made, made
                self._stop, self._kill = opened.stop, opened.kill
                self._lock.notify_all()
                return
        with suppress(Exception):
            made.close()
            opened.stop()

    def was_cancelled(self, jobs: StatementJobs) -> None:
        """See to it that the work of `jobs` ends."""
        with self._lock:
            self._cancelled.append((jobs, self.runtime.monotonic_ms()))

    def tick(self) -> None:
        """Look whether what was cancelled has ended: cancel again what has not, and end Spark if that does not help."""
        with self._lock:
            if self._spark is None or self._spark.ended:
                self._cancelled.clear()
            known = list(self._cancelled)
        # Spark answers when it likes, and nobody who asks for it is to wait for that.
        done = [jobs for jobs, _since_ms in known if not jobs.go_on_cancelled()]
        with self._lock:
            self._cancelled = [(jobs, since_ms) for jobs, since_ms in self._cancelled if jobs not in done]
            oldest_ms = min((since_ms for _jobs, since_ms in self._cancelled), default=None)
            if oldest_ms is not None and self.runtime.monotonic_ms() - oldest_ms > self.stuck_ms:
                log_event(_log, "spark_ended", logging.WARNING, reason="a cancelled statement went on in it")
                self._kill()
                self._let_go()

    def close(self) -> None:
        """End Spark, if it was started; what still runs there fails."""
        with self._lock:
            start, self._start = self._start, None
            if start is not None:
                start.error = TryLater("the scheduler ends: ask another one")
            self._lock.notify_all()
            self._let_go()

    def _let_go(self) -> None:
        spark, self._spark = self._spark, None
        self._cancelled.clear()
        if spark is not None:
            spark.close()
            with suppress(Exception):  # py4j raises what it likes of a JVM that is going down
                self._stop()
