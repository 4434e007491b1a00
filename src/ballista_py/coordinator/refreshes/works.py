"""What is done in a slot: a table brought up to its source on Spark or to its query, or its old rows taken away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

from attrs import define, field

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.refreshes.schedule import Done
from ballista_py.coordinator.refreshes.source_look import look_at
from ballista_py.coordinator.refreshes.view_look import look_at_tables
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.follows import CARRIED_OUT
from ballista_py.errors import BallistaError, ConfigError, TryLater
from ballista_py.partitions.refresh import RefreshMode
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.slots import SlotWork
from ballista_py.state.stores.store import ConditionalStore

NAMED_MS = 10_000.0
LOOK_MS = 50.0
IDLE_MS = 600_000.0


class Cluster(Protocol):
    """Gives partitions owners, and tells executors."""

    def reconcile_table(self, *tables: str) -> None: ...

    def table_is_served(self, table: str) -> bool: ...

    def refresh_dataset(self, table: str) -> int: ...


class RefreshesViews(Protocol):
    """Makes the rows of a materialized view anew."""

    def refresh_view(self, name: str, token: str) -> int: ...


class Retains(Protocol):
    """Carries out the DELETE of a retention."""

    def retain(self, table: str, token: str) -> int: ...


@define
class RefreshWork:
    """Refreshes from sources by `tables`, whose Spark ends when nothing was refreshed for `idle_ms`.

    `brought_back` is told of a table that was filled anew and has a retention: its old rows are there again.
    """

    tables: TableMaker
    cluster: Cluster
    runtime: Runtime
    brought_back: Callable[[TableSpec], None]
    idle_ms: float = IDLE_MS
    _used_ms: float | None = field(default=None, init=False)

    @property
    def kind(self) -> SlotWork:
        return "refresh"

    def wanted(self, table: TableSpec) -> bool:
        """Tables with a source: those that declare nothing are refreshed when it is asked for."""
        return table.is_piped and (table.refresh is None or table.refresh.mode in CARRIED_OUT)

    def declared(self, table: TableSpec) -> bool:
        """Tables that say how they follow their source."""
        return table.refresh is not None

    def every_ms(self, table: TableSpec) -> float | None:
        """As it declares."""
        return None if table.refresh is None else table.refresh.every_ms

    def declaration(self, table: TableSpec) -> object:
        """How it follows its source."""
        return table.source, table.refresh

    def mode(self, table: TableSpec) -> str:
        """As it declares."""
        return "full" if table.refresh is None else table.refresh.mode

    def look(self, table: TableSpec) -> str:
        """What the files of the source are."""
        assert table.source is not None
        return look_at(table.source, self.runtime)

    def run(self, table: TableSpec, token: str, mode: str) -> Done:
        """One refresh. Every partition that has no owner gets one first, and new ones before their rows are seen."""
        from ballista_py.spark.watermark import declared_watermark

        self.cluster.reconcile_table(table.name)
        watermark = None
        if mode == "append":
            watermark = declared_watermark(table)
            if watermark is None:
                raise ConfigError(
                    f"table '{table.name}' declares no time_column, by which an append finds new rows"
                )
        try:
            report = self.tables.refresh(
                table.name,
                mode=cast(RefreshMode, mode),  # type: ignore[arg-type]  # one of those that are carried out
                watermark=watermark,
                token=token,
                named=lambda: self._served(table.name),
            )
        finally:
            self._used_ms = self.runtime.monotonic_ms()
        with suppress(BallistaError):  # they find out by themselves, later
            self.cluster.reconcile_table(table.name)
            self.cluster.refresh_dataset(table.name)
        if mode == "full" and table.retention is not None:
            with suppress(BallistaError):
                self.brought_back(table)
        return Done(rows=report.rows, bytes=report.bytes, repeated=report.repeated)

    def rest(self) -> None:
        """End the Spark that nobody has used for long. To be called by the thread that runs slots."""
        if self._used_ms is not None and self.runtime.monotonic_ms() - self._used_ms >= self.idle_ms:
            self._used_ms = None
            self.tables.close()

    def _served(self, table: str) -> None:
        """Give new partitions owners, and wait a while until they serve."""
        until_ms = self.runtime.monotonic_ms() + NAMED_MS
        self.cluster.reconcile_table(table)
        with suppress(TryLater):  # a query that needs one of them says so, until it is loaded
            while not self.cluster.table_is_served(table) and self.runtime.monotonic_ms() < until_ms:
                self.runtime.sleep_ms(LOOK_MS)


@define
class CopyWork:
    """Copies a table that follows changes anew, where somebody asks for it; `copy` says how many rows that were."""

    copy: Callable[[TableSpec], int]

    @property
    def kind(self) -> SlotWork:
        return "refresh"

    def wanted(self, table: TableSpec) -> bool:
        """Tables that follow changes."""
        return table.by_changes

    declared = wanted  # whoever reads looks at all of them: somebody else may have been asked

    def every_ms(self, _table: TableSpec) -> float | None:
        """Never by itself: a copy takes the place of rows that a source may not have any more."""
        return None

    def declaration(self, table: TableSpec) -> object:
        """Where it is copied from."""
        return table.source

    def mode(self, _table: TableSpec) -> str:
        """There is one way."""
        return "full"

    def look(self, _table: TableSpec) -> str:
        """Nothing is skipped of what was asked for."""
        return ""

    def run(self, table: TableSpec, _token: str, _mode: str) -> Done:
        """One copy; its rows and its position count by one decision, so that made twice it is the later one."""
        return Done(rows=self.copy(table))


@define
class ViewWork:
    """Makes the rows of materialized views anew by `writes`, where a table that they read has changed.

    `view` tells the tables and views that there are. Every so often the objects of those tables are listed: that is
    what a look costs.
    """

    writes: RefreshesViews
    store: ConditionalStore
    view: Callable[[], ClusterView]

    @property
    def kind(self) -> SlotWork:
        return "refresh"

    def wanted(self, table: TableSpec) -> bool:
        """Materialized views."""
        return table.query is not None

    declared = wanted

    def every_ms(self, table: TableSpec) -> float | None:
        """As it declares; not by itself, if it declares a refresh without a time."""
        return None if table.refresh is None else table.refresh.every_ms

    def declaration(self, table: TableSpec) -> object:
        """Its query and its schedule."""
        return table.source, table.refresh

    def mode(self, _table: TableSpec) -> str:
        """There is one way."""
        return "full"

    def look(self, table: TableSpec) -> str:
        """What the tables are that its query reads; nothing for one that gives other rows by itself."""
        assert table.query is not None
        return look_at_tables(table.query, self.view(), self.store)

    def run(self, table: TableSpec, token: str, _mode: str) -> Done:
        """One run of its query; the same token again changes nothing."""
        return Done(rows=self.writes.refresh_view(table.name, token))


@define
class RetentionWork:
    """Takes old rows away, by the DELETE that the table declares."""

    writes: Retains

    @property
    def kind(self) -> SlotWork:
        return "retention"

    def wanted(self, table: TableSpec) -> bool:
        """Tables that declare one."""
        return table.retention is not None

    declared = wanted

    def every_ms(self, table: TableSpec) -> float | None:
        """As it declares."""
        return None if table.retention is None else table.retention.every_ms

    def declaration(self, table: TableSpec) -> object:
        """The DELETE that it declares."""
        return table.retention

    def mode(self, _table: TableSpec) -> str:
        """There is one way."""
        return "delete"

    def look(self, _table: TableSpec) -> str:
        """Time passes: there may always be old rows."""
        return ""

    def run(self, table: TableSpec, token: str, _mode: str) -> Done:
        """One DELETE; the same token again takes nothing away twice."""
        return Done(rows=self.writes.retain(table.name, token))
