"""The files of a read job: one instant of a table, cut into parts, as one object that never changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.storage.manifest import DataFile, OriginalFile

MAX_FILES = 1_000_000
MAX_FILES_BYTES = 64 << 20
_FIELDS = ("path", "rows", "bytes", "checksum", "format")
_TEXT, _COUNT = pa.string(), pa.int64()
_KINDS = {"path": _TEXT, "rows": _COUNT, "bytes": _COUNT, "checksum": _TEXT, "format": _TEXT}
_ORIGINAL = "original_"
_SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("partition", pa.int32()),
        ("definition", _COUNT),
        *((name, kind) for name, kind in _KINDS.items()),
        *((f"{_ORIGINAL}{name}", kind) for name, kind in _KINDS.items()),
    ]
)


@frozen(kw_only=True)
class PartFile:
    """A data file of a part, and the partition of the table that its rows are of."""

    partition: int
    file: DataFile


@frozen(kw_only=True)
class ReadFiles:
    """The files of `parts`, each in the order in which its rows are given, and what is to be done with them.

    `table` is what the table was called, `folder` and `incarnation` tell which one it was, `schema` are its columns by
    that `definition`. `plan` is SQL over the rows of a part, which are called as the table, reads these `columns` and
    gives the columns `given`.
    """

    table: str
    folder: str
    incarnation: str
    schema: pa.Schema
    parts: tuple[tuple[PartFile, ...], ...]
    definition: int = 0
    plan: str = ""
    columns: tuple[str, ...] = ()
    given: pa.Schema = field(factory=lambda: pa.schema([]))

    @property
    def base(self) -> pa.Schema:
        """The columns that the plan reads, as the table declares them."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def paths(self) -> Iterator[str]:
        """All objects that have to be there."""
        return (path for part in self.parts for one in part for path in one.file.paths)

    def to_bytes(self) -> tuple[bytes, str]:
        """The object, and the digest by which it is known. Raises `ConfigError` for more than one object holds.

        >>> read = ReadFiles(table="t", folder="t", incarnation="", schema=pa.schema([("a", pa.int8())]), parts=((),))
        >>> ReadFiles.from_bytes(*read.to_bytes()) == read
        True
        """
        count = sum(map(len, self.parts))
        if count > MAX_FILES:
            raise _too_many(self.table)
        rows = [
            (number, one.partition, one.file.definition, *_values(one.file), *_values(one.file.original))
            for number, part in enumerate(self.parts)
            for one in part
        ]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, _SCHEMA.types, strict=True)]
        said = {
            "table": self.table,
            "folder": self.folder,
            "incarnation": self.incarnation,
            "parts": str(len(self.parts)),
            "definition": str(self.definition),
            "plan": self.plan,
            "reads": json.dumps(self.columns),
            "columns": self.schema.serialize().to_pybytes(),
            "given": self.given.serialize().to_pybytes(),
        }
        schema = _SCHEMA.with_metadata(said)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        data = bytes(sink.getvalue())
        if len(data) > MAX_FILES_BYTES:
            raise _too_many(self.table)
        return data, sha256(data).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, digest: str) -> ReadFiles:
        """What `to_bytes` wrote. Raises `DocumentUnreadable` for anything that has another digest."""
        if sha256(data).hexdigest() != digest:
            raise DocumentUnreadable("what the files of a read job lie in is damaged: read again")
        table = pa.ipc.open_file(data).read_all()
        said = {name.decode(): value for name, value in table.schema.metadata.items()}
        parts: list[list[PartFile]] = [[] for _ in range(int(said["parts"]))]
        for row in table.to_pylist():
            parts[row["part"]].append(PartFile(partition=row["partition"], file=_file(row)))
        return cls(
            table=said["table"].decode(),
            folder=said["folder"].decode(),
            incarnation=said["incarnation"].decode(),
            schema=pa.ipc.read_schema(pa.py_buffer(said["columns"])),
            parts=tuple(map(tuple, parts)),
            definition=int(said["definition"]),
            plan=said["plan"].decode(),
            columns=tuple(json.loads(said["reads"])),
            given=pa.ipc.read_schema(pa.py_buffer(said["given"])),
        )


def _values(file: DataFile | OriginalFile | None) -> tuple[object, ...]:
    return tuple(None if file is None else getattr(file, name) for name in _FIELDS)


def _file(row: dict[str, object]) -> DataFile:
    of_original = {name: row[f"{_ORIGINAL}{name}"] for name in _FIELDS}
    original = None if of_original["path"] is None else OriginalFile(**of_original)  # type: ignore[arg-type]
    own = {name: row[name] for name in _FIELDS}
    return DataFile(**own, definition=row["definition"], original=original)  # type: ignore[arg-type]


def _too_many(table: str) -> ConfigError:
    return ConfigError(
        f"table '{table}' has too many files for one read job, which names at most {MAX_FILES:,} in "
        f"{MAX_FILES_BYTES >> 20} MiB: read fewer partitions, or let its owners merge small files"
    )
