"""Read jobs at a scheduler: begun, renewed, told where their parts are by now, and closed.

The rows never pass a scheduler. What a job needs lies on the store, so any scheduler goes on with what another began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.changes import EVERY_FILE
from ballista_py.coordinator.reads.cutting import MAX_PARTS, TARGET_BYTES, Part, parts_of
from ballista_py.coordinator.reads.division import RestWriter, divided
from ballista_py.coordinator.reads.planning import PartPlan
from ballista_py.coordinator.reads.snapshot import RunAll, Snapshots
from ballista_py.coordinator.served_at import served_at
from ballista_py.errors import ConfigError, SnapshotGone, SqlError, Unsupported
from ballista_py.partitions.columns import plain
from ballista_py.partitions.map import Owner
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.kind import refusal, statement_kind
from ballista_py.sql.parts import condition_of, is_row_by_row
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.reads.files import ReadFiles
from ballista_py.storage.reads.leases import LEASE_MS, LONGEST_MS, ReadLeases
from ballista_py.transport.flight.wire import to_json
from ballista_py.transport.security.signed_tickets import TicketSigner
from ballista_py.transport.table_read.tickets import ReadTicket

MAX_LOCATED = 10_000
MAX_SECTIONS = 10_000  # of a part, whose rows are told one by one


@frozen(kw_only=True)
class ReadHints:
    """How an Agent wants its read job cut. 0 stands for what is usual here."""

    target_bytes: int = 0
    max_partitions: int = 0
    prefer_client_processing: bool = False
    lease_ms: int = 0


@frozen(kw_only=True)
class PlacedPart:
    """A part of a read job: what it holds before any filter, where it is served (URIs, the best first), its ticket.

    One that is never `processed` is given as it lies in its files.
    `section_rows` are missing for one section, which has all rows, and for more than `MAX_SECTIONS`. Of locations with
    one of the `priorities` each is as good as another; `loads` are how busy they were a moment ago, in percent.
    """

    number: int
    rows: int
    data_bytes: int
    sections: int
    locations: tuple[str, ...]
    ticket: bytes
    processed: bool = True
    section_rows: tuple[int, ...] = ()
    priorities: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()


@frozen(kw_only=True)
class PlannedRead:
    """A read job that was begun. `given` are the columns of the rows of each part, `base` those of unprocessed ones."""

    read_id: str
    lease_ms: int
    output: pa.Schema
    plan: PartPlan
    given: pa.Schema
    base: pa.Schema
    parts: tuple[PlacedPart, ...]
    rest: bytes = b""


@define
class TableReads:
    """Safe to share between threads. `tickets` make what executors ask for, `loads` tell how busy each of them is."""

    queries: QueryService
    store: ConditionalStore
    runtime: Runtime
    tickets: TicketSigner
    run_all: RunAll = map
    loads: Callable[[], Mapping[str, int]] = dict
    leases: ReadLeases = field(init=False)
    snapshots: Snapshots = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.leases = ReadLeases(self.store, self.runtime)
        self.snapshots = Snapshots(self.store, self.runtime, self.run_all)

    def begin(
        self,
        statement: str,
        hints: ReadHints,
        client: str,
        *,
        one_instant: bool = True,
        writer: RestWriter | None = None,
    ) -> PlannedRead:
        """Plan a query (in the engine's dialect) and keep its files for as long as it is renewed.

        Where the `writer` cannot say what would be left, parts give the rows, and all is left.

        Raises `SqlError` and the other planning errors, `Unsupported` for a query that is not over one table,
        `TryLater` as `Snapshots.of`, and `ConfigError` for too many files.
        """
        require_query(statement)
        lease_ms = checked_lease(hints.lease_ms)
        text = self.queries.spelled(statement)
        plan, view = self.queries.planned(text, fresh=True, timed=True)
        made, given, rest = divided(self.queries, text, plan, view, writer, little=hints.prefer_client_processing)
        table, pmap = view.catalog.tables[made.table], view.catalog.maps[made.table]
        snapshot = self.snapshots.of(table, pmap, made.partitions, one_instant=one_instant)
        parts = parts_of(
            snapshot.files,
            {partition: pmap.owner(partition) for partition in snapshot.files},
            target_bytes=hints.target_bytes or TARGET_BYTES,
            max_parts=min(hints.max_partitions or MAX_PARTS, MAX_PARTS),
            divides=made.divides,
        )
        files = ReadFiles(
            table=table.name,
            folder=table.folder,
            incarnation=table.incarnation,
            schema=table.schema,
            parts=parts,
            definition=table.definition,
            plan=made.sql,
            columns=made.columns,
            given=given,
            row_by_row=is_row_by_row(made.sql),
            condition=condition_of(made.sql, table.schema),
        )
        read_id, digest = self.leases.take(files, client, snapshot.fixed_ms, lease_ms)
        return PlannedRead(
            read_id=read_id,
            lease_ms=lease_ms,
            output=plan.output,
            plan=made,
            given=given,
            base=plain(files.base),
            parts=self.placed(read_id, digest, files, range(len(parts)), view, client),
            rest=rest,
        )

    def files_of(self, read_id: str, client: str) -> tuple[ReadFiles, str]:
        """What a read job of this client names, and the digest by which that is known. Raises `SnapshotGone`."""
        lease = self.leases.read(read_id)
        if lease.client != client:
            raise SnapshotGone("the read job is over, because it was closed or not renewed in time: read again")
        return self.leases.files(read_id, lease.digest), lease.digest

    def described(self, statement: str) -> pa.Schema:
        """The columns of the answer that a read job of the query would have. Raises `SqlError`."""
        require_query(statement)
        return self.queries.describe(statement)

    def renew(self, read_id: str, client: str) -> int:
        """For how many milliseconds from now the files are kept. Raises `SnapshotGone`."""
        return self.leases.renew(read_id, client).lease_ms

    def located(self, read_id: str, numbers: Sequence[int], client: str) -> tuple[PlacedPart, ...]:
        """Where these parts are served by now, with tickets that count from now on. Raises `SnapshotGone`."""
        if len(numbers) > MAX_LOCATED:
            raise ConfigError(f"at most {MAX_LOCATED:,} partitions of a read job are located at once")
        files, digest = self.files_of(read_id, client)
        if files.plan == EVERY_FILE:
            raise ConfigError("a place in the history of a table has no partitions: ask for what changed since")
        wrong = [number for number in numbers if number >= len(files.parts)]
        if wrong:
            raise SqlError(f"the read job has {len(files.parts)} partitions, and no number {wrong[0]}")
        view = self.queries.views.refresh([files.table.lower()])
        return self.placed(read_id, digest, files, numbers, view, client)

    def close(self, read_id: str, client: str) -> None:
        """Keep the files no longer. Harmless for a job that is over."""
        self.leases.end(read_id, client)

    def tick(self) -> int:
        """Remove what is left of read jobs that are over; how many objects. A scheduler calls it now and then."""
        return self.leases.tick()

    def placed(
        self,
        read_id: str,
        digest: str,
        files: ReadFiles,
        numbers: Iterable[int],
        view: ClusterView,
        client: str,
    ) -> tuple[PlacedPart, ...]:
        """These parts with where they are served, and tickets that count from now on.

        Raises `Unsupported` for a table that the client may not read by now, or not all of it.
        """
        if files.table in view.catalog.barriers or files.table in view.catalog.left_out:
            raise Unsupported(f"table '{files.table}' is not read in parts: the policies of the cluster hide it")
        table = view.catalog.tables.get(files.table)
        pmap = view.catalog.maps.get(files.table)
        is_there = table is not None and pmap is not None and table.folder == files.folder
        known, loads = self._locations(view), self.loads()
        load_at = {uri: loads.get(name, 0) for name, uri in known.items()}
        anybody = [known[name] for name, _ in sorted(view.members) if name in known]
        numbers, where, priorities, tickets = list(numbers), {}, {}, []
        for number in numbers:
            own, copies = _holders(files.parts[number], pmap, view) if is_there and pmap is not None else ([], [])
            owning = [known[name] for name, _ in own if name in known]
            where[number] = owning + [known[name] for name, _ in copies if name in known]
            priorities[number] = (0,) * len(owning) + (1,) * (len(where[number]) - len(owning))
            # What nobody holds any more, anybody reads from the store.
            anywhere = not where[number]
            if anywhere:
                where[number] = turned(anybody, number)
                priorities[number] = (0,) * len(anybody)
            ticket = ReadTicket(read_id=read_id, digest=digest, part=number, client=client, anywhere=anywhere)
            tickets.append(ticket.to_json())
        return tuple(
            PlacedPart(
                number=number,
                rows=sum([one.file.rows for one in files.parts[number]]),
                data_bytes=sum([one.file.bytes_to_read for one in files.parts[number]]),
                sections=len(files.parts[number]),
                locations=tuple(where[number]),
                section_rows=_section_rows(files.parts[number]),
                priorities=priorities[number],
                loads=tuple([load_at[uri] for uri in where[number]]),
                ticket=to_json(signed),
            )
            for number, signed in zip(numbers, self.tickets.issue_all(tickets), strict=True)
        )

    def _locations(self, view: ClusterView) -> dict[str, str]:
        """Where clients reach each executor that they may reach."""
        return served_at(view, is_plain=self.tickets.tls is None)


def checked_lease(lease_ms: int) -> int:
    """For how long a job keeps files without a renewal; 0: as long as is usual. Raises `ConfigError`."""
    if lease_ms > LONGEST_MS:
        raise ConfigError(f"a read job keeps files for at most {LONGEST_MS:,} ms without a renewal")
    return lease_ms or LEASE_MS


def require_query(statement: str) -> None:
    """Raise what a statement that is no query is refused with."""
    if statement_kind(statement) != "query":
        raise refusal(statement)


def _section_rows(part: Part) -> tuple[int, ...]:
    return tuple([one.file.rows for one in part]) if 1 < len(part) <= MAX_SECTIONS else ()


def _holders(part: Part, pmap: Any, view: ClusterView) -> tuple[list[Owner], list[Owner]]:
    """Who is alive and owns partitions of the part, most bytes first, and who has copies."""
    sizes: Counter[int] = Counter()
    for one in part:
        sizes[one.partition] += one.file.bytes_to_read + 1
    own: Counter[Owner] = Counter()
    copies: Counter[Owner] = Counter()
    for partition, size in sizes.items():
        for place, holder in enumerate(pmap.owners(partition)):
            if holder in view.members:
                (copies if place else own)[holder] += size
    ordered = [holder for holder, _ in own.most_common()]
    return ordered, [holder for holder, _ in copies.most_common() if holder not in own]


def turned(locations: Sequence[str], number: int) -> list[str]:
    """Another one first for each number, so that not all ask the same."""
    at = number % len(locations) if locations else 0
    return [*locations[at:], *locations[:at]]
