"""The `PartServer` of a folder of plain files: it gives columns as they lie there, and processes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.reads.plain_reads import OpenReads
from ballista_py.errors import InvalidData, TryLater, Unauthenticated, Unsupported
from ballista_py.memory_budget import MemoryBudget
from ballista_py.owner.section_rows import section_rows
from ballista_py.storage.formats.parquet import ROW_GROUP_ROWS
from ballista_py.storage.plain.folders import PlainFile
from ballista_py.storage.plain.footers import PlainFiles, PlainSection
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.security.secret_tickets import SecretTickets
from ballista_py.transport.table_read.exchange import OnHold, Outcome, PartAnswer, PartRequest, TooBusy
from ballista_py.transport.table_read.plain_tickets import PlainPiece, PlainTicket
from ballista_py.transport.table_read.tokens.positions import Position

OPEN_OF_CLIENT = 64  # exchanges; one whose rows nobody takes holds up its client, and nobody else
RETRY_AFTER_MS = 200
ROOM_MS = 1_000.0  # to wait for room in the memory of the server
DECODED = 4  # times the bytes of a row group: it is read, decoded, written and sent


@define
class FolderParts:
    """Gives the parts that tickets of this server name, or of others with its secret. Safe to share between threads.

    What asks for more than columns is refused, always. A job that was begun here and is over is `SnapshotGone`. Of one
    client at most `OPEN_OF_CLIENT` are open: further ones are put on hold, as are rows that find no room in the
    `budget`.
    """

    files: PlainFiles
    tickets: SecretTickets
    jobs: OpenReads
    budget: MemoryBudget
    _opened: dict[object, str] = field(init=False, factory=dict)  # whose
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.files.runtime.lock()

    def open_part(self, request: PartRequest, context: CallContext) -> Outcome:
        """See `PartServer`."""
        if request.token:
            raise Unsupported("a table server knows no grants: read its partitions without sharing the job")
        ticket = PlainTicket.from_json(self.tickets.values(request.ticket))
        self.jobs.require_open(ticket.read_id)
        if request.process and not ticket.as_they_are:
            return TooBusy()
        if not ticket.pieces:
            raise InvalidData("the ticket names no files")
        place = object()
        with self._lock:
            if sum(client == ticket.client for client in self._opened.values()) >= OPEN_OF_CLIENT:
                return OnHold(RETRY_AFTER_MS)
            self._opened[place] = ticket.client
        with ExitStack() as up:
            up.callback(self._opened.pop, place, None)
            sections = [self._section(piece) for piece in ticket.pieces]
            try:
                room = self.budget.begin(DECODED * self._largest(sections), ticket.client, wait_ms=ROOM_MS)
            except TryLater:
                return OnHold(RETRY_AFTER_MS)
            up.callback(room.end)
            schema = self._schema(sections[0], ticket.columns)
            found = section_rows(0, sections, lambda one: self.files.batches(one, schema), request.begin, schema)
            over = up.pop_all().close
        return evolve(found, batches=_until_over(found, over), cancel=over, processed=request.process)

    def _section(self, piece: PlainPiece) -> PlainSection:
        file = PlainFile(path=piece.path, size=piece.size, version=piece.version)
        return PlainSection(file=file, first=piece.first, count=piece.count, rows=0, bytes=0)

    def _largest(self, sections: list[PlainSection]) -> int:
        """Bytes of the largest row group of the first file, of which the others have the like."""
        first = sections[0]
        groups = self.files.shape(first.file).groups[first.first : first.first + first.count]
        return max((int(size * min(1.0, ROW_GROUP_ROWS / max(1, rows))) for rows, size in groups), default=0)

    def _schema(self, section: PlainSection, columns: tuple[str, ...]) -> pa.Schema:
        held = self.files.shape(section.file).schema
        try:
            return pa.schema([held.field(name) for name in columns])
        except KeyError as error:
            raise Unauthenticated(f"the ticket names a column that the file has not: {error}") from None


def _until_over(found: PartAnswer, over: Callable[[], None]) -> Iterator[tuple[Position, pa.RecordBatch]]:
    """The same rows; with their end the place and the memory are free."""
    try:
        yield from found.batches
    finally:
        over()
