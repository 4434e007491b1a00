"""One attempt at a job: its statement is run, its rows become chunks, and one commit makes them the result.

What this promises: an attempt that is not the one of the document any more commits nothing, whatever it did and however
late it wakes up. A statement that meets nodes that come and go is begun anew here, `MAX_RUNS` times: its rows go to
new files, and what it changes goes under the id of the job, so that it is done once. What cannot be committed because
the store is in trouble is tried again until it is, or until somebody else runs the job.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.coordinator.jobs.chunks import ChunkWriter
from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.errors import (
    BallistaError,
    DocumentError,
    DocumentUnreadable,
    InvariantViolated,
    JobCancelled,
    JobError,
    JobSuperseded,
    ObjectMissing,
    OwnershipError,
    PartitionsUnassigned,
    SchemaVersionUnsupported,
    StoreError,
    TimeLimit,
    TransportError,
    Unauthenticated,
    WriteIncomplete,
    to_wire,
)
from ballista_py.logs import log_event
from ballista_py.principal import Principal
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import JobDocument, JobOwner, failed, given_back, progressed, succeeded
from ballista_py.work import Work, pause, require_wanted, working

MAX_RUNS = 4
RUN_AGAIN_MS = 1_000.0
PROGRESS_MS = 5_000.0
COMMIT_AGAIN_MS = 1_000.0
LONGEST_COMMIT_AGAIN_MS = 15_000.0
_PASSES_BY = (OwnershipError, PartitionsUnassigned, TransportError, WriteIncomplete, StoreError)
_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class JobRows:
    """The answer to the statement of a job, under way. `cancel` ends what is behind it, from any thread."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    cancel: Callable[[], None] = lambda: None


class JobStatements(Protocol):
    """What runs the statements of jobs."""

    def run(self, job: JobDocument, token: str) -> JobRows:
        """Start the statement; one that changes something is carried out, once for the `token`.

        Called in the thread of the attempt, as work for the job's client. Raises what is wrong with it.
        """
        ...


