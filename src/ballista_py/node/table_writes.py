"""CREATE and DROP of managed tables, at a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, SqlError
from ballista_py.node.checks import RowChecks
from ballista_py.node.cluster_view import Views
from ballista_py.node.tables import INCARNATION_DIGITS, TableMaker
from ballista_py.node.write_rounds import FIRST_WAIT_MS, PATIENCE_MS, Growth
from ballista_py.planning.partition_spec import PartitionBy
from ballista_py.planning.sql.changes import DropTable
from ballista_py.planning.table import FILE_FORMATS, FileFormatName
from ballista_py.runtime import Runtime

MARK_DIGITS = 16


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
        file_format: str = "parquet",
        token: str,
    ) -> None:
        """Create a managed table; the same statement sent again is content, also if its table was dropped since."""
        incarnation = incarnation_of(token)
        if self.tables.was_done(mark_of(token)):
            self._served(name)
            return
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
                file_format=file_format_named(file_format),
                incarnation=incarnation,
                mark=mark_of(token),
            )
        except ConfigError:
            found = self.views.refresh().catalog.tables.get(name)
            if found is None or not (if_not_exists or found.incarnation == incarnation):
                raise
        self._served(name)

    def _served(self, name: str) -> None:
        """Return when the table, if it is there, is served everywhere."""
        self.growth.reconcile_all()
        if name not in self.views.refresh().catalog.tables:
            return
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        while not self.growth.table_is_served(name) and self.runtime.monotonic_ms() < deadline_ms:
            self.runtime.sleep_ms(FIRST_WAIT_MS)

    def drop(self, change: DropTable, token: str) -> int:
        """End a table; 0, as no row is counted. Raises `SqlError` when there is none.

        The same statement sent again does nothing, also if there is another table of that name by now.
        """
        mark = mark_of(token)
        if self.tables.was_done(mark):
            return 0
        if self.tables.drop(change.table, mark) is None and not change.if_exists:
            raise SqlError(f"table '{change.table}' does not exist")
        self.growth.reconcile_all()
        self.views.refresh()
        return 0

    def exists(self, name: str, but: str | None = None) -> bool:
        """Whether there is a table of that name now that the statement with the token `but` did not make."""
        found = self.views.refresh().catalog.tables.get(name)
        return found is not None and (but is None or found.incarnation != incarnation_of(but))


def mark_of(token: str) -> str:
    """What is remembered of a statement that made or dropped a table."""
    return sha256(f"definition {token}".encode()).hexdigest()[:MARK_DIGITS]


def file_format_named(name: str) -> FileFormatName:
    """The file format of that name. Raises `SqlError` for one that there is not."""
    for known in FILE_FORMATS:
        if known == name:
            return known
    raise SqlError(f"no file format '{name}': a table is kept as {' or '.join(FILE_FORMATS)}")


def incarnation_of(token: str) -> str:
    """That of the table which the statement makes, however often it is sent."""
    return sha256(token.encode()).hexdigest()[:INCARNATION_DIGITS]
