"""One refresh of a table from its source, whoever asks for it: its columns looked at, its new partitions named."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import frozen

from ballista_py.coordinator.tables.embedded_spark import EmbeddedPipeline
from ballista_py.coordinator.tables.wider_tables import named, with_columns
from ballista_py.errors import SchemaMismatch, VersionConflict
from ballista_py.partitions.alterations import has_column
from ballista_py.partitions.assignment.assigner import PartitionAssigner
from ballista_py.partitions.discovery import NO_LOOK, diff_partitions
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.slot_book import SlotBook
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.partition_storage import RunAll, make_manifests

if TYPE_CHECKING:
    from ballista_py.spark.jobs import Progress
    from ballista_py.spark.pipeline import RefreshMode
    from ballista_py.spark.report import MaterializeReport
    from ballista_py.spark.watermark import Watermark

REFRESH_ATTEMPTS = 3


@frozen
class SourceRefreshes:
    """Refreshes tables on the Spark of this process. For one thread at a time."""

    store: ConditionalStore
    runtime: Runtime
    spark: EmbeddedPipeline
    run_all: RunAll = map

    def run(
        self,
        table: TableSpec,
        *,
        mode: RefreshMode = "full",
        watermark: Watermark | None = None,
        token: str | None = None,
        progress: Progress | None = None,
        named: Callable[[], None] = lambda: None,
    ) -> MaterializeReport:
        """Bring the table up to its source. New partitions are named, empty, before anything of it can be seen.

        `named` is called then. What was overtaken by another run is run again, at most twice. Raises `SchemaMismatch`
        for columns that the source has more, where the table declares how it follows its source and does not take them.
        """
        if token is None:  # no slot of the table's own: the next one must not take the source for what it was
            SlotBook(self.store, table.folder, "refresh", self.runtime).forget_seen()
        if table.refresh is not None and table.source is not None:
            table = self._with_columns(table)

        def announce(report: MaterializeReport) -> None:
            if not table.spec.is_static and self._add_partitions(table, report):
                named()

        for _ in range(REFRESH_ATTEMPTS - 1):
            try:
                return self._refresh(table, mode, watermark, token, progress, announce)
            except VersionConflict:
                continue  # a scheduler found a new value meanwhile, or somebody else refreshed the table
        return self._refresh(table, mode, watermark, token, progress, announce)

    def _refresh(
        self,
        table: TableSpec,
        mode: RefreshMode,
        watermark: Watermark | None,
        token: str | None,
        progress: Progress | None,
        announce: Callable[[MaterializeReport], None],
    ) -> MaterializeReport:
        return self.spark.get().refresh(
            self.spark.opened(table),
            mode=mode,
            watermark=watermark,
            token=token,
            progress=progress,
            announce=announce,
        )

    def _with_columns(self, table: TableSpec) -> TableSpec:
        """The table with the columns that its source has more, or an error that names them."""
        assert table.refresh is not None
        assert table.source is not None
        shown = self.spark.get().describe(table.name, self.spark.opened_source(table.source))
        new = [column for column in shown if not has_column(table, column.name)]
        if not new:
            return table
        if table.refresh.on_schema_change == "fail":
            raise SchemaMismatch(
                f"table '{table.name}': its source has {len(new)} more column(s), {named(new)}: declare "
                "on_schema_change 'append', which gives the table those columns, or take them out of the source"
            )
        return with_columns(self.store, self.runtime, table, new)

    def _add_partitions(self, table: TableSpec, report: MaterializeReport) -> bool:
        """Name the values that are new, if there are any; what a refresh did not see is left to discovery."""
        maps = PartitionStore(self.store, runtime=self.runtime)
        base = maps.read(table.map_name, table.incarnation)
        weights = [1.0 + written.rows for written in report.partitions.values()]
        diff = diff_partitions(base, list(report.partitions), weights, after=NO_LOOK)
        new = [value for value in report.partitions if base.index(value) is None]
        make_manifests(self.store, table, new, self.runtime, self.run_all)
        if diff:
            maps.commit(PartitionAssigner().assign(base, ()), diff=diff)
        return bool(diff)
