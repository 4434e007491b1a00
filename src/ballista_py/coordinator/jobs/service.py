"""What clients do with jobs: submit, ask, list, cancel, close, read. Each sees its own alone, by their very keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.jobs.chunks import read_chunk
from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.runner import JobsSeen
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.errors import (
    BallistaError,
    InvalidData,
    JobCancelled,
    JobMissing,
    JobRefused,
    ObjectExists,
    ObjectMissing,
    StoreError,
    TryLater,
)
from ballista_py.principal import groups_of
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import (
    JOB_STATES,
    JOBS_PREFIX,
    JobDocument,
    JobObject,
    JobRequest,
    cancelled,
    canonical_job_id,
    closed,
    job_name,
    names_of_client,
    outcome_error,
)
from ballista_py.state.stores.store import ObjectEntry
from ballista_py.work import pause

LOOK_MS = 2_000.0  # a look at the queue that is older is taken anew before a job is admitted
MARK_MS = 60_000.0  # a document that came so long after its marker is marked again
LOOK_AGAIN_MS = 100.0
LONGEST_LOOK_AGAIN_MS = 2_000.0
LOCAL_LOOK_MS = 20.0
LONGEST_WAIT_MS = 10_000.0
MAX_LISTED = 1_000
MAX_TEXT_SHOWN = 300
_KEPT_ROWS = 10_000
_KEPT_BYTES = 16 << 20

RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@define
class JobService:
    """The jobs of clients. Thread-safe. `client` is the name that whoever asks proved to have, or nothing.

    `wake` asks the runner of this scheduler for an early look, `stop_here` to end what it does for a job, and
    `runs_here` whether it does one: as long as it does, nobody need ask the store whether the job has ended.
    """

    shelf: JobShelf
    runtime: Runtime
    limits: JobLimits
    seen: JobsSeen
    run_all: RunAll = map
    wake: Callable[[], object] = field(default=lambda: None)
    stop_here: Callable[[str], object] = field(default=lambda _name: None)
    runs_here: Callable[[str], bool] = field(default=lambda _name: False)
    _rows: Remembered[JobDocument] = field(init=False, factory=lambda: Remembered(_KEPT_ROWS, _KEPT_BYTES))

    def submit(self, request: JobRequest, client: str = "", job_id: str | None = None) -> JobDocument:
        """Queue a job; the same again for the same id. Once this has returned the job is run, whoever dies.

        Raises `InvalidData` for a request that is none, `JobRefused` for an id of another job, `TryLater` when there
        are too many, and what the store raises: then send it again with its id.
        """
        request.check()
        job = JobDocument(
            job_id=canonical_job_id(job_id or self.runtime.new_id()),
            request=request,
            client=str(client),
            groups=groups_of(client),
            submitted_at_ms=self.runtime.wall_ms(),
        )
        try:
            self._require_room(job)
        except TryLater:
            found = None
            with suppress(JobMissing):  # one that is sent again takes no more room
                found = self.shelf.read(job.job_id, client)
            if found is None:
                raise
            return self._same(found, job)
        begun_ms = self.runtime.monotonic_ms()
        marker = self.shelf.mark(job.marker)
        try:
            self.shelf.state(job.name).create(job)
        except ObjectExists:
            found = self._same(self.shelf.read(job.job_id, client), job)
            if not found.is_open:
                self.shelf.unmark(marker)
            return found
        if self.runtime.monotonic_ms() - begun_ms >= MARK_MS:  # the marker may have gone as one without a job
            self.shelf.mark(job.marker)
        self.seen.added(marker)
        self.wake()
        return job

    def _require_room(self, job: JobDocument) -> None:
        if self.seen.age_ms() > LOOK_MS:
            self.seen.saw(self.shelf.open_jobs())
        known = self.seen.open_jobs
        if any(one.name == job.name for one in known):
            return
        self.limits.require_room(known, job.marker.client)

    def _same(self, found: JobDocument, asked: JobDocument) -> JobDocument:
        if found.request != asked.request:
            raise JobRefused(
                f"job '{asked.job_id}' is there already, and it is another one: take a new id", job_id=asked.job_id
            )
        return found

    def get(self, job_id: str, client: str = "", wait_ms: float = 0.0, state: str = "") -> JobDocument:
        """The job as it is now; after at most `wait_ms` (and `LONGEST_WAIT_MS`) while it still is in that `state`.

        Raises `JobMissing`, and what the store raises.
        """
        until_ms = self.runtime.monotonic_ms() + min(wait_ms, LONGEST_WAIT_MS)
        name_id, look_ms = canonical_job_id(job_id), LOOK_AGAIN_MS
        while True:
            found = self.shelf.read(name_id, client)
            left_ms = until_ms - self.runtime.monotonic_ms()
            if left_ms <= 0 or not found.is_open or (state and found.state != state):
                return found
            self._let_pass(found.name, min(look_ms, left_ms), until_ms)
            look_ms = min(2 * look_ms, LONGEST_LOOK_AGAIN_MS)

    def _let_pass(self, name: str, ms: float, until_ms: float) -> None:
        """Wait so long, and on until the job is run here no more."""
        while True:
            pause(self.runtime, min(ms, LOCAL_LOOK_MS) if self.runs_here(name) else ms)
            if not self.runs_here(name) or self.runtime.monotonic_ms() >= until_ms:
                return

    def of_client(self, client: str = "", state: str | None = None) -> list[JobDocument]:
        """The jobs of a client, newest first, at most `MAX_LISTED` of those that changed last.

        Raises `InvalidData` for a state that there is not, and what the store raises.
        """
        if state is not None and state not in JOB_STATES:
            raise InvalidData(f"a job is never {state[:20]!a}: take one of {', '.join(JOB_STATES)}")
        mine = names_of_client(client)
        entries = [entry for entry in self.shelf.listed(f"{JOBS_PREFIX}{mine}") if _is_document(entry, mine)]
        newest = sorted(entries, key=lambda entry: (-entry.modified_ms, entry.key))[:MAX_LISTED]
        found = [job for job in self.run_all(self._listed, newest) if job is not None]
        chosen = [job for job in found if state is None or job.state == state]
        return sorted(chosen, key=lambda job: (-job.submitted_at_ms, job.job_id))

    def _listed(self, entry: ObjectEntry) -> JobDocument | None:
        mark = f"{entry.key} {entry.version} {entry.modified_ms} {entry.size}".encode()
        found = self._rows.get(mark)
        if found is not None:
            return found
        try:
            found = self.shelf.read_named(entry.key.removeprefix(JOBS_PREFIX).removesuffix(".json"))
        except (JobMissing, BallistaError):
            return None
        if not found.is_open:  # an open one may change twice within what the store's clock tells apart
            self._rows.put(mark, found, entry.size)
        return found

    def cancel(self, job_id: str, client: str = "") -> JobDocument:
        """Let a job never be done, or be done no further; one that has ended stays as it is. Raises as `get` does."""
        name_id = canonical_job_id(job_id)
        state = self.shelf.state(job_name(name_id, client))
        try:
            done = state.update(lambda job: cancelled(job, self.runtime.wall_ms())).document
        except ObjectMissing:
            return self.shelf.read(name_id, client)
        with suppress(StoreError):
            self.shelf.unmark(done.marker)
        self.stop_here(done.name)
        return done

    def close(self, job_id: str, client: str = "") -> JobDocument:
        """Give a result up before its time. Raises `JobRefused` for a job that has not ended, and as `get` does."""
        name_id = canonical_job_id(job_id)
        state = self.shelf.state(job_name(name_id, client))
        try:
            return state.update(closed).document
        except ObjectMissing:
            return self.shelf.read(name_id, client)

    def chunk(self, job_id: str, number: int, client: str = "") -> tuple[JobDocument, pa.Table]:
        """The job, and the rows of one chunk of its result.

        Raises the error by which the job ended, `JobRefused` for one that has no result, or no such chunk, and as
        `read_chunk` does.
        """
        job = self.succeeded(job_id, client)
        if not 0 <= number < len(job.chunks):
            raise JobRefused(
                f"job '{job.job_id}' has {len(job.chunks)} chunk(s), counted from 0: there is no {number}",
                chunks=len(job.chunks),
            )
        try:
            return job, read_chunk(self.shelf.store, job, number)
        except ObjectMissing:
            self.succeeded(job_id, client)  # closed amid it: says so
            raise

    def succeeded(self, job_id: str, client: str = "") -> JobDocument:
        """The job, which has a result. Raises as `chunk` does."""
        job = self.get(job_id, client)
        error = outcome_error(job)
        if error is not None:
            raise error
        if job.state != "SUCCEEDED":
            raise JobRefused(
                f"job '{job.job_id}' is {job.state}: it has no result yet, wait for it", state=job.state
            )
        return job


def _is_document(entry: ObjectEntry, mine: str) -> bool:
    found = JobObject.of_key(entry.key)
    return found is not None and found.attempt is None and found.name.rpartition(".")[0] == mine.rstrip(".")


def job_row(job: JobDocument) -> dict[str, Any]:
    """A job as its client is shown it, JSON-ready."""
    text = " ".join(job.request.sql.split())
    return {
        "job_id": job.job_id,
        "name": job.request.name,
        "state": job.state,
        "sql": text if len(text) <= MAX_TEXT_SHOWN else text[: MAX_TEXT_SHOWN - 1] + "…",
        "dialect": job.request.dialect,
        "engine": job.request.engine,
        "priority": job.request.priority,
        "scheduler": job.owner,
        "attempt": job.attempt,
        "chunks": len(job.chunks),
        "rows": job.rows,
        "bytes": job.bytes,
        "outcome": job.outcome,
        "error": _error_of(job),
        "submitted_at_ms": job.submitted_at_ms,
        "started_at_ms": job.started_at_ms,
        "ended_at_ms": job.ended_at_ms,
    }


def _error_of(job: JobDocument) -> dict[str, str] | None:
    """Why it failed, or that it was cancelled, which says whether it may have been done."""
    code = JobCancelled.code if job.state == "CANCELLED" else job.code
    return {"code": code, "message": job.message} if code else None
