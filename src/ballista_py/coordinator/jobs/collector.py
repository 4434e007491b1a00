"""What is left of jobs goes: results whose time is over, chunks that became no result, documents of long ago.

One listing of all below `jobs/` first, then the documents of those about which something is to be decided. So what a
document that was read later does not name, and its running attempt does not write, will never be needed: an attempt
that is not the document's any more commits nothing. Ages are those of the store's own clock. An open job without a
marker, whose scheduler died at the one moment at which that can be, is marked again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from attrs import Factory, define, evolve, field, frozen

from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.errors import DocumentError, JobError, JobMissing, ObjectMissing
from ballista_py.logs import log_event
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import JOBS_PREFIX, JobDocument, JobObject, OpenJob, closed
from ballista_py.state.stores.clock import left_clocks, store_now_ms
from ballista_py.state.stores.store import ObjectEntry

KNOWN_MS = 3_600_000.0  # for so long the id of a closed job stays known: it may be submitted again
HEAL_MS = 120_000.0  # after which an open job without a marker is marked again
MAX_KEPT = 10_000  # jobs of one client, with what is closed: beyond, the oldest that ended are closed early
MAX_DELETED = 10_000  # in a tick
_log = logging.getLogger(__name__)


@frozen(kw_only=True)
class CollectedJobs:
    """What a tick did."""

    closed: int = 0
    forgotten: int = 0
    chunks: int = 0
    marked: int = 0


@define
class Lies:
    """What a listing shows of one job."""

    document: ObjectEntry | None = None
    chunks: dict[str, JobObject] = Factory(dict)

    @property
    def sight(self) -> tuple[int, int, int]:
        """The same, while nothing has changed."""
        found = self.document
        return (0, 0, len(self.chunks)) if found is None else (found.modified_ms, found.size, len(self.chunks))


@define
class JobCollector:
    """Collects for all schedulers; several at once do no harm. `leads` says whether it is this one's to do."""

    shelf: JobShelf
    runtime: Runtime
    limits: JobLimits
    leads: Callable[[], bool] = field(default=lambda: True)
    _clean: dict[str, tuple[int, int, int]] = field(init=False, factory=dict)

    def tick(self) -> CollectedJobs:
        """Look once and remove. Raises what the store raises; the next tick goes on."""
        done = CollectedJobs()
        if not self.leads():
            return done
        entries = list(self.shelf.listed(JOBS_PREFIX))
        if not entries:
            return done
        lies, open_names = self._lying(entries)
        now_ms = store_now_ms(self.shelf.store, self.runtime, JOBS_PREFIX)
        self._delete(left_clocks(entries, JOBS_PREFIX, now_ms))
        self._clean = {name: seen for name, seen in self._clean.items() if name in lies}
        beyond = beyond_kept(lies)
        for name, lie in lies.items():
            ttl_ms = 0.0 if name in beyond else self.limits.result_ttl_ms
            due = lie.document is not None and now_ms - lie.document.modified_ms >= ttl_ms
            if self._clean.get(name) == lie.sight and not due:
                continue
            try:
                done = self._collected(done, name, lie, name in open_names, now_ms, ttl_ms)
            except DocumentError as error:  # one that cannot be read keeps what it has
                log_event(_log, "job_not_collected", logging.WARNING, job=name, code=error.code, reason=error)
            if done.chunks + done.forgotten >= MAX_DELETED:
                break
        return done

    def _lying(self, entries: Iterable[ObjectEntry]) -> tuple[dict[str, Lies], Collection[str]]:
        lies: dict[str, Lies] = defaultdict(Lies)
        open_names = set()
        for entry in entries:
            found = JobObject.of_key(entry.key)
            if found is None:
                marker = OpenJob.of_key(entry.key, entry.modified_ms)
                open_names |= {marker.name} if marker is not None else set()
            elif found.attempt is None:
                lies[found.name].document = entry
            else:
                lies[found.name].chunks[entry.key] = found
        return dict(lies), open_names

    def _collected(
        self, done: CollectedJobs, name: str, lie: Lies, is_marked: bool, now_ms: int, ttl_ms: float
    ) -> CollectedJobs:
        try:
            job = self.shelf.read_named(name)
        except JobMissing:
            return evolve(done, chunks=done.chunks + self._delete(lie.chunks))
        due_ms = HEAL_MS if job.is_open else KNOWN_MS if job.state == "CLOSED" else ttl_ms
        age_ms = self._age_ms(name, lie, now_ms, due_ms)
        if job.is_open and not is_marked and age_ms >= HEAL_MS:
            self.shelf.mark(job.marker)
            done = evolve(done, marked=done.marked + 1)
        if not job.is_open and job.state != "CLOSED" and age_ms >= ttl_ms:
            with suppress(JobError, ObjectMissing):
                job = self.shelf.state(name).update(partial(_closed_as, job)).document
                done = evolve(done, closed=done.closed + (job.state == "CLOSED"))
                age_ms = 0.0
        unneeded = not_needed(job, lie.chunks)
        removed = self._delete(unneeded)
        done = evolve(done, chunks=done.chunks + removed)
        if job.state == "CLOSED" and not lie.chunks and age_ms >= KNOWN_MS:
            self.shelf.store.delete(f"{JOBS_PREFIX}{name}.json")
            return evolve(done, forgotten=done.forgotten + 1)
        if not unneeded and not job.is_open and job.state != "CLOSED":
            self._clean[name] = lie.sight
        return done

    def _age_ms(self, name: str, lie: Lies, now_ms: float, due_ms: float) -> float:
        """For how long the document that was read by now has been as it is.

        What was listed may be what it was before it was changed, and read since: where something hangs on its age it
        is asked for again.
        """
        listed = lie.document
        if listed is not None and now_ms - listed.modified_ms >= due_ms:
            listed = next(iter(self.shelf.store.list(f"{JOBS_PREFIX}{name}.json")), None)
        return -1.0 if listed is None else now_ms - listed.modified_ms

    def _delete(self, keys: Iterable[str]) -> int:
        count = 0
        for key in keys:
            self.shelf.store.delete(key)
            count += 1
        return count


def _closed_as(seen: JobDocument, now: JobDocument) -> JobDocument:
    return closed(now) if now == seen else now


def beyond_kept(lies: Mapping[str, Lies], most: int = MAX_KEPT) -> set[str]:
    """The jobs of clients that have more than so many, but for the newest of each.

    >>> entries = [ObjectEntry(key="", size=1, version=None, modified_ms=n) for n in range(3)]
    >>> beyond_kept({f"a.{n}": Lies(entry) for n, entry in enumerate(entries)}, 2)
    {'a.0'}
    """
    of_client: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, lie in lies.items():
        if lie.document is not None:
            of_client[name.rpartition(".")[0]].append((lie.document.modified_ms, name))
    return {name for known in of_client.values() if len(known) > most for _, name in sorted(known)[:-most]}


def not_needed(job: JobDocument, chunks: dict[str, JobObject]) -> list[str]:
    """The chunks of a job that are no part of its result and will be none; they were listed before it was read."""
    if job.is_open:
        return [key for key, found in chunks.items() if (found.attempt or 0) < job.attempt]
    named = set(job.chunk_keys())
    return [key for key in chunks if key not in named]
