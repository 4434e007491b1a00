"""Read jobs over a folder of plain files, by one server that keeps them in mind while they last.

Nobody keeps the files. A job names the versions that they had when it began, and so do its tickets: whoever reads
another version is told `SnapshotGone`. What is known of a job is lost with this process, what its tickets say is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.cutting import MAX_PARTS, TARGET_BYTES
from ballista_py.coordinator.reads.division import RestWriter, divided
from ballista_py.coordinator.reads.plain_views import FolderViews
from ballista_py.coordinator.reads.service import (
    MAX_LOCATED,
    PlacedPart,
    PlannedRead,
    ReadHints,
    checked_lease,
    require_query,
    turned,
)
from ballista_py.coordinator.reads.snapshot import RunAll
from ballista_py.errors import ConfigError, PartitionsUnassigned, SnapshotGone, SqlError, TryLater, Unsupported
from ballista_py.partitions.columns import plain
from ballista_py.runtime import Runtime
from ballista_py.storage.plain.footers import PlainSection, sections_of
from ballista_py.storage.reads.leases import LONGEST_MS, MAX_OPEN
from ballista_py.transport.flight.wire import to_json
from ballista_py.transport.security.secret_tickets import SecretTickets
from ballista_py.transport.table_read.plain_tickets import PlainPiece, PlainTicket

MAX_PIECES = 1_000  # of a part, unless it was asked for fewer parts
MAX_PIECES_BYTES = 4 << 20  # of what a ticket says, as a server takes it
MAX_JOBS = 10_000
MAX_KEPT = 2_000_000  # pieces of all jobs
_AROUND_BYTES = 100  # of a piece in a ticket, beside its path and version

Pieces: TypeAlias = tuple[PlainSection, ...]


@define
class _OpenRead:
    """A job that lasts until `until_ms`, and never beyond `ends_ms`, by the monotonic clock."""

    client: str
    columns: tuple[str, ...]
    as_they_are: bool
    parts: tuple[Pieces, ...]
    lease_ms: int
    until_ms: float
    ends_ms: float


@define
class OpenReads:
    """The jobs of this process, by their ids, which begin with its `instance`. Safe to share between threads."""

    runtime: Runtime
    instance: str = field(init=False)
    _jobs: dict[str, _OpenRead] = field(init=False, factory=dict)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.instance = self.runtime.new_id()[:16]
        self._lock = self.runtime.lock()

    def take(
        self, client: str, columns: tuple[str, ...], as_they_are: bool, parts: tuple[Pieces, ...], lease_ms: int
    ) -> str:
        """Begin a job; its id. Raises `TryLater` where too many are open."""
        now_ms = self.runtime.monotonic_ms()
        self.tick()
        read_id = f"{self.instance}.{self.runtime.new_id()}"
        with self._lock:
            own = sum(job.client == client for job in self._jobs.values())
            kept = sum(len(part) for job in self._jobs.values() for part in job.parts)
            if own >= MAX_OPEN or len(self._jobs) >= MAX_JOBS:
                raise TryLater(
                    f"{own:,} read jobs of this client are open: close those that nobody reads any more"
                )
            if self._jobs and kept + sum(map(len, parts)) > MAX_KEPT:
                raise TryLater("open read jobs have too many files: close those that nobody reads any more")
            self._jobs[read_id] = _OpenRead(
                client, columns, as_they_are, parts, lease_ms, now_ms + lease_ms, now_ms + LONGEST_MS
            )
        return read_id

    def renewed(self, read_id: str, client: str) -> _OpenRead:
        """The job, which lasts on from now. Raises `SnapshotGone`."""
        with self._lock:
            job = self._own(read_id, client)
            job.until_ms = min(self.runtime.monotonic_ms() + job.lease_ms, job.ends_ms)
            return job

    def find(self, read_id: str, client: str) -> _OpenRead:
        """The job. Raises `SnapshotGone` for one that is over, or of another client."""
        with self._lock:
            return self._own(read_id, client)

    def end(self, read_id: str, client: str) -> None:
        """End a job; harmless for one that is over."""
        with self._lock:
            job = self._jobs.get(read_id)
            if job is not None and job.client == client:
                del self._jobs[read_id]

    def require_open(self, read_id: str) -> None:
        """Raise `SnapshotGone` for a job that was begun here and is over; what another server began is not known."""
        with self._lock:
            if read_id.partition(".")[0] == self.instance and not self._lasts(read_id):
                raise _over()

    def tick(self) -> int:
        """Forget jobs that were not renewed in time; how many."""
        with self._lock:
            over = [read_id for read_id in self._jobs if not self._lasts(read_id)]
            for read_id in over:
                del self._jobs[read_id]
            return len(over)

    def _own(self, read_id: str, client: str) -> _OpenRead:
        job = self._jobs.get(read_id)
        if job is None or job.client != client or not self._lasts(read_id):
            raise _over()
        return job

    def _lasts(self, read_id: str) -> bool:
        job = self._jobs.get(read_id)
        return job is not None and self.runtime.monotonic_ms() < job.until_ms


@define
class PlainReads:
    """Begins read jobs over the tables of a folder. Safe to share between threads.

    Parts give the columns that a query needs, as they lie in files, at any of the `locations`; the client does the
    rest, that of each part and what is left of all.
    """

    queries: QueryService
    views: FolderViews
    tickets: SecretTickets
    locations: tuple[str, ...]
    runtime: Runtime
    jobs: OpenReads
    run_all: RunAll = map

    def begin(
        self,
        statement: str,
        hints: ReadHints,
        client: str,
        *,
        one_instant: bool = True,
        writer: RestWriter | None = None,
    ) -> PlannedRead:
        """See `TableReads.begin`. Raises as that; `SchemaMismatch` for files of a table that have other columns than
        the first one, and `TryLater` where files are changed while their footers are read."""
        require_query(statement)
        lease_ms = checked_lease(hints.lease_ms)
        try:
            text = self.queries.spelled(statement)
        except PartitionsUnassigned:  # a part of it asks for rows first
            raise Unsupported(
                "a table server looks at no rows itself: say with IN which values a PIVOT is for"
            ) from None
        plan, view = self.queries.planned(text, fresh=True, timed=True)
        made, given, rest = divided(self.queries, text, plan, view, writer, little=True)
        schema = view.catalog.schemas[made.table]
        base = pa.schema([schema.field(name) for name in made.columns])
        as_they_are = made.passes_rows and base.types == given.types
        parts = self._parts(made.table, schema, hints, one_instant=one_instant)
        read_id = self.jobs.take(client, made.columns, as_they_are, parts, lease_ms)
        job = self.jobs.find(read_id, client)
        return PlannedRead(
            read_id=read_id,
            lease_ms=lease_ms,
            output=plan.output,
            plan=evolve(made, divides=True),
            given=given,
            base=plain(base),
            parts=tuple(self._placed(read_id, job, range(len(parts)))),
            rest=rest,
        )

    def described(self, statement: str) -> pa.Schema:
        """See `TableReads.described`."""
        require_query(statement)
        self.views.refresh(())
        return self.queries.describe(statement)

    def renew(self, read_id: str, client: str) -> int:
        """For how many milliseconds from now the job lasts. Raises `SnapshotGone`."""
        return self.jobs.renewed(read_id, client).lease_ms

    def located(self, read_id: str, numbers: Sequence[int], client: str) -> tuple[PlacedPart, ...]:
        """These parts with tickets that count from now on. Raises `SnapshotGone`."""
        if len(numbers) > MAX_LOCATED:
            raise ConfigError(f"at most {MAX_LOCATED:,} partitions of a read job are located at once")
        job = self.jobs.find(read_id, client)
        wrong = [number for number in numbers if number >= len(job.parts)]
        if wrong:
            raise SqlError(f"the read job has {len(job.parts)} partitions, and no number {wrong[0]}")
        return tuple(self._placed(read_id, job, numbers))

    def close(self, read_id: str, client: str) -> None:
        """End the job. Harmless for one that is over."""
        self.jobs.end(read_id, client)

    def tick(self) -> int:
        """Forget jobs that are over; how many."""
        return self.jobs.tick()

    def _parts(self, table: str, schema: pa.Schema, hints: ReadHints, *, one_instant: bool) -> tuple[Pieces, ...]:
        files = self.views.files_of(table, one_instant=one_instant)
        target = hints.target_bytes or TARGET_BYTES
        try:
            shapes = list(self.run_all(lambda file: self.views.files.fits(file, schema), files))
        except SnapshotGone:
            raise TryLater(
                f"the files of table '{table}' were changed while they were looked at: read again"
            ) from None
        found = [
            section
            for file, shape in zip(files, shapes, strict=True)
            for section in sections_of(file, shape, target)
        ]
        return filled(found, target, min(hints.max_partitions or MAX_PARTS, MAX_PARTS))

    def _placed(self, read_id: str, job: _OpenRead, numbers: Iterable[int]) -> Iterable[PlacedPart]:
        for number in numbers:
            part = job.parts[number]
            ticket = PlainTicket(
                read_id=read_id,
                client=job.client,
                columns=job.columns,
                as_they_are=job.as_they_are,
                pieces=tuple(map(_piece_of, part)),
            )
            yield PlacedPart(
                number=number,
                rows=sum([one.rows for one in part]),
                data_bytes=sum([one.bytes for one in part]),
                sections=len(part),
                locations=tuple(turned(self.locations, number)),
                ticket=to_json(self.tickets.issue(ticket.to_json())),
                processed=False,
            )


def filled(sections: Sequence[PlainSection], target_bytes: int, most: int) -> tuple[Pieces, ...]:
    """The sections in parts of about `target_bytes` and at most `MAX_PIECES`, or more of either where there would be
    more than `most`; every section is in one, in its order.

    Raises `ConfigError` where a ticket would have more than `MAX_PIECES_BYTES`.
    """
    pieces = MAX_PIECES
    target = max(1, target_bytes, -(-sum(one.bytes for one in sections) // most))
    while True:
        parts = _filled(sections, target, pieces)
        if len(parts) <= most:
            break
        target, pieces = 2 * target, 2 * pieces
    if any(sum(map(_said_bytes, part)) > MAX_PIECES_BYTES for part in parts):
        raise ConfigError("a partition would have more files than a ticket names: allow more partitions")
    return tuple(parts)


def _filled(sections: Sequence[PlainSection], target: int, pieces: int) -> list[Pieces]:
    parts: list[list[PlainSection]] = []
    size = 0
    for one in sections:
        if not parts or size + one.bytes > target or len(parts[-1]) >= pieces:
            parts.append([])
            size = 0
        parts[-1].append(one)
        size += one.bytes
    return [tuple(part) for part in parts]


def _said_bytes(one: PlainSection) -> int:
    return len(one.file.path.encode()) + len(one.file.version) + _AROUND_BYTES


def _piece_of(one: PlainSection) -> PlainPiece:
    return PlainPiece(one.file.path, one.file.size, one.file.version, one.first, one.count)


def _over() -> SnapshotGone:
    return SnapshotGone("the read job is over, because it was closed or not renewed in time: read again")
