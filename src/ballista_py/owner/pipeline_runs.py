"""Runs of the data pipeline as an executor meets them: published by somebody else, perhaps not folded in everywhere.

Promises that a leg, which is to be read as of a sequence of its table's decisions, finds here all runs up to that
sequence folded in, so that a query sees a run in all partitions or in none, whoever died while it was published; and
that a run which was never decided is given up some day.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ballista_py.errors import BallistaError
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.documents.decisions import StatementsDocument, TableDecisions
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.holdings import Holdings
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import end

_log = logging.getLogger(__name__)
UNDECIDED_MS = 600_000.0  # a run that publishes itself may be slow; nobody but the next run waits for it


class OutsideRuns:
    """What runs did to the partitions that `holder` holds. Safe to share between threads; `tick` is for one."""

    def __init__(
        self, holder: PartitionHolder, store: ConditionalStore, runtime: Runtime, instance: Callable[[], str]
    ) -> None:
        self._holder = holder
        self._store = store
        self._runtime = runtime
        self._instance = instance
        self._catching_up = runtime.lock()
        self._caught_up: dict[tuple[str, int], int] = {}
        self._undecided: dict[tuple[str, int, str], float] = {}

    def catch_up(self, leg: Leg) -> None:
        """Fold in, and load, what was published up to the sequences that the leg is to be read as of.

        Raises what the store raises and `TryLater` when a partition could not be loaded.
        """
        for wanted in leg.tables:
            if wanted.sequence and self._behind(wanted):
                with self._catching_up:  # whoever waited may find it done
                    self._catch_up(wanted)

    def _behind(self, wanted: LegTable) -> list[int]:
        """The partitions of a leg in which something may have been published that is not seen here."""
        holdings = self._holder.holdings(wanted.table)
        if holdings is None or not holdings.table.is_piped:
            return []
        known = {p: holdings.held[p].sequence for p in wanted.partitions if p in holdings.held}
        folder, now = holdings.table.folder, wanted.sequence or 0
        return [p for p, sequence in known.items() if max(sequence, self._caught_up.get((folder, p), 0)) < now]

    def _catch_up(self, wanted: LegTable) -> None:
        behind, holdings = self._behind(wanted), self._holder.holdings(wanted.table)
        if not behind or holdings is None:
            return
        decisions = self._statements(holdings.table).read()
        self._settle(holdings, [p for p in behind if p in holdings.wanted], decisions)
        self._holder.reload(wanted.table, behind)
        self._caught_up.update(((holdings.table.folder, p), decisions.sequence) for p in behind)

    def tick(self) -> None:
        """Bring to an end what was found undecided here long ago: the process that prepared it must be dead."""
        now_ms = self._runtime.monotonic_ms()
        found = sorted(self._holder.prepared(outside=True))
        self._undecided = {key: self._undecided.get(key, now_ms) for key in found}
        folded: dict[str, int] = {}  # asked once for each table
        for name, partition, attempt in [
            k for k, since in self._undecided.items() if now_ms - since >= UNDECIDED_MS
        ]:
            holdings = self._holder.holdings(name)
            if holdings is None or partition not in holdings.held:
                continue
            try:
                folder = holdings.table.folder
                if folder not in folded:
                    folded[folder] = self._holder.decisions.require_everywhere(folder)
                decision = self._statements(holdings.table).abort(attempt, folded=folded[folder])
                end(self._storage(holdings, partition), decision)
                self._holder.reload(name, [partition])
            except BallistaError as error:
                _log.warning("a run of table '%s' could not be given up: %s", name, error)

    def _settle(self, holdings: Holdings, partitions: Iterable[int], decisions: StatementsDocument) -> None:
        for partition in partitions:
            storage = self._storage(holdings, partition)
            for waiting in storage.read().document.prepared:
                decision = decisions.on(waiting.attempt)
                if decision is not None:
                    end(storage, decision)

    def _storage(self, holdings: Holdings, partition: int) -> PartitionStorage:
        path = holdings.wanted[partition].path
        return PartitionStorage(
            self._store,
            holdings.table.folder,
            path,
            runtime=self._runtime,
            committed_by=self._instance(),
            memory=self._holder.memory,
        )

    def _statements(self, table: TableSpec) -> TableDecisions:
        return TableDecisions(self._store, table.folder, runtime=self._runtime, committed_by=self._instance())
