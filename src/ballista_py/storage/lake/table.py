"""A table of a lake as a cluster sees it, whatever its format: snapshots that do not change, and their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import FileSlice, ScanCondition
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.lake.declared import declared_lake
from ballista_py.storage.lake.opening import CredentialsNow, LakeOpener


class LakeSnapshot(Protocol):
    """A table at one moment; it does not change. Safe to share between threads.

    - `id`: names the moment: the snapshot id of Iceberg, the version of Delta, a digest of the listing of Parquet
      files. `table.snapshot(version=id)` gives the same again, as long as it is kept; not for Parquet.
    - `schema`: the columns with types that the cluster can hold, and in the metadata of the fields what a reader
      needs: a task's schema is some of these fields as they are.
    - `rows`, `bytes`: of all files together, before deletes, where that is known.
    - `statistics`: of columns, where they cost nothing; none are there for others.
    """

    @property
    def id(self) -> str: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def bytes(self) -> int | None: ...
    @property
    def statistics(self) -> Mapping[str, ColumnStatistics]: ...

    def files(
        self,
        filter: Sequence[ScanCondition] = (),  # noqa: A002
        columns: Sequence[str] | None = None,
    ) -> tuple[FileSlice, ...]:
        """The files that may hold rows for which all conditions hold, each with all deletes that apply to it.

        `columns` are those that will be read (None: all). Conditions on columns that the table has not, or with values
        of another type than the column, are refused (`SchemaMismatch`).
        """
        ...


class LakeTable(Protocol):
    """A table of a lake. Safe to share between threads."""

    @property
    def there(self) -> str:
        """What errors call it."""
        ...

    def snapshot(self, version: str | int | None = None, timestamp_ms: int | None = None) -> LakeSnapshot:
        """The table as it is now, was at a version, or was at a time (milliseconds since 1970).

        `version` is a snapshot id (Iceberg, or the name of a branch or tag) or a version (Delta); Parquet has neither.
        Raises `SourceUnfit` for what cannot be read here, by name; `SourceLost` for a version that is not kept;
        `SourceUnavailable` where the catalog or the store does not answer.
        """
        ...

    def credentials(self) -> StorageCredentials | None:
        """What opens its files: what was given, else what the catalog vended or the declaration says. None: whatever
        the process itself has."""
        ...


def open_table(
    scan: Mapping[str, Any], credentials: CredentialsNow | None = None, *, opener: LakeOpener | None = None
) -> LakeTable:
    """The table that a declaration names; nothing is asked before `snapshot`.

    - `{"format": "iceberg", "catalog": {properties of pyiceberg, and `name`} or a name, "table": "ns.t"}`
    - `{"format": "iceberg", "path": a metadata.json or the folder of the table, "options": {…}}`
    - `{"format": "delta", "path": …, "options": {…}}`
    - `{"format": "parquet", "path": a folder or a glob, "options": {…}}`

    Paths are absolute ones of this machine, `file://` or `s3://`. `options` has the names that pyiceberg's FileIO has
    (`s3.endpoint`, `s3.access-key-id`, …). `locations` is a list of further places below which files of the table may
    lie. Raises `ConfigError` for anything else in it, and `MissingExtra`.
    """
    declared = declared_lake(scan)
    opener = opener or LakeOpener()
    if declared.format == "iceberg":
        from ballista_py.storage.lake.iceberg import IcebergInPlace

        return IcebergInPlace(declared, opener, credentials)
    if declared.format == "delta":
        from ballista_py.storage.lake.delta import DeltaInPlace

        return DeltaInPlace(declared, opener, credentials)
    from ballista_py.storage.lake.parquet import ParquetInPlace

    return ParquetInPlace(declared, opener, credentials)
