"""Places in the history of tables: whoever has two of them is told which rows came and went in between."""

from __future__ import annotations

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.reads.changes import EVERY_FILE, changed_parts
from ballista_py.coordinator.reads.cutting import MAX_PARTS, parts_of
from ballista_py.coordinator.reads.planning import PartPlan
from ballista_py.coordinator.reads.service import PlannedRead, TableReads, checked_lease
from ballista_py.errors import SqlError, Unsupported
from ballista_py.partitions.columns import plain
from ballista_py.partitions.expression.nodes import quote_name
from ballista_py.storage.reads.files import ReadFiles


@frozen(kw_only=True)
class PlacedRead:
    """A place: a read job that names every file of a table, and gives no rows itself. No id: nothing was begun."""

    read_id: str
    lease_ms: int
    columns: pa.Schema
    mark: bytes


@frozen
class TablePlaces:
    """Begins places and tells what lies between them, over `reads`. Safe to share between threads."""

    reads: TableReads

    def begin(
        self, name: str, client: str, *, lease_ms: int = 0, unless: bytes = b"", one_instant: bool = True
    ) -> PlacedRead:
        """The place where a table is now, which is kept for as long as it is renewed.

        Nothing is begun where its files are those of the place with the mark `unless`. Raises `SqlError` for a table
        that there is not, `TryLater` as `Snapshots.of`, and `ConfigError` for too many files.
        """
        lease_ms = checked_lease(lease_ms)
        view = self.reads.queries.views.refresh([name.lower()])
        found = next((one for one in view.catalog.tables if one.lower() == name.lower()), None)
        if found is None and name.lower() in view.scanned:
            raise view.scanned[name.lower()].refused("its own format gives out its files and their changes")
        if found is None:
            raise view.unusable.get(name) or SqlError(f"table '{name}' does not exist")
        if found in view.catalog.barriers:
            raise Unsupported(f"policies hide rows or values of table '{found}': its files are not given out")
        table, pmap = view.catalog.tables[found], view.catalog.maps[found]
        snapshot = self.reads.snapshots.of(table, pmap, range(len(pmap)), one_instant=one_instant)
        files = ReadFiles(
            table=table.name,
            folder=table.folder,
            incarnation=table.incarnation,
            schema=table.schema,
            parts=parts_of(snapshot.files, {}, target_bytes=MAX_PARTS << 40, divides=True),
            definition=table.definition,
            plan=EVERY_FILE,
            columns=tuple(table.schema.names),
            given=plain(table.schema),
        )
        mark = bytes.fromhex(files.to_bytes()[1])
        read_id = ""
        if mark != unless:
            read_id, _ = self.reads.leases.take(files, client, snapshot.fixed_ms, lease_ms)
        return PlacedRead(read_id=read_id, lease_ms=lease_ms, columns=files.given, mark=mark)

    def between(
        self, since: str, until: str, client: str, *, lease_ms: int = 0
    ) -> tuple[PlannedRead, tuple[int, ...]]:
        """A read job of the files that went and came between two places (`since` may be empty), and how many sections
        of each of its parts went.

        The same places give the same parts. Raises `SnapshotGone` for a place that is over, and as `changed_parts`.
        """
        reads, lease_ms = self.reads, checked_lease(lease_ms)
        fixed_ms = reads.runtime.monotonic_ms()  # a place that lives names its files, as manifests do
        before = reads.files_of(since, client)[0] if since else None
        after, _ = reads.files_of(until, client)
        changed = changed_parts(before, after)
        plan = PartPlan(
            table=after.table,
            partitions=(),
            sql=f"SELECT * FROM {quote_name(after.table)}",
            columns=after.columns,
            divides=True,
            rest=None,
            relation="",
            passes_rows=True,
        )
        files = evolve(after, parts=tuple(part for part, _ in changed), plan=plan.sql, row_by_row=True)
        read_id, digest = reads.leases.take(files, client, fixed_ms, lease_ms)
        view = reads.queries.views.refresh([files.table.lower()])
        read = PlannedRead(
            read_id=read_id,
            lease_ms=lease_ms,
            output=files.given,
            plan=plan,
            given=files.given,
            base=files.given,
            parts=reads.placed(read_id, digest, files, range(len(files.parts)), view, client),
        )
        return read, tuple(former for _, former in changed)
