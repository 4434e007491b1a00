"""CREATE and DROP of managed tables, at a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, SqlError
from ballista_py.node.checks import RowChecks
from ballista_py.node.query_service import Views
from ballista_py.node.tables import INCARNATION_DIGITS, TableMaker
from ballista_py.node.write_rounds import FIRST_WAIT_MS, PATIENCE_MS, Growth
from ballista_py.planning.partition_spec import PartitionBy
from ballista_py.planning.sql.changes import DropTable
from ballista_py.runtime import Runtime


@frozen
class TableWrites:
    """Makes and ends tables, and tells the executors. Thread-safe."""

    views: Views
    tables: TableMaker
    growth: Growth
    checks: RowChecks
    runtime: Runtime
    patience_ms: float = PATIENCE_MS

    def make(
        self,
        name: str,
        schema: pa.Schema,
        partition_by: PartitionBy,
        *,
        primary_key: Sequence[str] = (),
        checks: Sequence[str] = (),
        if_not_exists: bool = False,
        token: str,
    ) -> None:
        """Create a managed table; the same statement sent again finds its own table and is content."""
        incarnation = incarnation_of(token)
        self.checks.require_valid(name, schema, checks)
        try:
            self.tables.create(
                name,
                None,
                partition_by,
                schema=schema,
                distribution="partitioned" if partition_by else "replicated",
                primary_key=primary_key,
                checks=checks,
                incarnation=incarnation,
            )
        except ConfigError:
            found = self.views.refresh().catalog.tables.get(name)
            if found is None or not (if_not_exists or found.incarnation == incarnation):
                raise
        self.growth.reconcile_all()
        self.views.refresh()
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        while not self.growth.table_is_served(name) and self.runtime.monotonic_ms() < deadline_ms:
            self.runtime.sleep_ms(FIRST_WAIT_MS)

    def drop(self, change: DropTable) -> int:
        """End a table; 0, as no row is counted. Raises `SqlError` when there is none."""
        if self.tables.drop(change.table) is None and not change.if_exists:
            raise SqlError(f"table '{change.table}' does not exist")
        self.growth.reconcile_all()
        self.views.refresh()
        return 0

    def exists(self, name: str) -> bool:
        """Whether there is a table of that name now."""
        return name in self.views.refresh().catalog.tables


def incarnation_of(token: str) -> str:
    """That of the table which the statement makes, however often it is sent."""
    return sha256(token.encode()).hexdigest()[:INCARNATION_DIGITS]
