"""A Delta table as a source of changes: its change data feed, read without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from ballista_py.coordinator.changes.source import Described, SourceLag
from ballista_py.coordinator.changes.versioned import VersionChanges
from ballista_py.errors import BallistaError, MissingExtra, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.storage.lake.lake_types import kept_schema

FEED = "delta.enableChangeDataFeed"
_OWN = ("_change_type", "_commit_version", "_commit_timestamp")
_GONE = re.compile(
    r"not found|no such file|NotFound|NoSuchKey|invalid table version|no files in log", re.IGNORECASE
)
MAX_COMPARED = 20  # commits that are read to see how far away a table is
_COUNTS = (  # of the writers that there are
    "num_added_rows", "num_deleted_rows", "num_updated_rows", "num_target_rows_inserted", "num_target_rows_updated",
    "num_target_rows_deleted", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted",
    "numDeletedRows", "numUpdatedRows",
)  # fmt: skip


@define(eq=False)
class DeltaLake:
    """A Delta table at a location, as a `VersionedTable`."""

    location: str
    storage: Mapping[str, str] = field(repr=False)
    _table: Any = field(default=None, init=False)
    _newest: tuple[int, Any] = field(default=(0, None), init=False)  # version and commit, as last looked at

    @property
    def there(self) -> str:
        """See `VersionedTable`."""
        return f"the Delta table at {self.location}"

    def look(self) -> None:
        """See `VersionedTable`."""
        with self._told():
            if self._table is None or not self._is_same():
                self._table = self._opened()
            newest = self._table.history(1)
            self._newest = (self._table.version(), newest[0] if newest else {})
            enabled = self._table.metadata().configuration.get(FEED)
        if str(enabled).lower() != "true":
            raise SourceUnfit(
                f"{self.there} keeps no change data: run ALTER TABLE … SET TBLPROPERTIES ({FEED} = true) there; what "
                "it did before that can only be copied"
            )

    def _is_same(self) -> bool:
        """Whether what is there is what was opened, with more commits: those known do not tell of another table."""
        self._table.update_incremental()
        version, commit = self._newest
        since = self._table.version() - version
        if not 0 <= since <= MAX_COMPARED:
            return False
        commits = self._table.history(since + 1)
        return len(commits) == since + 1 and bool(commits[-1] == commit)

    def _opened(self, version: int | None = None) -> Any:
        return _library().DeltaTable(self.location, version=version, storage_options=dict(self.storage) or None)

    def identity(self) -> str:
        """See `VersionedTable`."""
        return f"delta-{self._table.metadata().id}"

    def columns(self) -> Described:
        """See `VersionedTable`."""
        with self._told():
            shown = pa.schema(self._table.schema().to_arrow())
        return Described(schema=kept_schema(self.there, shown), primary_key=())

    def latest(self) -> int | None:
        """See `VersionedTable`."""
        return int(self._table.version())

    def rows(self, version: int) -> Iterator[pa.RecordBatch]:
        """See `VersionedTable`."""
        with self._told(
            lost=False
        ):  # files that were cleaned up under a slow copy: the next one is of a later version
            for batch in pa.RecordBatchReader.from_stream(self._opened(version).scan()):
                yield batch.cast(kept_schema(self.there, batch.schema))

    def versions(self, after: int) -> Iterator[int]:
        """See `VersionedTable`."""
        yield from range(after + 1, int(self._table.version()) + 1)

    def changes(self, version: int) -> VersionChanges:
        """See `VersionedTable`."""
        with self._told():
            found = pa.table(self._table.load_cdf(starting_version=version, ending_version=version))
        kinds = found.column("_change_type").cast(pa.string())
        known = pc.is_in(kinds, pa.array(["insert", "delete", "update_preimage", "update_postimage"]))
        if not pc.all(known).as_py() and len(found):
            raise SourceUnfit(f"version {version} of {self.there} tells changes of a kind that is not known")
        rows = found.drop_columns([name for name in _OWN if name in found.schema.names])
        rows = rows.cast(kept_schema(self.there, rows.schema))
        comes = pc.is_in(kinds, pa.array(["insert", "update_postimage"]))
        return VersionChanges(went=rows.filter(pc.invert(comes)), came=rows.filter(comes))

    def lag(self, after: int) -> SourceLag:
        """See `VersionedTable`: rows of versions whose writer counted them."""
        behind = int(self._table.version()) - after
        if behind <= 0:
            return SourceLag(bytes=0, rows=0)
        if behind > MAX_COMPARED:
            return SourceLag()
        with self._told():
            counts = [_changed(commit.get("operationMetrics") or {}) for commit in self._table.history(behind)]
        return SourceLag(rows=None if None in counts else sum(count or 0 for count in counts))

    @contextmanager
    def _told(self, *, lost: bool = True) -> Iterator[None]:
        """Errors of the library as ours; of the store's own words only what kind they are."""
        try:
            yield
        except BallistaError:
            raise
        except Exception as error:
            said = str(error)
            kind = type(error).__name__
            if "change data enabled" in said:
                raise SourceLost(
                    f"{self.there} kept no change data for a version that is lacking here: copy the table anew"
                ) from None
            if lost and self._table is not None and _GONE.search(said):
                raise SourceLost(
                    f"{self.there} has thrown away files or versions that are lacking here (VACUUM, or the time that "
                    "it keeps its log): copy the table anew"
                ) from None
            if "protocol" in kind.lower() or "unsupported" in said.lower():
                raise SourceUnfit(f"{self.there} uses a feature that cannot be read here ({kind})") from None
            raise SourceUnavailable(f"{self.there} cannot be read ({kind})") from None


def _changed(metrics: Mapping[str, Any]) -> int | None:
    """How many rows a commit changed, as its writer counted; None where it did not."""
    found = [int(metrics[name]) for name in _COUNTS if str(metrics.get(name, "")).isdecimal()]
    if not found and str(metrics.get("numOutputRows", "")).isdecimal():
        found = [int(metrics["numOutputRows"])]
    return sum(found) if found else None


def _library() -> Any:
    try:
        import deltalake
    except ImportError:
        raise MissingExtra.of("deltalake", "delta") from None
    return deltalake
