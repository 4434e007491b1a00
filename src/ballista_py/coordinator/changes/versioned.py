"""A table of a lake as a source of changes: its commits are versions, which it keeps by itself.

Positions count versions in the log of one table; a table that takes the place of another one there has another log.
Nothing is kept for those who read, so there is nothing to confirm: what the table has forgotten is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from attrs import define, frozen

from ballista_py.coordinator.changes.batches import keys_of
from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeBatch, Described, SourceLag
from ballista_py.errors import SchemaMismatch, SourceLost, SourceUnfit
from ballista_py.partitions.conform import check_columns, conform
from ballista_py.partitions.same_key import first_doubled
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import SourcePosition

MAX_BATCH_BYTES = 512 << 20  # of rows, in one batch: a version comes whole
MAX_VERSIONS = 1_000  # in one batch
COPY_ROWS = 65_536


@frozen
class VersionChanges:
    """What one version did: the rows that it took away, and then those that it put in."""

    went: pa.Table
    came: pa.Table


class VersionedTable(Protocol):
    """A table of a lake. Each method raises `SourceUnavailable`, `SourceLost` or `SourceUnfit`."""

    @property
    def there(self) -> str:
        """What it is called in errors."""
        ...

    def look(self) -> None:
        """Look at what it is now; the others tell of that."""
        ...

    def identity(self) -> str:
        """What no other table has that was or will be in its place: letters, digits and dashes."""
        ...

    def columns(self) -> Described:
        """Its columns, and the key that it declares, if any."""
        ...

    def latest(self) -> int | None:
        """Its last version; None for one that has none yet."""
        ...

    def rows(self, version: int) -> Iterator[pa.RecordBatch]:
        """All rows as of a version."""
        ...

    def versions(self, after: int) -> Iterator[int]:
        """The versions that follow one, in their order. Raises `SourceLost` unless they all are there."""
        ...

    def changes(self, version: int) -> VersionChanges:
        """What a version did."""
        ...

    def lag(self, after: int) -> SourceLag:
        """How much follows a version."""
        ...


@define(eq=False)
class VersionedSource:
    """A `VersionedTable` as a `ChangeSource`, once the `table` that follows it is there. Used by one thread."""

    name: str
    lake: VersionedTable
    runtime: Runtime
    table: TableSpec | None = None

    def describe(self, primary_key: Sequence[str] = ()) -> Described:
        """The columns and the primary key of the table, or these columns as its key. Raises `SourceUnfit`."""
        self.lake.look()
        found = self.lake.columns()
        key = tuple(primary_key) or found.primary_key
        if not key:
            raise SourceUnfit(
                f"{self.lake.there} declares no key: name columns that are unique and never null there by "
                "primary_key=[…]"
            )
        unknown = next((name for name in key if name not in found.schema.names), None)
        if unknown is not None:
            raise SourceUnfit(f"{self.lake.there} has no column '{unknown}' for the primary key")
        schema = pa.schema(
            [column.with_nullable(column.nullable and column.name not in key) for column in found.schema]
        )
        return Described(schema=schema, primary_key=key, filled=found.filled)

    def snapshot(self) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
        """See `ChangeSource.snapshot`."""
        self.describe(self._mine.primary_key)
        require_same(self._mine, self.lake)
        log = f"{self.lake.identity()}.{self.runtime.new_id()[:8]}"  # each copy has a log: two of one version are two
        version = self.lake.latest()
        if version is None:
            return SourcePosition(0, log), iter(())
        return SourcePosition(version, log), self._rows(version)

    def _rows(self, version: int) -> Iterator[pa.RecordBatch]:
        for batch in self.lake.rows(version):
            for start in range(0, len(batch), COPY_ROWS):
                yield from fitting(self._mine, self.lake.there, batch.slice(start, COPY_ROWS)).to_batches()

    def read(self, after: SourcePosition, limit: int) -> ChangeBatch:
        """See `ChangeSource.read`."""
        self.lake.look()
        self._require_log(after)
        require_same(self._mine, self.lake)
        parts, to, count, size = [_no_changes(self._mine)], after.at, 0, 0
        for seen, version in enumerate(self.lake.versions(after.at)):
            if count >= limit or seen >= MAX_VERSIONS:
                break
            found = self.lake.changes(version)
            more = found.went.nbytes + found.came.nbytes
            if parts[1:] and size + more > MAX_BATCH_BYTES:
                break
            if more > MAX_BATCH_BYTES:
                raise SourceUnfit(
                    f"version {version} of {self.lake.there} has more than {MAX_BATCH_BYTES >> 20} MiB of changes, "
                    "more than can be applied at once: copy the table anew"
                )
            parts.append(self._changes(version, found))
            to, count, size = version, count + len(parts[-1]), size + more
        return ChangeBatch(changes=pa.concat_tables(parts), position=SourcePosition(to, after.log))

    def _changes(self, version: int, found: VersionChanges) -> pa.Table:
        """Rows that go first: of one key in one version the row that came is there afterwards."""
        table, there = self._mine, self.lake.there
        keys = keys_of(table)
        went = fitting(keys, there, found.went.select(keys.schema.names)).combine_chunks()
        came = fitting(table, there, found.came.select(table.schema.names)).combine_chunks()
        require_once(table, there, version, came)
        return changes_table(went, came, version)

    def confirm(self, position: SourcePosition) -> None:
        """See `ChangeSource.confirm`."""

    def discard(self, position: SourcePosition) -> None:
        """See `ChangeSource.discard`."""

    def lag(self, position: SourcePosition) -> SourceLag:
        """See `ChangeSource.lag`."""
        return self.lake.lag(position.at)

    def stirs(self) -> bool:
        """See `DescribedSource.stirs`."""
        return False

    def left_over(self, position: SourcePosition) -> tuple[str, ...]:
        """See `DescribedSource.left_over`."""
        return ()

    def give_up(self) -> None:
        """See `ChangeSource.give_up`."""

    def close(self) -> None:
        """See `ChangeSource.close`."""

    @property
    def _mine(self) -> TableSpec:
        assert self.table is not None
        return self.table

    def _require_log(self, after: SourcePosition) -> None:
        wanted, here = after.log.rpartition(".")[0], self.lake.identity()
        latest = self.lake.latest()
        if wanted != here:
            raise SourceLost(
                f"{self.lake.there} is another table than the one that table '{self.name}' followed up to {after}: "
                "copy it anew"
            )
        if (latest or 0) < after.at:
            raise SourceLost(
                f"{self.lake.there} is at version {latest}, before {after.at}, where table '{self.name}' stands: it "
                "was set back there; copy it anew"
            )


def require_same(table: TableSpec, lake: VersionedTable) -> None:
    """Raise `SourceUnfit` for a column that was added or dropped there."""
    names = lake.columns().schema.names
    added = next((name for name in names if name not in table.schema.names), None)
    dropped = next((name for name in table.schema.names if name not in names), None)
    if added is not None or dropped is not None:
        what = f"has a column '{added}' more" if added is not None else f"has no column '{dropped}' any more"
        raise SourceUnfit(f"{lake.there} {what} than table '{table.name}', which follows it: make the table anew")


def fitting(table: TableSpec, there: str, rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """The rows in the very columns of the table. Raises `SourceUnfit` for what does not fit."""
    given = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    given = given.select(table.schema.names)
    try:
        check_columns(table, given.schema)
        return pa.Table.from_batches([conform(table, batch) for batch in given.to_batches()], schema=table.schema)
    except SchemaMismatch as error:
        raise SourceUnfit(
            f"{there} does not fit table '{table.name}', which follows it: {error.message}"
        ) from error


def require_once(table: TableSpec, there: str, version: int, came: pa.Table) -> None:
    """Raise `SourceUnfit` if two rows of one key came in one version: one of them would be lost."""
    twice = first_doubled(came, table.primary_key)
    if twice is not None:
        shown = ", ".join(f"{name} = {str(twice[name])[:40]}" for name in table.primary_key)
        raise SourceUnfit(
            f"version {version} of {there} has two rows with {shown}, which is the primary key of table "
            f"'{table.name}': keep it unique there, then copy the table anew"
        )


def changes_table(went: pa.Table, came: pa.Table, at: int) -> pa.Table:
    """Changes of one commit: keys that go, and then rows that come."""
    gone, new = len(went), len(came)
    old = pa.concat_arrays([_structs(went), pa.nulls(new, _struct(went.schema))])
    rows = pa.concat_arrays([pa.nulls(gone, _struct(came.schema)), _structs(came)])
    return pa.table(
        {
            "op": pa.array(["delete"] * gone + ["insert"] * new, pa.string()),
            "old": old,
            "new": rows,
            AT_COLUMN: pa.array([at] * (gone + new), pa.int64()),
        }
    )


def _no_changes(table: TableSpec) -> pa.Table:
    return changes_table(keys_of(table).schema.empty_table(), table.schema.empty_table(), 0)


def _struct(schema: pa.Schema) -> pa.DataType:
    return pa.struct([pa.field(column.name, column.type) for column in schema])


def _structs(rows: pa.Table) -> pa.Array:
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in rows.combine_chunks().columns
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_struct(rows.schema)))
