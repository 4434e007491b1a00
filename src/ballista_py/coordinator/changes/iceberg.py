"""An Iceberg table to which rows are only appended, as a source of changes, read without a JVM.

Positions are the sequence numbers of its snapshots, which its format counts up and never gives twice. A snapshot that
only wrote the same rows anew (a compaction) changes nothing; any other one that is no append stops the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.changes.source import Described, SourceLag
from ballista_py.coordinator.changes.versioned import VersionChanges
from ballista_py.errors import BallistaError, MissingExtra, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.storage.lake.lake_types import kept_schema

COUNTED_VERSION = 2  # of the format, from which on snapshots have sequence numbers
_APPEND, _COMPACTION = "append", "replace"


@define(eq=False)
class IcebergLake:
    """A table of an Iceberg catalog, as a `VersionedTable`."""

    table_name: str
    catalog: str
    properties: Mapping[str, str] = field(repr=False)
    _table: Any = field(default=None, init=False)

    @property
    def there(self) -> str:
        """See `VersionedTable`."""
        return f"the Iceberg table {self.table_name}"

    def look(self) -> None:
        """See `VersionedTable`."""
        load_catalog = _library()
        with self._told():
            if self._table is None:
                self._table = load_catalog(self.catalog, **self.properties).load_table(self.table_name)
            else:
                self._table.refresh()
            version = int(self._table.format_version)
        if version < COUNTED_VERSION:
            raise SourceUnfit(
                f"{self.there} has format version {version}, in which snapshots have no order: set its property "
                f"format-version to {COUNTED_VERSION} there"
            )

    def identity(self) -> str:
        """See `VersionedTable`."""
        return f"iceberg-{self._table.metadata.table_uuid}"

    def columns(self) -> Described:
        """See `VersionedTable`."""
        schema = self._table.schema()
        with self._told():
            shown = kept_schema(self.there, schema.as_arrow())
            key = tuple(schema.find_column_name(number) for number in schema.identifier_field_ids)
        filled = frozenset(f.name for f in schema.fields if getattr(f, "initial_default", None) is not None)
        return Described(schema=shown, primary_key=key, filled=filled)

    def latest(self) -> int | None:
        """See `VersionedTable`."""
        now = self._table.current_snapshot()
        return None if now is None else int(now.sequence_number)

    def rows(self, version: int) -> Iterator[pa.RecordBatch]:
        """See `VersionedTable`."""
        then = next(snapshot for snapshot in self._line() if snapshot.sequence_number == version)
        with self._told(lost=False):
            yield from self._read(self._table.scan(snapshot_id=then.snapshot_id).plan_files())

    def versions(self, after: int) -> Iterator[int]:
        """See `VersionedTable`."""
        later: list[Any] = []
        met = after == 0
        for snapshot in self._line():
            if snapshot.sequence_number <= after:
                met = snapshot.sequence_number == after
                break
            later.append(snapshot)
        begins = not later or later[-1].parent_snapshot_id is None
        if not met or (after == 0 and not begins):
            raise SourceLost(
                f"{self.there} has no snapshot with the sequence number {after} any more that its rows of now come "
                "from: it was expired, or rolled back; copy the table anew"
            )
        yield from (int(snapshot.sequence_number) for snapshot in reversed(later))

    def changes(self, version: int) -> VersionChanges:
        """See `VersionedTable`."""
        snapshot = next(found for found in self._line() if found.sequence_number == version)
        kind = "unknown" if snapshot.summary is None else str(snapshot.summary.operation.value)
        if kind not in (_APPEND, _COMPACTION):
            raise SourceLost(
                f"snapshot {snapshot.snapshot_id} of {self.there} is no append but of the kind '{kind}', which does "
                "not tell the rows that went: copy the table anew"
            )
        none = kept_schema(self.there, self._table.schema().as_arrow()).empty_table()
        if kind == _COMPACTION:
            return VersionChanges(went=none, came=none)
        with self._told():
            scan = self._table.incremental_append_scan(
                from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
                to_snapshot_id_inclusive=snapshot.snapshot_id,
            )
            batches = list(self._read(scan.plan_files()))
        return VersionChanges(went=none, came=pa.Table.from_batches(batches, schema=none.schema))

    def lag(self, after: int) -> SourceLag:
        """See `VersionedTable`: as the summaries of snapshots count rows and bytes."""
        rows = size = 0
        for snapshot in self._line():
            if snapshot.sequence_number <= after:
                break
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            rows += int(summary.get("added-records", 0))
            size += int(summary.get("added-files-size", 0))
        return SourceLag(bytes=size, rows=rows)

    def _read(self, files: Any) -> Iterator[pa.RecordBatch]:
        """The rows of files in the columns that the table has now: of those that came later they have none."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        columns = self._table.schema()
        wanted = kept_schema(self.there, columns.as_arrow())
        scan = ArrowScan(self._table.metadata, self._table.io, columns, AlwaysTrue())
        for batch in scan.to_record_batches(list(files)):
            yield batch.cast(wanted)

    def _line(self) -> Iterator[Any]:
        """The current snapshot and those that it was made of, as far as they are kept."""
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    @contextmanager
    def _told(self, *, lost: bool = True) -> Iterator[None]:
        """Errors of the library as ours; of its own words only what kind they are."""
        try:
            yield
        except BallistaError:
            raise
        except Exception as error:
            kind = type(error).__name__
            if kind in ("NoSuchTableError", "NoSuchNamespaceError"):
                raise SourceUnfit(f"catalog '{self.catalog}' has no table {self.table_name}") from None
            if lost and isinstance(error, FileNotFoundError) and self._table is not None:
                raise SourceLost(
                    f"{self.there} has thrown away files that are lacking here: copy the table anew"
                ) from None
            raise SourceUnavailable(f"{self.there} cannot be read ({kind})") from None


def _library() -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingExtra.of("pyiceberg", "iceberg") from None
    return load_catalog
