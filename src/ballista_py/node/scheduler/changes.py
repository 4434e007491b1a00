"""The readers of a scheduler: each table that follows changes has one, at one scheduler as far as they know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from attrs import define, field

from ballista_py.coordinator.changes.postgres import max_lag_bytes, open_postgres
from ballista_py.coordinator.changes.postgres_writes import open_postgres_writer
from ballista_py.coordinator.changes.reader import ChangeReader
from ballista_py.coordinator.changes.rules import Progress
from ballista_py.coordinator.changes.source_writer import SourceWriter
from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.errors import BallistaError
from ballista_py.logs import log_event
from ballista_py.partitions.table import TableSpec
from ballista_py.secret import Secret
from ballista_py.state.documents.secret_references import with_secrets
from ballista_py.state.members.membership import Membership

_log = logging.getLogger(__name__)
BATCHES_A_TICK = 20  # of one table, before the next one has its turn


def writers_of(secrets: Mapping[str, Secret]) -> Callable[[TableSpec], SourceWriter]:
    """What opens the sources of tables that are written through, with these secrets."""

    def open_writer(table: TableSpec) -> SourceWriter:
        return open_postgres_writer(table, with_secrets(dict(table.source or {}), secrets))

    return open_writer


@define(eq=False)
class ChangeReaders:
    """Ticks them. Used by one thread; `shown` may come from any.

    The scheduler with the smallest id reads. Should two believe that of themselves, nothing comes of it but work.
    """

    writes: WriteService
    membership: Membership
    secrets: Mapping[str, Secret]
    view: Callable[[], ClusterView]
    refreshed: Callable[[], ClusterView]
    _readers: dict[str, ChangeReader] = field(factory=dict, init=False)
    _shown: dict[str, dict[str, Any]] = field(factory=dict, init=False)

    def tick(self) -> int:
        """Bring each table that follows a source one step, or several, further; how many changes that were."""
        found = self._followed()
        known = self._readers.keys() | found.keys()
        if known and any(peer.scheduler_id < self.membership.scheduler_id for peer in self.membership.peers()):
            found = {}
        elif self._readers.keys() - found.keys():
            self._end_dropped()
        for folder in self._readers.keys() - found.keys():
            self._readers.pop(folder).source.close()
        self._shown = {folder: shown for folder, shown in self._shown.items() if folder in found}
        return sum(self._read(table) for table in found.values())

    def shown(self, folder: str) -> dict[str, Any]:
        """Where a table stands in its source, how much it lacks, and what keeps it; as of its last tick here."""
        return dict(self._shown.get(folder, {}))

    def close(self) -> None:
        """Let go of all sources."""
        for reader in self._readers.values():
            with suppress(BallistaError):
                reader.source.close()

    def _end_dropped(self) -> None:
        """Let sources throw away what they keep for tables that are no more."""
        there = {table.folder for table in self.refreshed().catalog.tables.values()}
        for folder in self._readers.keys() - there:
            source = self._readers[folder].source
            try:
                source.give_up()
            except BallistaError as error:
                log_event(_log, "log_not_given_up", logging.WARNING, table=folder, code=error.code, reason=error)

    def _followed(self) -> dict[str, TableSpec]:
        return {table.folder: table for table in self.view().catalog.tables.values() if table.by_changes}

    def _read(self, table: TableSpec) -> int:
        changes = 0
        try:
            reader = self._reader(table)
            for _ in range(BATCHES_A_TICK):
                progress = reader.tick()
                self._tell(table, progress, None)
                changes += progress.changes
                if progress.did in ("nothing", "behind another"):
                    break
        except BallistaError as error:
            log_event(
                _log, "changes_not_applied", logging.WARNING, table=table.name, code=error.code, reason=error
            )
            self._tell(table, None, error)
        return changes

    def _reader(self, table: TableSpec) -> ChangeReader:
        known = self._readers.get(table.folder)
        if known is None or known.table.name != table.name:
            source = with_secrets(dict(table.source or {}), self.secrets)
            known = self._readers[table.folder] = ChangeReader(
                self.writes.followed(table.name),
                open_postgres(table.name, source, table),
                max_lag_bytes=max_lag_bytes(table.name, source),
            )
        return known

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
        now = {} if progress is None else {"position": str(progress.position), "lag_bytes": progress.lag_bytes}
        said = None if error is None else {"code": error.code, "message": error.message}
        self._shown = {**self._shown, table.folder: {**before, **now, "error": said}}
