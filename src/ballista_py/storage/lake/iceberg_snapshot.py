"""A snapshot of an Iceberg table, and which of its files a statement reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SourceUnfit
from ballista_py.scans.task import FileSlice, ScanCondition
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.lake.iceberg_columns import WAY_OUT, columns_of, expression_of
from ballista_py.storage.lake.iceberg_deletes import PATH_ID, DeleteEntry, DeleteIndex, referenced_path
from ballista_py.storage.lake.paths import require_below
from ballista_py.storage.lake.pruning import require_conditions

if TYPE_CHECKING:
    from ballista_py.storage.lake.iceberg import IcebergInPlace

MAX_MANIFESTS = 100_000
MAX_MANIFEST_BYTES = 512 << 20
_DATA, _DELETES = 0, 1
_MAX_FILES = 10_000_000


@frozen(kw_only=True, eq=False)
class IcebergSnapshot:
    """See `LakeSnapshot`. `chosen` is None for a table without a snapshot, which has no rows."""

    there: str
    schema: pa.Schema
    places: tuple[str, ...]
    metadata: Any = field(repr=False)
    chosen: Any = field(repr=False)
    table: IcebergInPlace = field(repr=False)
    statistics: Mapping[str, ColumnStatistics] = field(factory=dict, repr=False)

    @property
    def id(self) -> str:
        """See `LakeSnapshot`."""
        return "none" if self.chosen is None else str(self.chosen.snapshot_id)

    @property
    def rows(self) -> int | None:
        """See `LakeSnapshot`."""
        return self._total("total-records")

    @property
    def bytes(self) -> int | None:
        """See `LakeSnapshot`."""
        return self._total("total-files-size")

    def _total(self, name: str) -> int | None:
        if self.chosen is None:
            return 0
        found = {} if self.chosen.summary is None else self.chosen.summary.additional_properties
        text = str(found.get(name, ""))
        return int(text) if text.isdecimal() else None

    def files(
        self,
        filter: Sequence[ScanCondition] = (),  # noqa: A002
        columns: Sequence[str] | None = None,
    ) -> tuple[FileSlice, ...]:
        """See `LakeSnapshot`. Raises `SourceUnfit` for files of a kind that is not read."""
        from ballista_py.storage.lake.iceberg import told

        require_conditions(filter, self.schema)
        if self.chosen is None:
            return ()
        with told(self.there):
            io = self.table.file_io()
            manifests = self._manifests(io)
            index = DeleteIndex(self.there, self._equality_columns)
            for entry in self._deletes(io, [one for one in manifests if int(one.content) == _DELETES]):
                index.add(entry)
            data = [one for one in manifests if int(one.content) == _DATA]
            return tuple(self._slices(self._data_entries(io, data, filter), index))

    def _manifests(self, io: Any) -> list[Any]:
        found = self.chosen.manifests(io)
        if len(found) > MAX_MANIFESTS:
            raise SourceUnfit(
                f"{self.there} has more than {MAX_MANIFESTS:,} manifests: let its own engine merge them"
            )
        for one in found:
            require_below(one.manifest_path, self.places, self.there)
            if one.manifest_length > MAX_MANIFEST_BYTES or one.key_metadata:
                raise SourceUnfit(
                    f"{self.there} has a manifest that is encrypted, or of {one.manifest_length:,} bytes"
                )
        return list(found)

    def _data_entries(self, io: Any, manifests: list[Any], wanted: Sequence[ScanCondition]) -> Iterator[Any]:
        """Live data files that pyiceberg does not exclude by their partitions and statistics."""
        from pyiceberg.table import ManifestGroupPlanner

        planner = ManifestGroupPlanner(self.metadata, io, expression_of(wanted, self.metadata.schema()))
        for entries in planner.plan_manifest_entries(manifests):
            yield from entries

    def _deletes(self, io: Any, manifests: list[Any]) -> Iterator[DeleteEntry]:
        """Live entries of manifests of deletes, read as format version 3 has them."""
        for entries in self.table.opener.each(lambda one: self._read_deletes(io, one), manifests):
            yield from entries

    def _read_deletes(self, io: Any, manifest: Any) -> list[DeleteEntry]:
        from pyiceberg import manifest as forms
        from pyiceberg.avro.file import AvroFile

        file = io.new_input(manifest.manifest_path)
        enums: dict[int, Any] = {0: forms.ManifestEntryStatus, 101: forms.FileFormat, 134: forms.DataFileContent}
        types: dict[int, Any] = {-1: forms.ManifestEntry, 2: forms.DataFile}
        named = [one.name for one in forms.DATA_FILE_TYPE[3].fields]
        with AvroFile[Any](file, forms.MANIFEST_ENTRY_SCHEMAS[3], read_types=types, read_enums=enums) as entries:
            found = []
            for entry in entries:
                if entry.status == forms.ManifestEntryStatus.DELETED:
                    continue
                own = dict(zip(named, entry.data_file._data, strict=True))
                inherits = entry.sequence_number is None
                sequence = manifest.sequence_number if inherits else entry.sequence_number
                found.append(self._delete_entry(own, int(sequence or 0), manifest.partition_spec_id))
            return found

    def _delete_entry(self, own: Mapping[str, Any], sequence: int, spec: int) -> DeleteEntry:
        if own["key_metadata"]:
            raise SourceUnfit(f"{self.there} has encrypted deletes, which are not read")
        lower, upper = own["lower_bounds"] or {}, own["upper_bounds"] or {}
        content, form = int(own["content"]), str(own["file_format"].value)
        equality = tuple(int(number) for number in own["equality_ids"] or ())
        everywhere = content != 1 and not self.metadata.specs()[spec].fields
        return DeleteEntry(
            content=content,
            format=form,
            path=require_below(own["file_path"], self.places, self.there),
            size=int(own["file_size_in_bytes"]),
            rows=int(own["record_count"]),
            sequence=sequence,
            partition=None if everywhere else _partition(spec, own["partition"]),
            equality_ids=equality,
            referenced=referenced_path(own["referenced_data_file"], lower.get(PATH_ID), upper.get(PATH_ID)),
            offset=own["content_offset"],
            length=own["content_size_in_bytes"],
        )

    def _equality_columns(self, numbers: tuple[int, ...]) -> pa.Schema:
        """The columns of some ids: as they are now, or were last."""
        found = []
        for number in numbers:
            schemas = [self.metadata.schema(), *reversed(self.metadata.schemas)]
            schema = next((one for one in schemas if number in {f.field_id for f in one.fields}), None)
            if schema is None:
                raise SourceUnfit(
                    f"{self.there} has deletes by the column with the id {number}, which is none of its own: {WAY_OUT}"
                )
            one = type(schema)(schema.find_field(number))
            found.extend(columns_of(one, self.metadata.properties, self.there))
        names = [field.name for field in found]
        if len(set(names)) < len(names):
            found = [
                field.with_name(f"{field.name}~{number}") for field, number in zip(found, numbers, strict=True)
            ]
        return pa.schema([field.with_nullable(True) for field in found])

    def _slices(self, entries: Iterable[Any], index: DeleteIndex) -> Iterator[FileSlice]:
        lent = {spec: self._lent(spec) for spec in self.metadata.specs()}
        no_deletes = index.is_empty
        values: dict[Any, Any] = {}
        for entry in entries:
            file = entry.data_file
            if file.file_format.value != "PARQUET" or file.key_metadata:
                kind = "encrypted" if file.key_metadata else f"of the format {file.file_format.value}"
                raise SourceUnfit(
                    f"{self.there} has the file '{file.file_path}', which is {kind}: that is not read; let its own "
                    "engine rewrite it as Parquet"
                )
            path = require_below(file.file_path, self.places, self.there)
            spec = file.spec_id or 0
            key = (spec, tuple(file.partition))
            if key not in values:
                values[key] = _lent_values(lent[spec], file.partition)
            rows = file.record_count
            yield FileSlice(
                path=path,
                size=file.file_size_in_bytes,
                rows=rows if rows >= 0 else None,
                partition_values=values[key],
                found_by="field_id",
                deletes=()
                if no_deletes
                else index.of(path, entry.sequence_number or 0, _partition(spec, file.partition)),
            )

    def _lent(self, spec: int) -> list[tuple[int, pa.Field]]:
        """Columns whose values are partitions as they are, by their places in the partition of a spec."""
        from pyiceberg.transforms import IdentityTransform

        columns = {own.field_id: self.schema.field(own.name) for own in self.metadata.schema().fields}
        return [
            (place, columns[one.source_id])
            for place, one in enumerate(self.metadata.specs()[spec].fields)
            if isinstance(one.transform, IdentityTransform) and one.source_id in columns
        ]


def _lent_values(lent: list[tuple[int, pa.Field]], partition: Any) -> dict[str, pa.Scalar]:
    found = {}
    for place, column in lent:
        value = partition[place]
        if value is not None and (pa.types.is_temporal(column.type) or isinstance(value, bool)):
            whole = pa.int32() if column.type.bit_width == 32 else pa.int64()
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            found[column.name] = (
                pa.array([value], whole).view(column.type)[0] if is_whole else pa.scalar(value, column.type)
            )
        else:
            found[column.name] = pa.scalar(getattr(value, "bytes", value), column.type)
    return found


def _partition(spec: int, partition: Any) -> Hashable:
    """A partition as a key: NaN is one value."""
    return spec, tuple("NaN" if value != value else value for value in partition)
