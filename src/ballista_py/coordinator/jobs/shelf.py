"""Where jobs lie: their documents, the markers of the open ones, their chunks. One thin layer over the store.

The order of two writes carries all of it. The marker is made before the document, and goes after the document says
that the job has ended: so an open job has a marker at every instant, and one listing of the markers finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from attrs import define, evolve, field

from ballista_py.coordinator.jobs.limits import MAX_OPEN_JOBS
from ballista_py.errors import JobMissing, ObjectExists, ObjectMissing
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import (
    OPEN_PREFIX,
    JobDocument,
    OpenJob,
    job_key,
    key_of_name,
)
from ballista_py.state.documents.object_state import ObjectState, Retry
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry

_MARK = b"{}"
RETRY = Retry(free_races=16, longest_ms=1_000.0)  # its owner, a client and who takes it over meet in a document


@define
class JobShelf:
    """The jobs of a state location. Safe to share between threads."""

    store: ConditionalStore
    runtime: Runtime
    committed_by: str = field(default="", kw_only=True)

    def state(self, name: str) -> ObjectState[JobDocument]:
        """The document of the job that keys call so."""
        return ObjectState(
            self.store,
            key_of_name(name),
            JobDocument,
            runtime=self.runtime,
            retry=RETRY,
            committed_by=self.committed_by,
        )

    def read(self, job_id: str, client: str) -> JobDocument:
        """A client's job. Raises `JobMissing`, and what the store raises."""
        name = job_key(job_id, client).removeprefix("jobs/").removesuffix(".json")
        return self.read_named(name, job_id)

    def read_named(self, name: str, shown: str = "") -> JobDocument:
        """The job that keys call so. Raises `JobMissing`, and what the store raises."""
        try:
            return self.state(name).read().document
        except ObjectMissing:
            raise JobMissing(
                f"there is no job '{shown or name}': it was never submitted by this client, or its time is over"
            ) from None

    def open_jobs(self) -> tuple[OpenJob, ...]:
        """Those with a marker: one listing, however many jobs there were before."""
        found = (OpenJob.of_key(entry.key, entry.modified_ms) for entry in self.store.list(OPEN_PREFIX))
        return tuple(islice((one for one in found if one is not None), MAX_OPEN_JOBS))

    def mark(self, job: OpenJob) -> OpenJob:
        """Let every scheduler see that the job is open; what was marked stays so."""
        with suppress(ObjectExists):
            self.store.create(job.key, _MARK)
        return evolve(job, since_ms=self.runtime.wall_ms())

    def unmark(self, job: OpenJob) -> None:
        """Take the marker of a job away whose document says that it has ended, or whose document is not there."""
        self.store.delete(job.key)

    def listed(self, prefix: str) -> Iterator[ObjectEntry]:
        """The objects whose keys begin so."""
        return self.store.list(prefix)
