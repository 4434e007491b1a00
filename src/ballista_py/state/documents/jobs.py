"""Jobs: statements that outlive the scheduler that runs them. What a job is, where it lies, and what may become of it.

Pure. A job is one document, `jobs/{name}.json`; while it is open a marker lies under `jobs/open/`; its result is
chunks under `jobs/{name}/{attempt}/`, which are nothing until the document names them. The name is the id of the job,
after a digest of the client whose it is: what belongs to another client has another key, so that nobody can as much as
ask for it. Every change of a job is a function here; one that its state does not allow raises, and changes nothing.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import ClassVar, Literal, get_args

from attrs import evolve, frozen

from ballista_py.errors import (
    BallistaError,
    InvalidData,
    JobAbandoned,
    JobCancelled,
    JobRefused,
    JobSuperseded,
    from_wire,
)

JobState = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "CLOSED"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
OPEN_STATES = frozenset({"PENDING", "RUNNING"})
JOBS_PREFIX = "jobs/"
OPEN_PREFIX = "jobs/open/"
MAX_ATTEMPTS = 3
MAX_GIVEN_BACK = 1_000  # by schedulers that leave as they should
MAX_CHUNKS = 10_000
MAX_REQUEST_CHARS = 1 << 20  # of the statement and its parameters
MAX_NAME_CHARS = 200
MAX_MESSAGE_CHARS = 8_192
MAX_PRIORITY = 9
DEFAULT_PRIORITY = 5
_DIGITS = 16
_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_MARKER = re.compile(r"([0-9])\.((?:([0-9a-f]{16})\.)?[0-9a-f]{32})")
_OBJECT = re.compile(r"((?:[0-9a-f]{16}\.)?[0-9a-f]{32})(?:\.json|/([0-9]{1,9})/(.{1,200}))")


def canonical_job_id(text: str) -> str:
    """The id of a job, a UUID in any of its spellings, as it stands in keys. Raises `InvalidData`.

    >>> canonical_job_id("67E55044-10B1-426F-9247-BB680E5FE0C8")
    '67e5504410b1426f9247bb680e5fe0c8'
    """
    found = text.lower() if isinstance(text, str) and len(text) <= 36 else ""
    if not _ID.fullmatch(found):
        shown = text[:40] if isinstance(text, str) else type(text).__name__
        raise InvalidData(f"job id {shown!a} is no UUID: take one, or leave it out and the cluster makes one")
    return found.replace("-", "")


def job_name(job_id: str, client: str = "") -> str:
    """What keys call a job: its id, after a digest of its client where clients show tokens.

    >>> job_name("67e5504410b1426f9247bb680e5fe0c8", "ada")
    'fdee430d40bd57de.67e5504410b1426f9247bb680e5fe0c8'
    """
    return f"{names_of_client(client)}{job_id}"


def names_of_client(client: str) -> str:
    """How the names of all jobs of a client begin."""
    return f"{sha256(client.encode()).hexdigest()[:_DIGITS]}." if client else ""


def job_key(job_id: str, client: str = "") -> str:
    """Where the document of a job lies."""
    return f"{JOBS_PREFIX}{job_name(job_id, client)}.json"


def key_of_name(name: str) -> str:
    """Where the document of a job lies that keys call by this name."""
    return f"{JOBS_PREFIX}{name}.json"


@frozen(kw_only=True)
class OpenJob:
    """An open job as its marker tells of it: nothing but the listing need be read. `since_ms` is the store's time."""

    name: str
    priority: int
    since_ms: int = 0

    @property
    def client(self) -> str:
        """The digest of the client; nothing where clients show no tokens."""
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Where the marker lies."""
        return f"{OPEN_PREFIX}{self.priority}.{self.name}"

    @classmethod
    def of_key(cls, key: str, since_ms: int) -> OpenJob | None:
        """The open job whose marker lies there; None for what is no marker."""
        found = _MARKER.fullmatch(key.removeprefix(OPEN_PREFIX))
        return None if found is None else cls(name=found[2], priority=int(found[1]), since_ms=since_ms)


@frozen
class JobObject:
    """An object below `jobs/`: the document of the job `name`, or, with an `attempt`, a chunk called `file`."""

    name: str
    attempt: int | None = None
    file: str = ""

    @classmethod
    def of_key(cls, key: str) -> JobObject | None:
        """What lies there; None for markers, and for what is no part of a job."""
        found = _OBJECT.fullmatch(key.removeprefix(JOBS_PREFIX))
        if found is None:
            return None
        return cls(found[1]) if found[2] is None else cls(found[1], int(found[2]), found[3])


@frozen(kw_only=True)
class JobChunk:
    """One file of a result; `digest` is that of its bytes."""

    rows: int
    bytes: int
    digest: str


@frozen(kw_only=True)
class JobRequest:
    """What was submitted. `parameters` are one row as an Arrow stream in base64, or nothing."""

    sql: str
    dialect: str | None = None
    engine: str | None = None
    parameters: str = ""
    name: str = ""
    priority: int = DEFAULT_PRIORITY

    def check(self) -> None:
        """Raises `InvalidData` for one that is larger than a job may be, or has no such priority."""
        if len(self.sql) + len(self.parameters) > MAX_REQUEST_CHARS:
            raise InvalidData(
                f"the statement of a job and its parameters have more than {MAX_REQUEST_CHARS:,} characters: load what "
                "it brings into a table"
            )
        hidden = next((sign for sign in self.name if not sign.isprintable()), None)
        if len(self.name) > MAX_NAME_CHARS or hidden is not None:
            what = "" if hidden is None else f": U+{ord(hidden):04X}, which cannot be seen, is not"
            raise InvalidData(
                f"the name of a job has at most {MAX_NAME_CHARS} characters, all of them printable{what}"
            )
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise InvalidData(f"the priority of a job is a number from 0 to {MAX_PRIORITY}, the highest first")


@frozen(kw_only=True)
class JobOwner:
    """Who runs a job: one instance of a scheduler, in one attempt. No two attempts have the same."""

    scheduler_id: str
    instance_id: str
    attempt: int


@frozen(kw_only=True)
class JobDocument:
    """`jobs/{name}.json`: one job.

    `attempt` counts those who began it; the last one is `owner` (a scheduler) and its `instance`, and nobody else may
    end it. `groups` are those in which its client was when it was submitted. `given_back` counts attempts that their
    schedulers gave up as they left. Of a RUNNING one `rows` and `bytes` are what is done so far. The result is
    `chunks`, all called by `files`; `schema` is that of its rows, as an Arrow message in base64. `outcome` is what a
    CLOSED one was before. Times are wall times, for people.
    """

    document_kind: ClassVar[str] = "job"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # whoever asks is told that there is no such job

    job_id: str
    request: JobRequest
    client: str = ""
    groups: tuple[str, ...] = ()
    state: JobState = "PENDING"
    attempt: int = 0
    owner: str = ""
    instance: str = ""
    given_back: int = 0
    rows: int = 0
    bytes: int = 0
    files: str = ""
    chunks: tuple[JobChunk, ...] = ()
    schema: str = ""
    code: str = ""
    message: str = ""
    outcome: str = ""
    submitted_at_ms: int = 0
    started_at_ms: int = 0
    ended_at_ms: int = 0

    @property
    def own_key(self) -> str:
        return job_key(self.job_id, self.client)

    @property
    def name(self) -> str:
        """What keys call it."""
        return job_name(self.job_id, self.client)

    @property
    def token(self) -> str:
        """Under which its statement is carried out: the same in every attempt, so that it is done once."""
        return self.job_id

    @property
    def is_open(self) -> bool:
        """Whether something is still to be done."""
        return self.state in OPEN_STATES

    @property
    def marker(self) -> OpenJob:
        """Its marker, for as long as it is open."""
        return OpenJob(name=self.name, priority=self.request.priority)

    @property
    def running(self) -> JobOwner | None:
        """Who runs it now."""
        if self.state != "RUNNING":
            return None
        return JobOwner(scheduler_id=self.owner, instance_id=self.instance, attempt=self.attempt)

    def chunk_keys(self) -> tuple[str, ...]:
        """Where the result lies, chunk after chunk."""
        return tuple(chunk_key(self.name, self.attempt, self.files, n) for n in range(len(self.chunks)))


def chunk_key(name: str, attempt: int, files: str, number: int) -> str:
    """Where a chunk lies; `files` is an id that whoever writes them makes, so that no two write to one key."""
    return f"{JOBS_PREFIX}{name}/{attempt}/{files}-{number:05}.arrow"


def claimed(job: JobDocument, scheduler_id: str, instance_id: str, now_ms: int) -> JobDocument:
    """Begun by that instance. Raises `JobRefused` for one that does not wait."""
    if job.state != "PENDING":
        raise _refused(job, "begun")
    return _begun(job, scheduler_id, instance_id, now_ms)


def taken_over(job: JobDocument, gone: JobOwner, scheduler_id: str, instance_id: str, now_ms: int) -> JobDocument:
    """Begun anew, instead of an owner that is gone; FAILED once `MAX_ATTEMPTS` were. Raises `JobRefused` where
    somebody else runs it by now."""
    if job.running != gone:
        raise _refused(job, "taken over")
    if job.attempt - job.given_back < MAX_ATTEMPTS:
        return _begun(job, scheduler_id, instance_id, now_ms)
    error = JobAbandoned(
        f"{MAX_ATTEMPTS} schedulers began the job and were gone before it was done, '{job.owner}' the last: look "
        "into their logs (memory?); a statement that changes something may have been carried out"
    )
    return _ended(evolve(job, state="FAILED", code=error.code, message=error.message), now_ms)


def given_back(job: JobDocument, mine: JobOwner) -> JobDocument:
    """Waiting again, because its owner leaves the cluster."""
    require_mine(job, mine)
    if job.given_back >= MAX_GIVEN_BACK:
        return job
    return evolve(job, state="PENDING", owner="", instance="", given_back=job.given_back + 1, rows=0, bytes=0)


def progressed(job: JobDocument, mine: JobOwner, rows: int, done_bytes: int) -> JobDocument:
    """With how much of the result there is so far."""
    require_mine(job, mine)
    return evolve(job, rows=rows, bytes=done_bytes)


def succeeded(
    job: JobDocument, mine: JobOwner, *, files: str, chunks: tuple[JobChunk, ...], schema: str, now_ms: int
) -> JobDocument:
    """With its result, which is there from this commit on; itself if it is this very one already."""
    if job.state == "SUCCEEDED" and (job.attempt, job.files) == (mine.attempt, files):
        return job
    require_mine(job, mine)
    rows, size = sum(chunk.rows for chunk in chunks), sum(chunk.bytes for chunk in chunks)
    done = evolve(job, state="SUCCEEDED", files=files, chunks=chunks, schema=schema, rows=rows, bytes=size)
    return _ended(done, now_ms)


def failed(job: JobDocument, mine: JobOwner, code: str, message: str, now_ms: int) -> JobDocument:
    """Ended by an error."""
    require_mine(job, mine)
    return _ended(evolve(job, state="FAILED", code=code, message=message[:MAX_MESSAGE_CHARS]), now_ms)


def cancelled(job: JobDocument, now_ms: int) -> JobDocument:
    """Never to be done any more; what has ended stays as it is."""
    if not job.is_open:
        return job
    may_be = " (if it changes something, that may have been done)" if job.state == "RUNNING" else ""
    return _ended(evolve(job, state="CANCELLED", message=f"the job was cancelled{may_be}"), now_ms)


def closed(job: JobDocument) -> JobDocument:
    """Without a result; its id stays known. Raises `JobRefused` for one that is still to be done."""
    if job.state == "CLOSED":
        return job
    if job.is_open:
        raise JobRefused(f"job '{job.job_id}' is {job.state}: cancel it before it is closed", state=job.state)
    return evolve(job, state="CLOSED", outcome=job.state, chunks=(), files="", schema="")


def require_mine(job: JobDocument, mine: JobOwner) -> None:
    """Raise `JobSuperseded` unless that attempt is the one that runs the job."""
    if job.running != mine:
        raise JobSuperseded(
            f"job '{job.job_id}' is {job.state} in attempt {job.attempt}: attempt {mine.attempt} of scheduler "
            f"'{mine.scheduler_id}' has no say in it any more",
            state=job.state,
        )


def outcome_error(job: JobDocument) -> BallistaError | None:
    """Why a job has no result, as code and message; None for one that has, or may still get one."""
    if job.state == "CANCELLED":
        return JobCancelled(f"job '{job.job_id}': {job.message}")
    if job.state == "FAILED":
        return from_wire({"code": job.code, "message": job.message})
    if job.state == "CLOSED":
        return JobRefused(
            f"job '{job.job_id}' is closed: its result was given up; submit it again", state=job.state
        )
    return None


def _begun(job: JobDocument, scheduler_id: str, instance_id: str, now_ms: int) -> JobDocument:
    return evolve(
        job,
        state="RUNNING",
        attempt=job.attempt + 1,
        owner=scheduler_id,
        instance=instance_id,
        rows=0,
        bytes=0,
        started_at_ms=now_ms,
    )


def _ended(job: JobDocument, now_ms: int) -> JobDocument:
    return evolve(job, ended_at_ms=now_ms)


def _refused(job: JobDocument, what: str) -> JobRefused:
    return JobRefused(f"job '{job.job_id}' is {job.state}: it cannot be {what}", state=job.state)
