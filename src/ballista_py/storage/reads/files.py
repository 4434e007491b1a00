"""The files of a read job: one instant of a table, cut into parts, as one object that never changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from operator import attrgetter
from typing import Any

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.sql.prune.file_bounds import ColumnTest, Condition, Operator
from ballista_py.storage.formats.statistics import bound_text, parse_bound
from ballista_py.storage.manifest import DataFile, OriginalFile

MAX_FILES = 1_000_000
MAX_FILES_BYTES = 64 << 20
_FIELDS = ("path", "rows", "bytes", "checksum", "format")
_TEXT, _COUNT = pa.string(), pa.int64()
_KINDS = {"path": _TEXT, "rows": _COUNT, "bytes": _COUNT, "checksum": _TEXT, "format": _TEXT}
_GETS = tuple(map(attrgetter, _FIELDS))
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
    gives the columns `given`; `row_by_row`: for the rows of several files what it gives for each. Rows that cannot
    pass the `condition` count for nothing in it.
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
    row_by_row: bool = False
    condition: Condition = ()

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
        named = [one for part in self.parts for one in part]
        files = [one.file for one in named]
        originals = [file.original for file in files]
        columns: list[list[object]] = [
            [number for number, part in enumerate(self.parts) for _ in part],
            [one.partition for one in named],
            [file.definition for file in files],
            *([get(file) for file in files] for get in _GETS),
            *([None if file is None else get(file) for file in originals] for get in _GETS),
        ]
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
            "row_by_row": str(int(self.row_by_row)),
        }
        written = _written(self.condition)
        if written:  # what has none is as it was
            said["condition"] = json.dumps(written)
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
        numbers, partitions, definitions, *columns = (column.to_pylist() for column in table.columns)
        own, of_original = columns[: len(_FIELDS)], columns[len(_FIELDS) :]
        for number, partition, file in zip(
            numbers, partitions, _files(definitions, own, of_original), strict=True
        ):
            parts[number].append(PartFile(partition=partition, file=file))
        columns_of_table = pa.ipc.read_schema(pa.py_buffer(said["columns"]))
        return cls(
            table=said["table"].decode(),
            folder=said["folder"].decode(),
            incarnation=said["incarnation"].decode(),
            schema=columns_of_table,
            parts=tuple(map(tuple, parts)),
            definition=int(said["definition"]),
            plan=said["plan"].decode(),
            columns=tuple(json.loads(said["reads"])),
            given=pa.ipc.read_schema(pa.py_buffer(said["given"])),
            row_by_row=said.get("row_by_row") == b"1",
            condition=_condition(json.loads(said.get("condition", b"[]")), columns_of_table),
        )


def _written(condition: Condition) -> list[list[list[list[str | None]]]]:
    """The condition as JSON, but for clauses with a value that has no exact short text."""
    found = [
        [[[test.column, test.operator, bound_text(test.value)] for test in branch] for branch in clause]
        for clause in condition
    ]
    return [
        clause
        for clause, of in zip(found, condition, strict=True)
        if not any(
            test[2] is None and one.value is not None
            for branch, tests in zip(clause, of, strict=True)
            for test, one in zip(branch, tests, strict=True)
        )
    ]


def _condition(written: list[Any], schema: pa.Schema) -> Condition:
    """What `_written` wrote."""

    def test(column: str, operator: Operator, text: str | None) -> ColumnTest:
        return ColumnTest(column, operator, None if text is None else parse_bound(text, schema.field(column).type))

    return tuple(tuple(tuple(test(*one) for one in branch) for branch in clause) for clause in written)


def _files(definitions: list[int], own: list[list[Any]], of_original: list[list[Any]]) -> Iterator[DataFile]:
    values = zip(zip(*own, strict=True), zip(*of_original, strict=True), definitions, strict=True)
    for mine, others, definition in values:
        original = None if others[0] is None else OriginalFile(**dict(zip(_FIELDS, others, strict=True)))
        yield DataFile(**dict(zip(_FIELDS, mine, strict=True)), definition=definition, original=original)


def _too_many(table: str) -> ConfigError:
    return ConfigError(
        f"table '{table}' has too many files for one read job, which names at most {MAX_FILES:,} in "
        f"{MAX_FILES_BYTES >> 20} MiB: read fewer partitions, or let its owners merge small files"
    )
