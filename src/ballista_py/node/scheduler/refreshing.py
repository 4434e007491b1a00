"""The refreshes and retentions of a scheduler: their loops, what is asked of them and what they show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from ballista_py.coordinator.refreshes.lanes import Lanes
from ballista_py.coordinator.refreshes.schedule import Schedule
from ballista_py.coordinator.refreshes.shown import lag_ms, refresh_row, retention_row, slots_of
from ballista_py.coordinator.refreshes.works import RefreshWork, RetentionWork, ViewWork
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.errors import ConfigError, SqlError
from ballista_py.node.running import Foundation
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.partitions.table import TableSpec
from ballista_py.threads import spawn

TICK_MS = 500.0


@define
class SchedulerRefreshes:
    """What keeps the tables of a scheduler up. `tick`s are for the loops; everything else may be called by anybody."""

    ground: Foundation
    core: SchedulerCore
    refreshes: Schedule
    retentions: Schedule
    queries: Schedule
    work: RefreshWork
    wake: Any = field(default=lambda: None)
    wake_queries: Any = field(default=lambda: None)
    copies: Schedule | None = None

    @classmethod
    def start(
        cls, ground: Foundation, core: SchedulerCore, tables: TableMaker, writes: WriteService
    ) -> SchedulerRefreshes:
        """Begin the loops; they end with the node, and their Spark with them."""
        patience_ms = ground.config.ttl_ms + ground.config.skew_ms
        membership = core.membership

        def first() -> bool:
            return all(peer.scheduler_id > membership.scheduler_id for peer in membership.peers())

        def schedule_of(work: Any, lanes: Lanes | None = None) -> Schedule:
            return Schedule(
                ground.store,
                ground.runtime,
                work,
                spawn,
                lambda: membership.instance_id,
                membership.valid,
                first,
                patience_ms,
                figures=ground.metrics,
                lanes=lanes,
            )

        retentions = schedule_of(RetentionWork(writes), Lanes())
        work = RefreshWork(tables, core, ground.runtime, lambda table: _ask(retentions, table))
        queries = schedule_of(ViewWork(writes, ground.store, core.view), Lanes())
        made = cls(ground, core, schedule_of(work), retentions, queries, work)
        made.wake = ground.loop("refresh", made.refresh, TICK_MS).poke
        made.wake_queries = ground.loop("refresh views", made.refresh_views, TICK_MS).poke
        ground.loop("retain", made.retain, TICK_MS)
        ground.up.callback(tables.close)
        return made

    def refresh(self) -> None:
        """Refresh the tables that are due."""
        self.refreshes.tick(self.core.known().catalog.tables)
        self.work.rest()

    def refresh_views(self) -> None:
        """Make the rows of materialized views anew that are due."""
        self.queries.tick(self.core.known().catalog.tables)

    def retain(self) -> None:
        """Take away the old rows of tables that are due."""
        self.retentions.tick(self.core.known().catalog.tables)

    def ask(self, name: str, mode: str | None) -> int:
        """Have a table brought up to its source soon, by some scheduler; the number that its `answered` reaches then.

        Raises `SqlError` for a table that there is not, and `ConfigError` for one that cannot be refreshed so.
        """
        table = self.core.view().catalog.tables.get(name)
        if table is None:
            raise SqlError(f"there is no table '{name}'")
        if table.by_changes:
            return self._ask_for_copy(table, mode)
        if table.query is not None:
            return self._ask_for_query(table, mode)
        if not self.work.wanted(table):
            raise ConfigError(f"table '{name}' has no source that it could be refreshed from: write to it")
        if mode == "append" and (table.refresh is None or table.refresh.time_column is None):
            raise ConfigError(
                f"table '{name}' declares no time_column, by which an append finds new rows: refresh it by 'full'"
            )
        number = self.refreshes.ask(table, mode or "")
        self.wake()
        return number

    def _ask_for_query(self, table: TableSpec, mode: str | None) -> int:
        if mode not in (None, "", "full"):
            raise ConfigError(f"materialized view '{table.name}' is made anew each time: refresh it by 'full'")
        number = self.queries.ask(table, "full")
        self.wake_queries()
        return number

    def _ask_for_copy(self, table: TableSpec, mode: str | None) -> int:
        if mode != "full":
            raise ConfigError(
                f"table '{table.name}' follows the changes of its source by itself: there is nothing to append; "
                "mode 'full' copies all of its rows anew"
            )
        assert self.copies is not None
        return self.copies.ask(table, "full")

    def shown(self, table: TableSpec) -> dict[str, Any]:
        """How refreshes and retentions of the table stand now."""
        store, runtime = self.ground.store, self.ground.runtime
        refresh = None if table.source is None else slots_of(store, table.folder, "refresh", runtime)
        retention = None if table.retention is None else slots_of(store, table.folder, "retention", runtime)
        return {
            "refresh": refresh_row(table, refresh, runtime.wall_ms()),
            "retention": retention_row(table, retention),
        }

    def left(self, what: str) -> Mapping[tuple[str, ...], float]:
        """How much of its source each table that follows changes lacks (`lag_bytes`, `lag_rows`), where it is known."""
        found: dict[tuple[str, ...], float] = {}
        for name, table in self.core.known().catalog.tables.items():
            lag = self.core.followed(table.folder).get(what) if table.by_changes else None
            if lag is not None:
                found[(name, "changes")] = float(lag)
        return found

    def lags(self) -> Mapping[tuple[str, ...], float]:
        """How far behind its source each table may be, in ms, by table and mode, as last seen."""
        known, now_ms = {**self.refreshes.known(), **self.queries.known()}, self.ground.runtime.wall_ms()
        found: dict[tuple[str, ...], float] = {}
        for name, table in self.core.known().catalog.tables.items():
            if table.by_changes:
                lag = self.core.followed(table.folder).get("lag_ms")
            else:
                lag = lag_ms(known.get(table.folder), now_ms)
            if lag is not None:
                found[(name, "changes" if table.by_changes else self.work.mode(table))] = lag
        return found


def _ask(retentions: Schedule, table: TableSpec) -> None:
    retentions.ask(table, "")