@define(eq=False)
class JobAttempt:
    """An attempt of `owner`, to be run once, on a thread of its own. `stop` may come from any thread."""

    shelf: JobShelf
    runtime: Runtime
    statements: JobStatements
    limits: JobLimits
    job: JobDocument
    owner: JobOwner
    over: Callable[[JobAttempt], None]
    work: Work = field(init=False)
    _begun_ms: float = field(init=False)
    _leaving: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        client = self.job.client
        self.work = Work(self.runtime, client=Principal(client, self.job.groups) if self.job.groups else client)
        self._begun_ms = self.runtime.monotonic_ms()

    def run(self) -> None:
        """Do the job to its end; raises nothing."""
        try:
            self._end(*self._done())
        except JobSuperseded as error:
            log_event(_log, "job_superseded", job=self.job.job_id, attempt=self.owner.attempt, reason=error)
        except BallistaError as error:  # a document that nobody can read: looked at again by whoever ticks
            log_event(_log, "job_not_ended", logging.ERROR, job=self.job.job_id, code=error.code, reason=error)
        finally:
            self.work.over()
            self.over(self)

    def end_if_late(self) -> None:
        """End what is under way once its time is over. To be asked now and then, from any thread."""
        limit_ms = self.limits.timeout_ms
        if limit_ms is not None and self.runtime.monotonic_ms() - self._begun_ms >= limit_ms:
            took = f"the job was ended after {limit_ms / 1e3:g} s"
            self.work.end(TimeLimit(f"{took}: ask for less, or raise job_timeout_ms of the schedulers"))

    def end_if_unknown(self, knows: Callable[[str], bool]) -> None:
        """End what is under way if its client may ask for nothing any more. To be asked now and then."""
        if self.job.client and not knows(self.job.client):
            self.work.end(
                Unauthenticated(
                    "the client of the job is none of the cluster any more: its tokens were taken away"
                )
            )

    def stop(self, *, leaving: bool = False) -> None:
        """End what is under way: somebody else runs the job, or nobody wants it; or its scheduler is `leaving`."""
        self._leaving = self._leaving or leaving
        self.work.end(JobCancelled(f"job '{self.job.job_id}' is run here no more"))

    def _done(self) -> tuple[Callable[[JobDocument], JobDocument], ChunkWriter | None]:
        """Run the statement; what is to be committed of it."""
        runs = 0
        while True:
            runs += 1
            try:
                with working(self.work):
                    written = self._written()
                return self._result(written), written
            except JobSuperseded:
                raise
            except BaseException as error:
                again = isinstance(error, _PASSES_BY) and runs < MAX_RUNS and self.work.reason is None
                if not again:
                    return self._failure(error), None
                log_event(_log, "job_run_again", logging.WARNING, job=self.job.job_id, reason=error)
            with suppress(BallistaError), working(self.work):
                pause(self.runtime, RUN_AGAIN_MS * runs)

    def _written(self) -> ChunkWriter:
        """The result as chunks, all of which lie there."""
        require_wanted()  # it may have been cancelled before it was begun
        rows = self.statements.run(self.job, self.job.token)
        forget = self.work.add_stop(rows.cancel)
        try:
            writer = ChunkWriter(
                self.shelf.store,
                self.runtime,
                self.job.name,
                self.owner.attempt,
                self.runtime.new_id(),
                rows.schema,
                self.limits.max_result_bytes,
                self.limits.chunk_bytes,
            )
            told_ms = self.runtime.monotonic_ms()
            for batch in rows.batches:
                require_wanted()
                writer.add(batch)
                if self.runtime.monotonic_ms() - told_ms >= PROGRESS_MS:
                    self._tell(writer)
                    told_ms = self.runtime.monotonic_ms()
            writer.flush()
            return writer
        except BaseException:
            rows.cancel()
            raise
        finally:
            forget()

    def _tell(self, writer: ChunkWriter) -> None:
        """Say how far it is. Raises `JobSuperseded`; a store in trouble is no reason to stop."""
        with suppress(StoreError, DocumentError):
            self._commit(lambda job: progressed(job, self.owner, writer.rows, writer.size_bytes))

    def _result(self, written: ChunkWriter) -> Callable[[JobDocument], JobDocument]:
        schema = base64.b64encode(written.schema.serialize().to_pybytes()).decode()
        chunks, now_ms = tuple(written.done), self.runtime.wall_ms()
        return lambda job: succeeded(
            job, self.owner, files=written.files, chunks=chunks, schema=schema, now_ms=now_ms
        )

    def _failure(self, error: BaseException) -> Callable[[JobDocument], JobDocument]:
        if self._leaving:
            return lambda job: given_back(job, self.owner)
        wire = to_wire(self.work.reason or error)
        if isinstance(error, Exception) and not isinstance(error, BallistaError):
            _log.error("job_crashed", exc_info=error, extra={"ballista_fields": {"job": self.job.job_id}})
        now_ms = self.runtime.wall_ms()
        return lambda job: failed(job, self.owner, wire["code"], wire["message"], now_ms)

    def _end(self, change: Callable[[JobDocument], JobDocument], written: ChunkWriter | None) -> None:
        """Commit the end, however long the store is in trouble, and take the marker away."""
        wait_ms = COMMIT_AGAIN_MS
        while True:
            try:
                ended = self._commit(change)
                break
            except (JobError, ObjectMissing) as error:
                raise JobSuperseded(error.message) from error
            except (DocumentUnreadable, SchemaVersionUnsupported):
                raise
            except InvariantViolated as error:  # a document that would be too large, or not readable
                if written is None:
                    raise
                change, written = self._failure(error), None
            except (StoreError, DocumentError) as error:
                if self._leaving:
                    raise
                log_event(_log, "job_end_waits", logging.WARNING, job=self.job.job_id, reason=error)
                self.runtime.sleep_ms(wait_ms)
                wait_ms = min(2 * wait_ms, LONGEST_COMMIT_AGAIN_MS)
        if not ended.is_open:
            with suppress(StoreError):  # whoever meets it takes it away
                self.shelf.unmark(ended.marker)

    def _commit(self, change: Callable[[JobDocument], JobDocument]) -> JobDocument:
        return self.shelf.state(self.job.name).update(change).document
