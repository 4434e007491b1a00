"""The readers of a scheduler: each table that follows changes has one, at one scheduler as far as they know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from attrs import define, field

from ballista_py.coordinator.changes.postgres import max_lag_bytes
from ballista_py.coordinator.changes.postgres_writes import open_postgres_writer
from ballista_py.coordinator.changes.reader import ChangeReader
from ballista_py.coordinator.changes.rules import Progress
from ballista_py.coordinator.changes.source import DescribedSource
from ballista_py.coordinator.changes.source_writer import SourceWriter
from ballista_py.coordinator.changes.sources import open_changes
from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.tables.wider_tables import widened
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.errors import BallistaError, SourceLost, SourceUnfit, TryLater
from ballista_py.figures import UNSEEN, Figures
from ballista_py.logs import log_event
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.state.documents.secret_references import with_secrets
from ballista_py.state.members.membership import Membership
from ballista_py.state.stores.store import ConditionalStore

_log = logging.getLogger(__name__)
BATCHES_A_TICK = 20  # of one table, before the next one has its turn
EVERY_MS = 500.0  # between readings of a log in which nothing is known to be
LOOKS_A_TICK = 4  # tables whose sources are asked between two readings whether they stir
LEFT_OVER_MS = 10_000.0  # between looks at what sources keep for nobody
_FIGURE = "dataset_acceleration_refresh"


class Copies(Protocol):
    """Has tables copied anew that somebody has asked for."""

    def tick(self, tables: Mapping[str, TableSpec]) -> int: ...


def writers_of(secrets: Mapping[str, Secret]) -> Callable[[TableSpec], SourceWriter]:
    """What opens the sources of tables that are written through, with these secrets."""

    def open_writer(table: TableSpec) -> SourceWriter:
        return open_postgres_writer(table, with_secrets(dict(table.source or {}), secrets))

    return open_writer


@define(eq=False)
class ChangeReaders:
    """Ticks them. Used by one thread; `shown` may come from any.

    All logs are read each `EVERY_MS`. A tick that comes before that asks a few sources whether anything was written
    there, which costs next to nothing, and reads those: so a change is seen sooner, where the source is at rest. One
    that stirs without a change of its table waits for the next reading of all.

    The scheduler with the smallest id reads, and makes the `copies` that are asked for. Should two believe that of
    themselves, nothing comes of it but work.
    """

    store: ConditionalStore
    writes: WriteService
    membership: Membership
    secrets: Mapping[str, Secret]
    view: Callable[[], ClusterView]
    refreshed: Callable[[], ClusterView]
    runtime: Runtime
    figures: Figures = UNSEEN
    copies: Copies | None = None
    _readers: dict[str, tuple[ChangeReader, DescribedSource, TableSpec]] = field(factory=dict, init=False)
    _shown: dict[str, dict[str, Any]] = field(factory=dict, init=False)
    _level_ms: dict[str, float] = field(factory=dict, init=False)
    _looked_ms: dict[str, float] = field(factory=dict, init=False)  # when to look again
    _read_ms: float | None = field(default=None, init=False)  # when all were read
    _at_rest: list[str] = field(factory=list, init=False)  # folders whose sources may be asked whether they stir

    def tick(self) -> int:
        """Bring each table that follows a source one step, or several, further; how many changes that were."""
        now_ms = self.runtime.monotonic_ms()
        if self._read_ms is not None and now_ms - self._read_ms < EVERY_MS:
            return self._read_those_that_stir()
        found = self._followed()
        known = self._readers.keys() | found.keys()
        if known and not self.is_first():
            found = {}
        elif self._readers.keys() - found.keys():
            self._end_dropped()
        for folder in self._readers.keys() - found.keys():
            self._readers.pop(folder)[1].close()
        self._shown = {folder: shown for folder, shown in self._shown.items() if folder in found}
        self._level_ms = {folder: at_ms for folder, at_ms in self._level_ms.items() if folder in found}
        if self.copies is not None and found:
            self.copies.tick({table.name: table for table in found.values()})
        changes = sum(self._read(table) for table in found.values())
        self._at_rest = [folder for folder in found if self._shown.get(folder, {}).get("level")]
        self._read_ms = self.runtime.monotonic_ms()
        return changes

    def _read_those_that_stir(self) -> int:
        asked, self._at_rest = self._at_rest[:LOOKS_A_TICK], self._at_rest[LOOKS_A_TICK:]
        changes = 0
        for folder in asked:
            _, source, table = self._readers[folder]
            try:
                stirs = source.stirs()
            except BallistaError:  # the next reading says so
                continue
            found = self._read(table) if stirs else 0
            changes += found
            if found or not stirs:
                self._at_rest.append(folder)
        return changes

    def is_first(self) -> bool:
        """Whether this scheduler has the smallest id of those that it knows."""
        return all(peer.scheduler_id > self.membership.scheduler_id for peer in self.membership.peers())

    def copy(self, table: TableSpec) -> int:
        """Copy the table anew; how many rows. For the thread that ticks."""
        progress = self._reader(table)[0].copy()
        self._tell(table, progress, None)
        if progress.did != "copied":
            raise TryLater(f"table '{table.name}' was moved on by another scheduler while it was copied")
        return progress.changes

    def shown(self, folder: str) -> dict[str, Any]:
        """Where a table stands in its source, how much it lacks, and what keeps it; as of its last tick here.

        `lag_ms` says for how long it was not seen to have all of its source.
        """
        shown, level_ms = dict(self._shown.get(folder, {})), self._level_ms.get(folder)
        if shown:
            level = shown.pop("level", False)
            now_ms = self.runtime.monotonic_ms()
            shown["lag_ms"] = None if level_ms is None else 0.0 if level else max(0.0, now_ms - level_ms)
        return shown

    def close(self) -> None:
        """Let go of all sources."""
        for _, source, _ in self._readers.values():
            with suppress(BallistaError):
                source.close()

    def _end_dropped(self) -> None:
        """Let sources throw away what they keep for tables that are no more."""
        there = {table.folder for table in self.refreshed().catalog.tables.values()}
        for folder in self._readers.keys() - there:
            try:
                self._readers[folder][1].give_up()
            except BallistaError as error:
                log_event(_log, "log_not_given_up", logging.WARNING, table=folder, code=error.code, reason=error)

    def _followed(self) -> dict[str, TableSpec]:
        return {table.folder: table for table in self.view().catalog.tables.values() if table.by_changes}

    def _read(self, table: TableSpec) -> int:
        changes = 0
        try:
            reader, source, _ = self._reader(table)
        except BallistaError as error:
            self._failed(table, error)
            return changes
        try:
            for _ in range(BATCHES_A_TICK):
                began_ms = self.runtime.monotonic_ms()
                progress = reader.tick()
                self._tell(table, progress, None)
                self._count(table, progress, began_ms)
                changes += progress.changes
                if progress.did in ("nothing", "behind another"):
                    self._look_for_left_over(table, reader, source)
                    break
        except (SourceUnfit, SourceLost) as error:
            if isinstance(error, SourceLost) or not self._widen(table, source):
                self._stopped(table, reader, error)
        except BallistaError as error:
            self._failed(table, error)
        return changes

    def _look_for_left_over(self, table: TableSpec, reader: ChangeReader, source: DescribedSource) -> None:
        now_ms, position = self.runtime.monotonic_ms(), reader.table.position()
        if position is None or now_ms < self._looked_ms.get(table.folder, now_ms):
            return
        self._looked_ms[table.folder] = now_ms + LEFT_OVER_MS
        shown = {**self._shown[table.folder], "left_over": list(source.left_over(position))}
        self._shown = {**self._shown, table.folder: shown}

    def _failed(self, table: TableSpec, error: BallistaError) -> None:
        log_event(_log, "changes_not_applied", logging.WARNING, table=table.name, code=error.code, reason=error)
        self.figures.add(f"{_FIGURE}_total", table=table.name, mode="changes")
        self.figures.add(f"{_FIGURE}_failures", table=table.name, mode="changes")
        self._tell(table, None, error)

    def _stopped(self, table: TableSpec, reader: ChangeReader, error: SourceUnfit | SourceLost) -> None:
        """Say what keeps the table, for which its source may keep too much log. One that was altered is tried again."""
        now = self.refreshed().catalog.tables.get(table.name)
        is_as_it_was = now is not None and (now.folder, now.mark) == (table.folder, table.mark)
        try:
            self._failed(table, reader.given_up(error) if is_as_it_was else error)
        except BallistaError as failed:  # the source cannot be asked how much that is
            self._failed(table, failed)

    def _widen(self, table: TableSpec, source: DescribedSource) -> bool:
        """Give the table the columns that its source has more, if it is to take them; whether there were any."""
        if table.refresh is None or table.refresh.on_schema_change != "append":
            return False
        try:
            wider = widened(self.store, self.runtime, table, source.describe(table.primary_key))
        except BallistaError as error:
            self._failed(table, error)
            return True
        if wider is None:
            return False
        names = [name for name in wider.schema.names if name not in table.schema.names]
        log_event(_log, "columns_appended", table=table.name, columns=", ".join(names))
        self.refreshed()
        return True

    def _reader(self, table: TableSpec) -> tuple[ChangeReader, DescribedSource, TableSpec]:
        known = self._readers.get(table.folder)
        if known is not None and (known[2].name, known[2].mark) == (table.name, table.mark):
            return known
        if known is not None:
            known[1].close()
        options = with_secrets(dict(table.source or {}), self.secrets)
        source = open_changes(table.name, options, self.runtime, table)
        lag = max_lag_bytes(table.name, options)
        reader = ChangeReader(self.writes.followed(table), source, max_lag_bytes=lag)
        self._readers[table.folder] = (reader, source, table)
        return self._readers[table.folder]

    def _count(self, table: TableSpec, progress: Progress, began_ms: float) -> None:
        if progress.did not in ("copied", "applied"):
            return
        took_ms = self.runtime.monotonic_ms() - began_ms
        self.figures.add(f"{_FIGURE}_total", table=table.name, mode="changes")
        self.figures.add(f"{_FIGURE}_rows", progress.changes, table=table.name, mode="changes")
        self.figures.record(f"{_FIGURE}_duration_ms", took_ms, table=table.name, mode="changes")

    def _tell(self, table: TableSpec, progress: Progress | None, error: BallistaError | None) -> None:
        before = self._shown.get(table.folder, {})
        if progress is not None and progress.did in ("copied", "applied"):
            log_event(
                _log,
                f"changes_{progress.did}",
                table=table.name,
                rows=progress.changes,
                position=progress.position,
            )
        level = progress is not None and progress.did in ("nothing", "copied")
        if level:
            self._level_ms[table.folder] = self.runtime.monotonic_ms()
        now: dict[str, Any] = {"level": level}
        if progress is not None:
            now["position"] = str(progress.position)
            now["lag_bytes"], now["lag_rows"] = progress.lag.bytes, progress.lag.rows
        said = None if error is None else {"code": error.code, "message": error.message}
        self._shown = {**self._shown, table.folder: {**before, **now, "error": said}}
