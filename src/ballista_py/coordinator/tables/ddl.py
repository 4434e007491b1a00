"""CREATE and DROP of managed tables, at a scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.queries.first_rows import FirstRows
from ballista_py.coordinator.tables.definitions import INCARNATION_DIGITS, TableMaker
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.rounds import FIRST_WAIT_MS, Growth
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import FILE_FORMATS, Distribution, FileFormatName, TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.changes import DropTable
from ballista_py.state.documents.resends import PATIENCE_MS
from ballista_py.state.documents.write_tokens import of_nobody
from ballista_py.work import pause, require_wanted

MARK_DIGITS = 16
COPIES_MS, LOOK_MS = 3_000.0, 500.0
MAX_DROPPED = 100  # at once: each is a commit of its own, and the last 1,024 are remembered


@frozen
class TableWrites:
    """Makes and ends tables, and tells the executors. Thread-safe."""

    views: Views
    tables: TableMaker
    growth: Growth
    checks: RowChecks
    first: FirstRows
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
        replaces: bool = False,
        file_format: str = "parquet",
        token: str,
        rows: Iterable[pa.RecordBatch] | None = None,
        distribution: Distribution | None = None,
        colocate_with: str | None = None,
        refresh: Refresh | None = None,
        retention: Retention | None = None,
        query: str | None = None,
    ) -> int:
        """Create a managed table, of `rows` if they are given; how many they are. `replaces` as `TableMaker.create`.

        It is seen with all of its rows, or not at all; with a `query` it is a materialized view. The same statement
        sent again is content, also if its table was dropped since. Without a `distribution` one without keys is kept
        whole by every executor.
        """
        earlier = self.done(name, token)
        if earlier is not None:
            return earlier
        # Two attempts of one statement read at different moments, so that each needs files of its own.
        incarnation = incarnation_of(token) if rows is None and not replaces else None
        self.checks.require_valid(name, schema, checks)
        if retention is not None:
            self.checks.require_retention(name, schema, retention)

        def fill(table: TableSpec) -> dict[tuple[Any, ...], float]:
            return self.first.write(table, self.checks.batches(table, rows or ()), token)

        try:
            self.tables.create(
                name,
                None,
                partition_by,
                schema=schema,
                distribution=distribution or ("partitioned" if partition_by else "replicated"),
                colocate_with=colocate_with,
                primary_key=primary_key,
                checks=checks,
                file_format=file_format_named(file_format),
                incarnation=incarnation,
                mark=mark_of(token),
                fill=None if rows is None else fill,
                replaces=replaces,
                refresh=refresh,
                retention=retention,
                query=query,
            )
        except ConfigError:
            found = self.views.refresh({name}).catalog.tables.get(name)
            earlier = self.tables.done(*marks_of(token))
            if earlier is None and (found is None or not (if_not_exists or found.incarnation == incarnation)):
                raise
            if earlier is None:
                self.tables.note(mark_of(token))
        self._served(name)
        return self.tables.done(*marks_of(token)) or 0

    def done(self, name: str, token: str) -> int | None:
        """Of how many rows the statement has made the table, which is served then; None if it has not yet."""
        earlier = self.tables.done(*marks_of(token))
        if earlier is not None:
            self._served(name)
        return earlier

    def _served(self, name: str) -> None:
        """Return when the table, if it is there, is served everywhere.

        Who is to hold a copy and loads nothing, because it hangs or is not what it says, is waited for no longer than
        `COPIES_MS` after the owners. A leg that comes to it before it has loaded the table is planned again.
        """
        self.growth.reconcile_table(name)
        if name not in self.views.refresh({name}).catalog.tables:
            return
        looked_ms = self.runtime.monotonic_ms()
        deadline_ms = looked_ms + self.patience_ms
        owned = False
        while not self.growth.table_is_served(name) and self.runtime.monotonic_ms() < deadline_ms:
            if self.runtime.monotonic_ms() - looked_ms > LOOK_MS:  # another client may have dropped it
                looked_ms = self.runtime.monotonic_ms()
                if name not in self.views.refresh({name}).catalog.tables:
                    return
            if not owned and self.growth.table_is_served(name, by_owners=True):
                owned = True
                deadline_ms = min(deadline_ms, self.runtime.monotonic_ms() + COPIES_MS)
            pause(self.runtime, FIRST_WAIT_MS)

    def drop(self, change: DropTable, token: str) -> int:
        """End tables; 0, as no row is counted. Raises `SqlError` when there is none, before any of several is ended.

        The same statement sent again does nothing, also if there is another table of that name by now.
        """
        if len(change.tables) > MAX_DROPPED:
            raise SqlError(f"DROP names {len(change.tables):,} tables, more than {MAX_DROPPED}: send several")
        table = {name: f" {name}" if len(change.tables) > 1 else "" for name in change.tables}
        marks = {name: marks_of(token, more) for name, more in table.items()}
        due = [name for name, known in marks.items() if self.tables.done(*known) is None]
        if not due:
            return 0
        view = self.views.refresh(due)
        there = view.catalog.tables
        named = next((name for name in due if name in view.sql_views), None)
        if named is not None:
            kind = ", and no materialized one" if change.kept_up else ""
            raise SqlError(f"'{named}' is a view{kind}: drop it with DROP VIEW")
        plain = next(
            (name for name in due if change.kept_up and name in there and there[name].query is None), None
        )
        if plain is not None:
            raise SqlError(f"'{plain}' is a table: drop it with DROP TABLE")
        missing = [name for name in due if name not in there and not change.if_exists]
        if missing and len(due) > 1:
            raise SqlError(f"table '{missing[0]}' does not exist: nothing was dropped")
        for name in due:
            require_wanted()
            if not self.tables.drop(name, marks[name][0]):
                if not change.if_exists:
                    raise SqlError(f"table '{name}' does not exist")
                self.tables.note(marks[name][0])
        self.growth.reconcile_table(*due)
        return 0

    def exists_already(self, name: str, token: str) -> bool:
        """Whether there is a table of that name, so that a statement that makes it if there is none is done."""
        found = self.exists(name)
        if found:
            self.tables.note(mark_of(token))
        return found

    def exists(self, name: str) -> bool:
        """Whether there is a table of that name now."""
        return name in self.views.refresh({name}).catalog.tables


def mark_of(token: str) -> str:
    """What is remembered of a statement that made or dropped a table."""
    return sha256(f"definition {token}".encode()).hexdigest()[:MARK_DIGITS]


def marks_of(token: str, table: str = "") -> tuple[str, ...]:
    """The mark of a statement, and the one that releases gave it which did not tell clients apart."""
    return mark_of(f"{token}{table}"), mark_of(f"{of_nobody(token)}{table}")


def file_format_named(name: str) -> FileFormatName:
    """The file format of that name. Raises `SqlError` for one that there is not."""
    for known in FILE_FORMATS:
        if known == name:
            return known
    raise SqlError(f"no file format '{name}': a table is kept as {' or '.join(FILE_FORMATS)}")


def incarnation_of(token: str) -> str:
    """That of the table which the statement makes, however often it is sent."""
    return sha256(token.encode()).hexdigest()[:INCARNATION_DIGITS]
