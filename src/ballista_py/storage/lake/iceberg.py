"""An Iceberg table where it lies: by a catalog of pyiceberg, or by its metadata alone.

pyiceberg reads metadata and manifests, and prunes; which deletes apply is decided here, because it knows neither
deletes by value nor, in manifests, what format version 3 says of deletion vectors. What a table's metadata says of how
its files are opened (`py-io-impl`, endpoints) is not followed: whoever can write the table would say it to us.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from ballista_py.errors import BallistaError, MissingExtra, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.secret import Secret
from ballista_py.storage.lake.declared import DeclaredLake
from ballista_py.storage.lake.iceberg_columns import columns_of
from ballista_py.storage.lake.iceberg_snapshot import IcebergSnapshot
from ballista_py.storage.lake.opening import KNOWN_OPTIONS, CredentialsNow, LakeOpener
from ballista_py.storage.lake.paths import require_below, true_path

FORMAT_VERSIONS = (1, 2, 3)
MAX_METADATA = 256 << 20
_MAX_METADATA_FILES = 100_000
_METADATA = re.compile(r"/metadata/(?:v?(\d+)(?:-[^/]*)?)(?:\.gz)?\.metadata\.json(?:\.gz)?$")


@define(eq=False)
class IcebergInPlace:
    """See `LakeTable`."""

    declared: DeclaredLake
    opener: LakeOpener
    given: CredentialsNow | None = None
    _catalog: Any = field(default=None, init=False, repr=False)
    _vended: Mapping[str, str] = field(factory=dict, init=False, repr=False)
    _location: str = field(default="", init=False)

    @property
    def there(self) -> str:
        """See `LakeTable`."""
        return self.declared.there

    def credentials(self) -> StorageCredentials | None:
        """See `LakeTable`. Those of a catalog are those of the last `snapshot`."""
        if self.given is not None:
            return self.given()
        if self.declared.catalog is None:
            return self.declared.credentials()
        if not self._vended or not self._location:
            return None
        values = {name: Secret(value) for name, value in self._vended.items()}
        return StorageCredentials(location=self._location, values=values)

    def snapshot(self, version: str | int | None = None, timestamp_ms: int | None = None) -> IcebergSnapshot:
        """See `LakeTable`."""
        with told(self.there):
            metadata, location = self._metadata()
            places = self._places(metadata, location)
            return self._snapshot(metadata, places, self._chosen(metadata, version, timestamp_ms))

    def _metadata(self) -> tuple[Any, str]:
        """The newest metadata of the table, and where it lies."""
        if self.declared.catalog is None:
            return self._by_path()
        if self._catalog is None:
            self._catalog = _load_catalog()(self.declared.catalog, **self.declared.properties)
        table = self._catalog.load_table(self.declared.table)
        own = {**self._catalog.properties, **table.config}
        noted = table.metadata.properties
        vended = {
            name: value
            for name, value in table.io.properties.items()
            if name in KNOWN_OPTIONS and (name in own or noted.get(name) != value)
        }
        self._vended = {**vended, **{n: v for n, v in self.declared.options.items() if n in KNOWN_OPTIONS}}
        self._location = table.metadata.location
        return table.metadata, table.metadata_location

    def _by_path(self) -> tuple[Any, str]:
        _load_catalog()
        from pyiceberg.table.metadata import TableMetadataUtil

        now = self.credentials()
        path = str(self.declared.path)
        if not path.endswith((".metadata.json", ".metadata.json.gz")):
            path = self._newest(path, now)
        data = self.opener.read(path, now, most=MAX_METADATA)
        if ".gz" in path.rpartition("/")[2]:
            data = _unzipped(data, self.there)
        return TableMetadataUtil.parse_raw(data.decode()), path

    def _newest(self, folder: str, now: StorageCredentials | None) -> str:
        """The metadata with the highest number in a table's folder."""
        found: dict[int, list[str]] = {}
        for file in self.opener.list(f"{folder.rstrip('/')}/metadata", now, _MAX_METADATA_FILES):
            match = _METADATA.search(file.path)
            if match:
                found.setdefault(int(match[1]), []).append(file.path)
        if not found:
            raise SourceUnfit(f"{self.there} has no metadata/*.metadata.json: is it an Iceberg table?")
        last = found[max(found)]
        if len(last) > 1:
            raise SourceUnfit(
                f"{self.there} has {len(last)} metadata files with the number {max(found)}: name one of them, or the "
                "catalog that knows"
            )
        return last[0]

    def _places(self, metadata: Any, location: str) -> tuple[str, ...]:
        """Below what the files of the table may lie: by a catalog what the table says, else the declared folder."""
        folder = _METADATA.sub("", true_path(location))
        if self.declared.catalog is None:
            return (folder, *self.declared.locations)
        return (folder, metadata.location, *self.declared.locations)

    def _chosen(self, metadata: Any, version: str | int | None, timestamp_ms: int | None) -> Any:
        if version is not None and timestamp_ms is not None:
            raise SourceUnfit(f"{self.there} was asked for a version and for a time: say one of them")
        if timestamp_ms is not None:
            entries = [one for one in metadata.snapshot_log if one.timestamp_ms <= timestamp_ms]
            found = metadata.snapshot_by_id(entries[-1].snapshot_id) if entries else None
            if found is None:
                raise SourceLost(f"{self.there} has kept no snapshot of that time")
            return found
        if version is None:
            return metadata.current_snapshot()
        found = metadata.snapshot_by_name(version) if isinstance(version, str) else None
        if found is None and (isinstance(version, int) or version.isdecimal()):
            found = metadata.snapshot_by_id(int(version))
        if found is None:
            raise SourceLost(f"{self.there} has no snapshot, branch or tag '{str(version)[:60]}'")
        return found

    def _snapshot(self, metadata: Any, places: tuple[str, ...], chosen: Any) -> IcebergSnapshot:
        if metadata.format_version not in FORMAT_VERSIONS:
            raise SourceUnfit(f"{self.there} has the format version {metadata.format_version}, which is not read")
        if any(name.startswith("encryption.") for name in metadata.properties):
            raise SourceUnfit(f"{self.there} is encrypted, which is not read: copy it with its own engine")
        if chosen is not None and chosen.schema_id is not None:
            schemas = {schema.schema_id: schema for schema in metadata.schemas}
            if chosen.schema_id not in schemas:
                raise SourceUnfit(f"{self.there} has lost the columns of snapshot {chosen.snapshot_id}")
            current = metadata.current_snapshot()
            if (
                current is None or current.snapshot_id != chosen.snapshot_id
            ):  # a later change of columns counts now
                metadata = metadata.model_copy(update={"current_schema_id": chosen.schema_id})
        schema = columns_of(metadata.schema(), metadata.properties, self.there)
        if chosen is not None:
            if chosen.manifest_list is None:
                raise SourceUnfit(f"snapshot {chosen.snapshot_id} of {self.there} has no list of manifests")
            require_below(chosen.manifest_list, places, self.there)
        return IcebergSnapshot(
            there=self.there, schema=schema, places=places, metadata=metadata, chosen=chosen, table=self
        )

    def file_io(self) -> Any:
        """What reads metadata, with the credentials of now."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        now = self.credentials()
        return PyArrowFileIO({} if now is None else {name: one.reveal() for name, one in now.values.items()})


@contextmanager
def told(there: str) -> Iterator[None]:
    """Errors of pyiceberg as ours; of its own words only what kind they are."""
    try:
        yield
    except BallistaError:
        raise
    except RecursionError:
        raise SourceUnfit(f"{there} has metadata that is nested very deeply") from None
    except MemoryError:
        raise
    except Exception as error:
        kind = type(error).__name__
        if kind in ("NoSuchTableError", "NoSuchNamespaceError"):
            raise SourceUnfit(f"the catalog has no such table: {there}") from None
        if kind in ("ValidationError", "UnicodeDecodeError", "JSONDecodeError"):
            raise SourceUnfit(f"{there} has metadata that cannot be read ({kind})") from None
        if isinstance(error, ModuleNotFoundError):
            raise MissingExtra.of(str(error.name), "iceberg") from None
        if isinstance(error, FileNotFoundError):
            raise SourceLost(f"{there} has thrown away files of this snapshot") from None
        raise SourceUnavailable(f"{there} cannot be read ({kind})") from None


def _unzipped(data: bytes, there: str) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    found = unzip.decompress(data, MAX_METADATA)
    if not unzip.eof:
        raise SourceUnfit(f"{there} has metadata that is cut, or of more than {MAX_METADATA:,} bytes")
    return found


def _load_catalog() -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingExtra.of("pyiceberg", "iceberg") from None
    return load_catalog
