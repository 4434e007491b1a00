"""The managed table that exports of OpenTelemetry's metrics are appended to."""

from __future__ import annotations

import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.writes.service import WriteService
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.new_table import NewTable
from ballista_py.runtime import Runtime

PARTITION_BY = ("bucket(8, metric)",)


@frozen
class MetricsTable:
    """Appends exports to the table `name`, which the first one makes if there is none. Thread-safe."""

    writes: WriteService
    name: str
    runtime: Runtime

    def take(self, rows: pa.RecordBatch) -> None:
        """Add the rows of one export: all of them at one instant, or none.

        Whoever sends an export again, because it heard no answer, adds it twice. Raises `SchemaMismatch` where the
        table has other columns, and what an ingest raises.
        """
        if not rows.num_rows:
            return
        try:
            self._append(rows)
        except (ConfigError, SqlError):
            if self.name in self.writes.views.refresh({self.name}).catalog.tables:
                raise
            self._make(rows.schema)
            self._append(rows)

    def _append(self, rows: pa.RecordBatch) -> None:
        reader = pa.RecordBatchReader.from_batches(rows.schema, [rows])
        self.writes.ingest(self.name, reader, token=self.runtime.new_id(), made=True, again=False, atomic=True)

    def _make(self, schema: pa.Schema) -> None:
        try:
            self.writes.create(NewTable(name=self.name, partition_by=PARTITION_BY), schema)
        except ConfigError:  # another export, or another scheduler, has made it meanwhile
            if self.name not in self.writes.views.refresh({self.name}).catalog.tables:
                raise
