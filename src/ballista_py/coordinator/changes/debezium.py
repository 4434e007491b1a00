"""A log of Debezium's events as a source of changes.

Positions are the numbers of events: the one after the last event of a transaction. Events of one transaction follow one
another, so one has ended where another begins; the last one of a log has ended once the log has stood still for
`SETTLED_MS`. The rows that the connector read first (op `r`) are the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.changes.batches import read_changes
from ballista_py.coordinator.changes.debezium_events import Envelope, EventRows, read_envelope
from ballista_py.coordinator.changes.debezium_types import EventColumn, columns_of_schema
from ballista_py.coordinator.changes.event_logs import EventLog, LoggedEvent
from ballista_py.coordinator.changes.net import net_of
from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeBatch, Described, SourceLag
from ballista_py.errors import SchemaMismatch, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import SourcePosition

SETTLED_MS = 2_000.0
MAX_BATCH_BYTES = 512 << 20  # of events, in one batch: a transaction comes whole
COPY_ROWS = 65_536


@define(eq=False)
class DebeziumSource:
    """The events of one table, as a `ChangeSource` once the `table` that follows them is there. Used by one thread.

    `declared` are the columns of events that tell none. `from_earliest` says that nothing went before the first event
    that there is.
    """

    name: str
    log: EventLog
    runtime: Runtime
    declared: tuple[EventColumn, ...] | None = None
    from_earliest: bool = False
    table: TableSpec | None = None
    _end: tuple[int, float] = field(default=(-1, 0.0), init=False)  # of the log, and when it was first seen there

    def describe(self, primary_key: Sequence[str] = ()) -> Described:
        """The columns that the last event tells, or that are declared. Raises `SourceUnfit`, `SourceUnavailable`."""
        columns = self.declared if self.declared is not None else self._told_columns()
        if not primary_key:
            raise SourceUnfit(
                f"{self.log.there} do not tell the key of a row: name its columns by primary_key=[…], as the database "
                "has them"
            )
        known = {column.name for column in columns}
        unknown = next((name for name in primary_key if name not in known), None)
        if unknown is not None:
            raise SourceUnfit(f"{self.log.there} have no column '{unknown}' for the primary key")
        schema = pa.schema([pa.field(c.name, c.kind, c.nullable and c.name not in primary_key) for c in columns])
        return Described(schema=schema, primary_key=tuple(primary_key))

    def _told_columns(self) -> tuple[EventColumn, ...]:
        there = self.log.there
        data = self.log.last()
        found = None if data is None else read_envelope(f"the last of {there}", data)
        if found is None:
            raise SourceUnavailable(
                f"{there} end with none that tells its columns: wait for one, or declare them in the source as columns"
            )
        if found.fields is None:
            raise SourceUnfit(
                f"{there} have no schema: declare its columns in the source as columns, or have the connector write "
                "schemas (value.converter.schemas.enable=true)"
            )
        return columns_of_schema(there, found.fields)

    def snapshot(self) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
        """See `ChangeSource.snapshot`: the rows that the connector read before it told changes."""
        table, there = self._mine, self.log.there
        first, whole = self.log.first()
        if not whole and not self.from_earliest:
            raise SourceLost(
                f"{there} do not begin with the first one: have the connector read the table anew, or, if what went "
                "before is not lacking, say start: earliest in the source"
            )
        rows, size, end, unfinished = self._rows(), 0, first, False
        for event, envelope in self._read(first):
            if envelope is not None and not envelope.reads:
                break
            end = event.next
            if envelope is None:
                continue
            size += len(event.value or b"")
            if size > MAX_BATCH_BYTES:
                raise SourceUnfit(
                    f"{there} begin with more than {MAX_BATCH_BYTES >> 20} MiB of rows, more than one copy may have: "
                    "have the connector skip them (snapshot.mode=never), and fill the table before"
                )
            unfinished = envelope.more_to_read
            rows.take(event.place, envelope, end)
        else:
            if unfinished:
                raise SourceUnavailable(f"{there} are not all there yet: the connector has not read all rows")
        position = SourcePosition(end, f"debezium.{self.runtime.new_id()[:12]}")
        try:
            come = net_of(
                table, read_changes(table, rows.batch(position).changes.drop_columns([AT_COLUMN]).to_batches())
            )
        except SchemaMismatch as error:
            raise SourceUnfit(f"{there} do not fit table '{self.name}': {error.message}") from error
        return position, iter(come.come.to_batches(max_chunksize=COPY_ROWS))

    def read(self, after: SourcePosition, limit: int) -> ChangeBatch:
        """See `ChangeSource.read`."""
        rows, to, size = self._rows(), after.at, 0
        held: list[tuple[LoggedEvent, Envelope]] = []
        end = after.at
        for event, envelope in self._read(after.at):
            if held and not _go_together(held[-1][1], envelope):
                to = self._take(rows, held, end)
                if len(rows) >= limit:
                    break
            end = event.next
            if envelope is not None:
                size += len(event.value or b"")
                held.append((event, envelope))
            if not held:
                to = end
            if size > MAX_BATCH_BYTES and to > after.at:
                break
            if size > MAX_BATCH_BYTES:
                raise SourceUnfit(
                    f"a transaction of {self.log.there} has more than {MAX_BATCH_BYTES >> 20} MiB of changes, more "
                    "than can be applied at once: copy the table anew"
                )
        else:
            if held and self._is_settled(end, held):
                to = self._take(rows, held, end)
        return rows.batch(SourcePosition(to, after.log))

    def _take(self, rows: EventRows, held: list[tuple[LoggedEvent, Envelope]], end: int) -> int:
        """Take in a whole transaction, whose commit position is that after its last event."""
        for event, envelope in held:
            rows.take(event.place, envelope, end)
        held.clear()
        return end

    def _is_settled(self, end: int, held: list[tuple[LoggedEvent, Envelope]]) -> bool:
        """Whether the last transaction of the log has ended, as far as anybody can tell."""
        now_ms = self.runtime.monotonic_ms()
        if self._end[0] != end:
            self._end = (end, now_ms)
        return held[-1][1].transaction is None or now_ms - self._end[1] >= SETTLED_MS

    def _read(self, after: int) -> Iterator[tuple[LoggedEvent, Envelope | None]]:
        for event in self.log.events(after):
            yield event, read_envelope(event.place, event.value)

    def _rows(self) -> EventRows:
        return EventRows(self._mine, self.log.there, self.declared, self._later)

    def _later(self) -> frozenset[str]:
        """The columns that the table may have had from its source after it was made: events before that have none."""
        refresh = self._mine.refresh
        if refresh is None or refresh.on_schema_change != "append":
            return frozenset()
        there = {column.name for column in self._told_columns()}
        return frozenset(column.name for column in self._mine.schema if column.nullable and column.name in there)

    def confirm(self, position: SourcePosition) -> None:
        """See `ChangeSource.confirm`: the log is nobody's to be cut."""

    def discard(self, position: SourcePosition) -> None:
        """See `ChangeSource.discard`."""

    def lag(self, position: SourcePosition) -> SourceLag:
        """See `ChangeSource.lag`."""
        return self.log.lag(position.at)

    def stirs(self) -> bool:
        """See `DescribedSource.stirs`."""
        return False

    def left_over(self, position: SourcePosition) -> tuple[str, ...]:
        """See `DescribedSource.left_over`."""
        return ()

    def give_up(self) -> None:
        """See `ChangeSource.give_up`."""

    def close(self) -> None:
        """See `ChangeSource.close`."""
        self.log.close()

    @property
    def _mine(self) -> TableSpec:
        assert self.table is not None
        return self.table


def _go_together(one: Envelope, following: Envelope | None) -> bool:
    """Whether an event belongs to the transaction of the one before it."""
    return following is not None and following.transaction is not None and following.transaction == one.transaction
