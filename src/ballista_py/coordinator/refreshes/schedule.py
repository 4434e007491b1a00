"""Does one kind of work for every table that declares it, slot by slot, beside other schedulers that do the same.

Promises that of any number of schedulers one does each slot, that a slot done twice counts once (its number is the
token), and that whoever dies, sleeps or is slow in a slot hinders nobody for longer than `patience_ms` after its last
sign of life, and `limit_ms` in all: then another scheduler does the slot. Slots that were missed are not made up for:
one run catches up. Leaves to `work` what is done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from attrs import define, field, frozen

from ballista_py.coordinator.refreshes.lanes import Lanes, RunningSlot
from ballista_py.errors import BallistaError, TableAltered, VersionConflict
from ballista_py.figures import UNSEEN, Figures
from ballista_py.logs import log_event
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.slot_book import SlotBook, is_due
from ballista_py.state.documents.slots import SlotOutcome, SlotsDocument, SlotWork
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.spawn import Spawn
from ballista_py.work import Work, current_work, working

_log = logging.getLogger(__name__)
LOOKS_PER_INTERVAL = 4
MAX_LOOK_MS = 15_000.0
RENEWALS_PER_PATIENCE = 4
LIMIT_MS = 3_600_000.0
AGAIN_MS = 60_000.0  # between lines of the log that say the same of a table


@frozen(kw_only=True)
class Done:
    """What one run did. `repeated`: an earlier one under its token counts."""

    rows: int = 0
    bytes: int = 0
    repeated: bool = False


class TableWork(Protocol):
    """What is done for a table in a slot."""

    @property
    def kind(self) -> SlotWork: ...

    def every_ms(self, table: TableSpec) -> float | None:
        """How often, if ever by itself; None when it is only asked for."""
        ...

    def wanted(self, table: TableSpec) -> bool:
        """Whether the table may have it done."""
        ...

    def declared(self, table: TableSpec) -> bool:
        """Whether the table says that it is to be done; the others have it done where somebody asks for it."""
        ...

    def declaration(self, table: TableSpec) -> object:
        """What the table says of it; another one makes what is under way pointless."""
        ...

    def mode(self, table: TableSpec) -> str:
        """How it is done, unless somebody asks for another way."""
        ...

    def look(self, table: TableSpec) -> str:
        """What there is to be done by, without doing it; the same text again means nothing. Nothing: not known."""
        ...

    def run(self, table: TableSpec, token: str, mode: str) -> Done:
        """Do it, as part of the statement `token`. Raises `BallistaError`."""
        ...


@define
class Schedule:
    """Visits tables by `tick`, which belongs to one thread. `acts` says whether this scheduler's lease is valid.

    `comes_first` says whether this scheduler is to do slots as soon as they are due; the others wait `patience_ms`
    longer, so that they are not all at it. `spawn` starts a thread that gives signs of life while a slot is done.
    """

    store: ConditionalStore
    runtime: Runtime
    work: TableWork
    spawn: Spawn
    instance: Callable[[], str]
    acts: Callable[[], bool]
    comes_first: Callable[[], bool]
    patience_ms: float
    limit_ms: float = LIMIT_MS
    figures: Figures = UNSEEN
    lanes: Lanes | None = None
    _books: dict[str, SlotBook] = field(factory=dict, init=False)
    _looked_ms: dict[str, float] = field(factory=dict, init=False)
    _asked: set[str] = field(factory=set, init=False)
    _running: dict[str, RunningSlot] = field(factory=dict, init=False)
    _slow: set[str] = field(factory=set, init=False)
    _began: Counter[str] = field(factory=Counter, init=False)
    _logged: dict[str, tuple[tuple[str, bool], float]] = field(factory=dict, init=False)

    def tick(self, tables: Mapping[str, TableSpec]) -> int:
        """Do what is due, one table after the other; how many slots were done. What fails stops no other table.

        With `lanes` slots are begun here and done in threads of their own; those of tables that are gone, or declare
        something else, are ended.
        """
        self._end_unwanted({table.folder: table for table in tables.values()})
        visited = sorted(tables.items(), key=lambda item: (self._began[item[1].folder], item[0]))
        due = [table for _, table in visited if self._is_visited(table)]
        folders = {table.folder for table in due}
        self._books = {folder: book for folder, book in self._books.items() if folder in folders}
        self._looked_ms = {folder: at_ms for folder, at_ms in self._looked_ms.items() if folder in folders}
        self._slow &= folders
        self._logged = {folder: told for folder, told in list(self._logged.items()) if folder in folders}
        self._began = Counter({folder: count for folder, count in self._began.items() if folder in folders})
        done = 0
        for table in due:
            if not self.acts():
                break
            with self._told(table):
                done += self._visit(table)
        return done

    def ask(self, table: TableSpec, mode: str) -> int:
        """Have a slot done now; the number that `SlotsDocument.answered` reaches once it is."""
        number = SlotBook(self.store, table.folder, self.work.kind, self.runtime).ask(mode)
        self._asked.add(table.folder)
        return number

    def known(self) -> dict[str, SlotsDocument]:
        """The slots as last seen, by the folder of the table."""
        return {f: sight.document for f, book in list(self._books.items()) if (sight := book.sight) is not None}

    def _is_visited(self, table: TableSpec) -> bool:
        """Whether it declares the work; or somebody asked here for it, until it is done."""
        if not self.work.wanted(table):
            return False
        return self.work.declared(table) or table.folder in self._asked or table.folder in self._books

    def _visit(self, table: TableSpec) -> bool:
        now_ms, every_ms = self.runtime.monotonic_ms(), self.work.every_ms(table)
        if not self._has_place(table.folder, now_ms):
            return False
        if not self._is_to_be_looked_at(table.folder, now_ms, every_ms):
            return False
        book = self._books.get(table.folder)
        if book is None:
            at_first = "full" if table.is_filled_later and self.work.kind == "refresh" else ""
            book = SlotBook(self.store, table.folder, self.work.kind, self.runtime, self.instance, at_first)
            self._books[table.folder] = book
        late_ms = 0.0 if self.comes_first() else self.patience_ms
        sight = book.look(every_ms)
        if not is_due(sight, self.runtime.monotonic_ms(), every_ms, self.patience_ms, late_ms):
            return False
        self._began[table.folder] += 1
        if self.lanes is None:
            self._do(table, book, sight.document)
        else:
            self._begin(self.lanes, table, book, sight.document)
        return True

    def _has_place(self, folder: str, now_ms: float) -> bool:
        if self.lanes is None:
            return True
        running = list(self._running.values())
        return folder not in self._running and self.lanes.may_begin(folder in self._slow, running, now_ms)

    def _begin(self, lanes: Lanes, table: TableSpec, book: SlotBook, before: SlotsDocument) -> None:
        """Do the slot in a thread of its own, as work that can be ended."""
        folder, began_ms = table.folder, self.runtime.monotonic_ms()
        work = Work(self.runtime, client=f"cluster {self.work.kind}")  # no client has a name with a blank
        work.is_own = True
        run = self._running[folder] = RunningSlot(table, work, began_ms, folder in self._slow)

        def do() -> None:
            try:
                with working(work), self._told(table):
                    self._do(table, book, before)
            finally:
                took_ms = self.runtime.monotonic_ms() - began_ms
                (self._slow.add if took_ms > lanes.slow_after_ms else self._slow.discard)(folder)
                if self._running.get(folder) is run:
                    del self._running[folder]

        self.spawn(do)

    def _end_unwanted(self, by_folder: Mapping[str, TableSpec]) -> None:
        """End what is late or has no place, and what nobody declares any more."""
        if self.lanes is None:
            return
        running = list(self._running.values())
        for run in running:
            now = by_folder.get(run.table.folder)
            if now is None or self.work.declaration(now) != self.work.declaration(run.table):
                run.work.end(
                    TableAltered(f"table '{run.table.name}' does not declare this {self.work.kind} any more")
                )
        for run, reason in self.lanes.to_end(running, self.runtime.monotonic_ms()):
            run.work.end(reason)

    @contextmanager
    def _told(self, table: TableSpec) -> Iterator[None]:
        """Around what is done for one table: what fails there is logged, and stops no other one."""
        try:
            yield
        except VersionConflict as error:
            log_event(_log, f"{self.work.kind}_taken_over", logging.INFO, table=table.name, reason=error)
        except BallistaError as error:
            log_event(
                _log,
                f"{self.work.kind}_not_begun",
                logging.WARNING,
                table=table.name,
                code=error.code,
                reason=error,
            )

    def _is_to_be_looked_at(self, folder: str, now_ms: float, every_ms: float | None) -> bool:
        between_ms = min(MAX_LOOK_MS, MAX_LOOK_MS if every_ms is None else every_ms / LOOKS_PER_INTERVAL)
        if folder not in self._asked and now_ms - self._looked_ms.get(folder, -between_ms) < between_ms:
            return False
        self._asked.discard(folder)
        self._looked_ms[folder] = now_ms
        return True

    def _do(self, table: TableSpec, book: SlotBook, before: SlotsDocument) -> None:
        began_ms, at_ms = self.runtime.monotonic_ms(), self.runtime.wall_ms()
        seen = self.work.look(table)  # before anything is read: what comes after it is seen by the next slot
        mode = self.work.mode(table)
        if before.over and not before.wanted and seen and seen == before.seen:
            outcome = SlotOutcome(slot=before.slot + 1, mode=mode, at_ms=at_ms, skipped=True)
            book.skip(before, seen, outcome, at_ms)
            return
        mode = before.asked_mode or mode if before.asked > before.answered else mode
        held = book.begin(before)
        is_first = held.slot == 1 and table.is_filled_later  # without it nobody can ask for the table
        again = is_first or self.work.every_ms(table) is not None

        def outcome_of(done: Done, error: str = "") -> SlotOutcome:
            return SlotOutcome(
                slot=held.slot,
                mode=mode,
                at_ms=at_ms,
                took_ms=self.runtime.monotonic_ms() - began_ms,
                rows=done.rows,
                bytes=done.bytes,
                error=error,
                repeated=done.repeated,
            )

        try:
            with self._giving_signs(book, held):
                done = self.work.run(table, held.token, mode)
        except BaseException as error:
            work = current_work()  # what was ended says so in words of its own, which tell nobody why
            reason = error if work is None or work.reason is None else work.reason
            outcome = outcome_of(Done(), _said(reason))
            self._count(table, outcome)
            if isinstance(error, Exception):
                book.fail(held, outcome, again=again)
                self._log(table, outcome)
                return
            raise
        outcome = outcome_of(done)
        self._count(table, outcome)
        book.end(held, outcome, seen, at_ms)  # after the rows: what is not known to count is done again
        self._log(table, outcome)

    @contextmanager
    def _giving_signs(self, book: SlotBook, held: SlotsDocument) -> Iterator[None]:
        """Renew the slot while the block runs, until the limit: who is slower than that is taken over from."""
        over, until_ms = False, self.runtime.monotonic_ms() + self.limit_ms

        def keep() -> None:
            while not over and self.runtime.monotonic_ms() < until_ms:
                self.runtime.sleep_ms(self.patience_ms / RENEWALS_PER_PATIENCE)
                if over:
                    return
                try:
                    book.renew(held)
                except VersionConflict:
                    return  # it was taken over, which the end finds out
                except BallistaError:
                    continue  # a store in trouble

        self.spawn(keep)
        try:
            yield
        finally:
            over = True

    def _count(self, table: TableSpec, outcome: SlotOutcome) -> None:
        if self.work.kind != "refresh":
            return
        name, of, mode = "dataset_acceleration_refresh", table.name, outcome.mode
        self.figures.add(f"{name}_total", table=of, mode=mode)
        if outcome.error:
            self.figures.add(f"{name}_failures", table=of, mode=mode)
            return
        self.figures.add(f"{name}_rows", outcome.rows, table=of, mode=mode)
        self.figures.add(f"{name}_bytes", outcome.bytes, table=of, mode=mode)
        self.figures.record(f"{name}_duration_ms", outcome.took_ms, table=of, mode=mode)

    def _log(self, table: TableSpec, outcome: SlotOutcome) -> None:
        level = logging.WARNING if outcome.error else logging.INFO
        if not self._is_news(table.folder, outcome):
            return
        end = {"reason": outcome.error} if outcome.error else {"rows": outcome.rows, "repeated": outcome.repeated}
        log_event(
            _log, f"{self.work.kind}_done", level, table=table.name, slot=outcome.slot, mode=outcome.mode, **end
        )

    def _is_news(self, folder: str, outcome: SlotOutcome) -> bool:
        """Whether the log is told: what fails, or does nothing, again and again in the same words is told once in a
        while, since whoever makes a table says how often its slots are.
        """
        told = (outcome.error, not outcome.rows)
        before, now_ms = self._logged.get(folder), self.runtime.monotonic_ms()
        if before is not None and before[0] == told and told[1] and now_ms - before[1] < AGAIN_MS:
            return False
        self._logged[folder] = (told, now_ms)
        return True


def _said(error: BaseException) -> str:
    """Why it failed, for people: no more of an error of somebody else than its name, which may show a secret."""
    return error.message if isinstance(error, BallistaError) else f"it failed ({type(error).__name__})"
