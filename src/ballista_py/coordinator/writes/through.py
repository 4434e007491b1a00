"""Statements on a table that is written through: they go to its source, once, and come back by its changes.

The source applies a statement in one transaction together with its token, so whoever asks again, wherever, after
whatever died, is told what it did. The answer is given once the source has it (`wait="source"`), or once the table
stands behind it (`"visible"`, the default): then every query shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from attrs import define, field

from ballista_py.coordinator.changes.source_writer import RowsMoved, SourceWriter, Written
from ballista_py.coordinator.writes.change_writes import ChangeWrites
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.target_tables import TargetTables
from ballista_py.coordinator.writes.through_rows import RowPlan, ThroughRows
from ballista_py.coordinator.writes.whole_writes import WholeWrites
from ballista_py.errors import BallistaError, NotVisibleYet, SchemaMismatch, SourceUnavailable, SqlError, TryLater
from ballista_py.figures import UNSEEN, Figures, timed
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.changes import General, Local, TruncateTable
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.prune.changes import as_general
from ballista_py.state.documents.write_tokens import TOKENS_KEPT_MS, WriteToken
from ballista_py.transport.flight.commands import IngestMode
from ballista_py.turns import Turns
from ballista_py.work import current_client, current_work, pause

FIRST_WAIT_MS, LONGEST_WAIT_MS = 50.0, 1_000.0
LOOK_MS, LONGEST_LOOK_MS = 50.0, 250.0
AT_ONCE, AT_ONCE_OF_CLIENT = 16, 8  # connections of one scheduler
KEPT_MS = max(86_400_000.0, 2 * TOKENS_KEPT_MS)  # tokens at the source, by its own clock
FORGET_EVERY_MS = 60_000.0
TAKEN_TIMES = 3  # that a key which was free is taken, before that is what the statement is told
_UNIQUE = "23505"
OpenWriter = Callable[[TableSpec], SourceWriter]


def no_writer(table: TableSpec) -> SourceWriter:
    """What opens sources where nobody writes to them."""
    raise SqlError(f"table '{table.name}' is written through, which this node does not do: ask a scheduler")


@define
class ThroughWrites:
    """Runs them. Thread-safe. A statement is tried for `patience_ms` at most, or for the time that it has left."""

    targets: TargetTables
    whole: WholeWrites
    keyed: ChangeWrites
    open_writer: OpenWriter
    figures: Figures = UNSEEN
    runtime: Runtime = field(init=False)
    patience_ms: float = field(init=False)
    _rows: ThroughRows = field(init=False)
    _turns: Turns = field(init=False)
    _forgot_ms: dict[str, float] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.runtime, self.patience_ms = self.whole.rounds.runtime, self.whole.rounds.patience_ms
        self._rows = ThroughRows(self.whole, self.whole.checks, self.whole.max_bytes)
        self._turns = Turns(self.runtime, AT_ONCE)

    def run(self, change: Insert | Local | General | TruncateTable, table: TableSpec, token: WriteToken) -> int:
        """Run a statement on the table; how many rows it affects. Raises `SqlError` for one that is not done there."""
        _require_done(change, table)
        assert not isinstance(change, TruncateTable)
        if token.given:
            self.whole.claims.claim(table.folder, token.kept)
        if isinstance(change, Insert):
            earlier = self._earlier(table, token)
            if earlier is not None:
                return self._told(table, earlier)
            return self._written(table, token, self._rows.of_insert(change, table))
        self.targets.bind(as_general(change) if isinstance(change, Local) else change)
        return self._written(table, token, self._rows.of_change(change, table))

    def ingest(self, name: str, rows: KeptRows, mode: IngestMode, token: WriteToken) -> int | None:
        """Take in rows, or changes, that a client sends; how many they are. None for a table that is another's."""
        table = self.targets.through(name)
        if table is None:
            return None
        if mode == "replace":
            raise SqlError(
                f"the rows of table '{table.name}', which is written through, cannot be replaced at once: DELETE them, "
                "or upsert"
            )
        if mode == "changes":
            changes, token = self.keyed.sent(table, rows, token)
            plan = self._rows.of_changes(table, changes)
        elif mode == "upsert":
            given, token = self.whole.sent(table, rows, token)
            plan = self._rows.of_puts(table, given)
        else:
            digest = RowsDigest()
            sent = digest.counted(rows) if token.given else rows
            given = self.whole.gathered(table, self.whole.checks.batches(table, sent))
            token = token.of_rows(digest.value) if token.given else token
            plan = self._rows.of_rows(table, given)
        if token.given:
            self.whole.claims.claim(table.folder, token.kept)
        return self._written(table, token, plan)

    def _earlier(self, table: TableSpec, token: WriteToken) -> Written | None:
        """What the statement did when it was sent before; None if nobody knows, here or yet."""
        if token.fresh:
            return None
        with suppress(SourceUnavailable, TryLater), self._writer(table) as writer:
            return writer.known(token.kept)
        return None

    def _written(self, table: TableSpec, token: WriteToken, plan: RowPlan) -> int:
        """Have the statement applied at the source, again while that may help; then wait, and tell.

        Raises `TryLater` when it was not for as long as it is tried, or when nobody knows.
        """
        with timed(self.figures, "dataset_write_through_duration_ms", self.runtime, table=table.name):
            done = self._at_source(table, token, plan)
        outcome = "repeated" if done.repeated else "written"
        self.figures.add("dataset_write_through_total", table=table.name, outcome=outcome)
        self.figures.add("dataset_write_through_rows", 0 if done.repeated else done.affected, table=table.name)
        return self._told(table, done)

    def _at_source(self, table: TableSpec, token: WriteToken, plan: RowPlan) -> Written:
        until_ms, wait_ms = self.runtime.monotonic_ms() + self.patience_ms, FIRST_WAIT_MS
        doubt, taken, obstacle = not token.fresh, 0, TryLater("it was not tried")
        while True:
            try:
                with self._writer(table) as writer:
                    done = writer.known(token.kept) if doubt else None
                    return done or self._once(writer, table, token, plan, until_ms)
            except RowsMoved:
                self.figures.add("dataset_write_through_conflicts", table=table.name)
                obstacle = TryLater(
                    f"rows of table '{table.name}' were changed at its source while the statement was computed"
                )
            except (SourceUnavailable, TryLater) as error:
                doubt, obstacle = True, _later(error)
            except SchemaMismatch as error:
                taken += 1
                if error.details.get("sqlstate") != _UNIQUE or not plan.meets or taken >= TAKEN_TIMES:
                    raise
                obstacle = _later(error)
            if self.runtime.monotonic_ms() + wait_ms > until_ms:
                raise TryLater(
                    f"{obstacle.message}: send the statement again under its token, if it was written it is not "
                    "written again"
                )
            pause(self.runtime, wait_ms, obstacle)
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)

    def _once(
        self, writer: SourceWriter, table: TableSpec, token: WriteToken, plan: RowPlan, until_ms: float
    ) -> Written:
        key = writer.key()
        if plan.reads and not self._stands(table, writer.reached(), until_ms):
            raise TryLater(
                f"table '{table.name}' is behind its source, and its statements are computed from all that was there "
                "before them; tables() shows under 'changes' what keeps it"
            )
        return writer.write(token.kept, plan.make(key), max(1.0, until_ms - self.runtime.monotonic_ms()))

    def _told(self, table: TableSpec, done: Written) -> int:
        """How many rows it affected, once what the client waits for is so.

        Raises `NotVisibleYet` when that is not within the time that the statement has.
        """
        work = current_work()
        if ((work.waits if work is not None else "") or table.write_wait) == "source":
            return done.affected
        until_ms = self.runtime.monotonic_ms() + self.patience_ms
        try:
            with timed(self.figures, "dataset_write_through_visible_duration_ms", self.runtime, table=table.name):
                with self._writer(table) as writer:
                    place = writer.reached()
                if self._stands(table, place, until_ms):
                    return done.affected
            why = "the table did not come so far in time"
        except BallistaError as error:  # it is written, whatever is said of it now
            why = error.message
        raise NotVisibleYet(
            f"the statement on table '{table.name}' is written at its source ({done.affected} row(s)) and not yet "
            f"visible: {why}; sent again under its token it waits again and writes nothing",
            affected=done.affected,
        )

    def _stands(self, table: TableSpec, place: int, until_ms: float) -> bool:
        """Wait until the table stands at that place of its source's log, or behind it; whether it came to that."""
        wait_ms = LOOK_MS
        while True:
            position = self.whole.rounds.statements(table).read().position
            if position is not None and position.at >= place:
                return True
            work = current_work()
            left_ms = None if work is None else work.left_ms()
            if self.runtime.monotonic_ms() + wait_ms > until_ms or (left_ms is not None and left_ms <= wait_ms):
                return False
            pause(self.runtime, wait_ms)
            wait_ms = min(LONGEST_LOOK_MS, 2 * wait_ms)

    @contextmanager
    def _writer(self, table: TableSpec) -> Iterator[SourceWriter]:
        """A writer of its own for this thread, once there is room for it."""
        with self._turns.turn(current_client(), AT_ONCE_OF_CLIENT):
            writer = self.open_writer(table)
            try:
                yield writer
                self._forget(table, writer)
            finally:
                writer.close()

    def _forget(self, table: TableSpec, writer: SourceWriter) -> None:
        now_ms = self.runtime.monotonic_ms()
        if now_ms - self._forgot_ms.get(table.folder, 0.0) >= FORGET_EVERY_MS:
            self._forgot_ms[table.folder] = now_ms
            with suppress(BallistaError):  # another statement will
                writer.forget(KEPT_MS / 1e3)


def _later(error: BallistaError) -> TryLater:
    return TryLater(error.message)


def _require_done(change: Insert | Local | General | TruncateTable, table: TableSpec) -> None:
    """Raise `SqlError` for what is not done through a source."""
    shown = f"table '{table.name}', which is written through"
    if isinstance(change, TruncateTable):
        raise SqlError(f"TRUNCATE cannot be run on {shown}: DELETE FROM {table.name} takes its rows away")
    if isinstance(change, Insert) and change.overwrites:
        raise SqlError(f"INSERT OVERWRITE cannot be run on {shown}: DELETE rows and INSERT others")
    if change.returning:
        raise SqlError(f"RETURNING cannot be used on {shown}: leave it out, and ask for the rows afterwards")
