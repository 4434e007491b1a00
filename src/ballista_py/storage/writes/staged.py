"""What one sender of a write has put: its rows in files, named in one object that never changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson
import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.partitions.map import value_columns
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.state.documents.codec import converter
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.manifest import DataFile

MAX_FILES = 1_000_000
MAX_FILES_BYTES = 64 << 20
_TEXT, _COUNT = pa.string(), pa.int64()
_FIELDS = {
    "path": _TEXT,
    "rows": _COUNT,
    "bytes": _COUNT,
    "checksum": _TEXT,
    "format": _TEXT,
    "definition": _COUNT,
}
_STATISTICS = "columns"

Value = tuple[Any, ...]


@frozen(kw_only=True)
class StagedFile:
    """A data file that no manifest names yet, and the value of the partition that all of its rows belong to."""

    value: Value
    file: DataFile


@frozen(kw_only=True)
class StagedFiles:
    """The files of one sender. `to_bytes` and `from_bytes` need the spec by which the rows were split.

    >>> spec = PartitionSpec.parse(["region"], pa.schema([("region", pa.string())]))
    >>> file = DataFile(path="snapshots/t/data/w/0.parquet", rows=3, bytes=700, columns={"region": ColumnStatistics()})
    >>> staged = StagedFiles(files=(StagedFile(value=("eu",), file=file), StagedFile(value=(None,), file=file)))
    >>> StagedFiles.from_bytes(*staged.to_bytes(spec), spec) == staged
    True
    """

    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return sum(one.file.rows for one in self.files)

    def to_bytes(self, spec: PartitionSpec) -> tuple[bytes, str]:
        """The object, and the digest by which it is known. Raises `ConfigError` for more than one object holds."""
        if len(self.files) > MAX_FILES:
            raise _too_many()
        files = [one.file for one in self.files]
        statistics = [orjson.dumps(converter().unstructure(file.columns)).decode() for file in files]
        columns: dict[str, pa.Array] = dict(_keys(spec, [one.value for one in self.files]))
        columns |= {
            name: pa.array([getattr(file, name) for file in files], kind) for name, kind in _FIELDS.items()
        }
        columns[_STATISTICS] = pa.array(statistics, _TEXT)
        batch = pa.RecordBatch.from_pydict(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(batch)
        data = bytes(sink.getvalue())
        if len(data) > MAX_FILES_BYTES:
            raise _too_many()
        return data, sha256(data).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, digest: str, spec: PartitionSpec) -> StagedFiles:
        """What `to_bytes` wrote. Raises `DocumentUnreadable` for anything that has another digest."""
        if sha256(data).hexdigest() != digest:
            raise DocumentUnreadable("what names the files of a write is damaged: begin the write again")
        table = pa.ipc.open_file(data).read_all()
        values = list(zip(*(table.column(f"k{n}").to_pylist() for n in range(len(spec.keys))), strict=True))
        rows = table.select([*_FIELDS, _STATISTICS]).to_pylist()
        found = zip(values if spec.keys else [()] * len(rows), rows, strict=True)
        return cls(files=tuple(StagedFile(value=value, file=_file(row)) for value, row in found))


def files_to_json(files: Iterable[DataFile]) -> list[dict[str, Any]]:
    """Files as JSON-ready values; `files_from_json` reads them back."""
    return [converter().unstructure(file) for file in files]


def files_from_json(values: Sequence[Mapping[str, Any]]) -> tuple[DataFile, ...]:
    """The files that `files_to_json` wrote. Raises `DocumentUnreadable` for anything else."""
    try:
        return tuple(converter().structure(value, DataFile) for value in values)
    except Exception as error:  # whatever is wrong with them
        raise DocumentUnreadable("files of a write cannot be read: they were named by another release") from error


def _keys(spec: PartitionSpec, values: Sequence[Value]) -> Iterable[tuple[str, pa.Array]]:
    return ((f"k{n}", column) for n, column in enumerate(value_columns(spec, values)))


def _file(row: Mapping[str, Any]) -> DataFile:
    columns = converter().structure(orjson.loads(row[_STATISTICS]), Mapping[str, ColumnStatistics])  # type: ignore[type-abstract]
    return DataFile(**{name: row[name] for name in _FIELDS}, columns=columns)


def _too_many() -> ConfigError:
    return ConfigError(
        f"the rows of one sender lie in more files than it may have, which are {MAX_FILES:,} named in "
        f"{MAX_FILES_BYTES >> 20} MiB: sort them by partition, or send them from several tasks"
    )
