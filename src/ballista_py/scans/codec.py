"""Scan tasks, and new credentials for those that run, as bytes, and back: JSON with the Arrow schema inside.

`task_from_bytes` takes what `task_to_bytes` wrote and nothing else: every field is there, of its kind and within its
bound, and the columns are those of the schema. What it took it says again in full, so nothing of a message is ignored.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

import orjson
import pyarrow as pa

from ballista_py.errors import InvalidData
from ballista_py.scans.checked import fields, items, maybe, one_of, refused, text, whole
from ballista_py.scans.schema_json import (
    MAX_NAME_BYTES,
    schema_from_json,
    schema_to_json,
    type_from_json,
    type_to_json,
)
from ballista_py.scans.storage_credentials import RefreshCredentials, StorageCredentials
from ballista_py.scans.task import (
    OPERATORS,
    Deletes,
    DeletionVector,
    EqualityDeletes,
    FileSlice,
    FoundBy,
    PositionDeletes,
    ScanCondition,
    ScanTask,
    VectorKind,
)
from ballista_py.scans.typed_values import from_plain, to_plain
from ballista_py.secret import Secret

VERSION = 1
MAX_TASK_BYTES = 16 << 20
MAX_SIGNS = 1_000_000  # commas and opening brackets: what so many values take in memory
MAX_FILES = 10_000
MAX_COLUMNS = 10_000
MAX_ROW_GROUPS = 100_000  # of one file
MAX_DELETES = 10_000  # of one file
MAX_PARTITION_VALUES = 1_000
MAX_CONDITIONS = 1_000
MAX_CONDITION_VALUES = 10_000  # of one condition
MAX_PATH_BYTES = 8_192
MAX_TEXT_BYTES = 1_024
MAX_VECTOR_BYTES = 1 << 20  # of a deletion vector that is in the message
MAX_SECRETS = 64
MAX_SECRET_BYTES = 64 << 10
_TOP = ("version", "fragment_id", "number", "columns", "schema", "types", "files", "filter", "credentials")
_FILE = (
    "path", "size", "rows", "row_groups", "read_bytes", "format", "version", "partition_values", "found_by", "deletes",
)  # fmt: skip
_CREDENTIALS = ("location", "values", "expires_at_ms", "valid_ms", "number")
_DELETES = {
    "positions": ("kind", "path", "size", "rows"),
    "equality": ("kind", "path", "size", "rows", "schema"),
    "vector": ("kind", "form", "path", "offset", "length", "rows", "inline"),
}


def task_to_bytes(task: ScanTask, *, reveal: bool = False) -> bytes:
    """The task as JSON, in UTF-8; `task_from_bytes` reads it back.

    Hazard: with `reveal` the texts of its credentials are in it, so it goes to the executor and nowhere else; without,
    a task that has credentials raises `TypeError`. Raises `InvalidData` for a task that nobody would take: one beyond
    a bound, or with a type that no scan gives.
    """
    if task.credentials is not None and not reveal:
        raise TypeError("the credentials of a scan task are written for its executor alone: say reveal=True")
    types = _Types()
    said = {
        "version": VERSION,
        "fragment_id": task.fragment_id,
        "number": task.number,
        "columns": list(task.columns),
        "schema": schema_to_json(task.schema),
        "types": types.said,
        "files": [_file_to(file, types) for file in task.files],
        "filter": [
            {"column": one.column, "operator": one.operator, "values": [types.value_to(v) for v in one.values]}
            for one in task.filter
        ],
        "credentials": None if task.credentials is None else _credentials_to(task.credentials),
    }
    try:
        data = orjson.dumps(said)
    except (TypeError, orjson.JSONEncodeError):
        raise refused("a text or number", "cannot be written") from None
    task_from_bytes(data)  # whoever made a task hears of it, and not the one who is sent it
    return data


def task_from_bytes(data: bytes) -> ScanTask:
    """The task that `task_to_bytes` wrote. Raises `InvalidData`, naming the field, for anything else."""
    found = fields(_parsed(data), "it", _TOP)
    types = _Types.of(items(found["types"], "types", MAX_PARTITION_VALUES))
    columns = items(found["columns"], "columns", MAX_COLUMNS)
    task = ScanTask(
        fragment_id=text(found["fragment_id"], "fragment_id", MAX_TEXT_BYTES),
        number=whole(found["number"], "number"),
        columns=tuple(text(one, f"columns[{n}]", MAX_NAME_BYTES) for n, one in enumerate(columns)),
        schema=schema_from_json(found["schema"]),
        files=_each(found["files"], "files", MAX_FILES, lambda one, place: _file(one, place, types)),
        filter=_each(found["filter"], "filter", MAX_CONDITIONS, lambda one, place: _condition(one, place, types)),
        credentials=maybe(_credentials, found["credentials"], "credentials"),
    )
    types.require_used()
    return task


def refresh_to_bytes(refresh: RefreshCredentials, *, reveal: bool = False) -> bytes:
    """The message as JSON; `refresh_from_bytes` reads it back.

    Hazard: the texts of the credentials are in it, so it goes to the executor of the tasks and nowhere else; without
    `reveal` it raises `TypeError`.
    """
    if not reveal:
        raise TypeError("credentials are written for the executor of their tasks alone: say reveal=True")
    said = {
        "version": VERSION,
        "task_ids": list(refresh.task_ids),
        "credentials": _credentials_to(refresh.credentials),
    }
    data = orjson.dumps(said)
    refresh_from_bytes(data)
    return data


def refresh_from_bytes(data: bytes) -> RefreshCredentials:
    """The message that `refresh_to_bytes` wrote. Raises `InvalidData`, naming the field, for anything else."""
    found = fields(_parsed(data), "it", ("version", "task_ids", "credentials"))
    tasks = items(found["task_ids"], "task_ids", MAX_FILES)
    return RefreshCredentials(
        task_ids=tuple(text(one, f"task_ids[{number}]", MAX_TEXT_BYTES) for number, one in enumerate(tasks)),
        credentials=_credentials(found["credentials"], "credentials"),
    )


def _parsed(data: bytes) -> Any:
    """What a message says, measured first."""
    if len(data) > MAX_TASK_BYTES:
        raise refused("it", f"has more than {MAX_TASK_BYTES >> 20} MiB")
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_SIGNS:
        raise refused("it", f"has more than {MAX_SIGNS} values")
    try:
        said = orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError):
        raise refused("it", "is no JSON") from None
    if type(said) is dict and (type(said.get("version")) is not int or said["version"] != VERSION):
        raise refused("version", f"is not {VERSION}: the other node is of another release")
    return said


class _Types:
    """The types of single values in a message: each stands in it once, in the order of its first use."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self._kinds: list[pa.DataType] = []
        self._numbers: dict[pa.DataType, int] = {}
        self._used = 0

    @classmethod
    def of(cls, said: Sequence[Any]) -> _Types:
        made = cls()
        made._kinds = [type_from_json(one, f"types[{n}]") for n, one in enumerate(said)]
        if len({*made._kinds}) != len(made._kinds):
            raise refused("types", "has one twice")
        return made

    def value_to(self, value: pa.Scalar) -> list[Any]:
        """The number of the type, and the value."""
        if value.type not in self._numbers:
            self._numbers[value.type] = len(self.said)
            self.said.append(type_to_json(value.type, "a value"))
        return [self._numbers[value.type], to_plain(value)]

    def value(self, said: Any, place: str) -> pa.Scalar:
        if len(items(said, place, 2)) != 2:
            raise refused(place, "is no value with its type")
        number = whole(said[0], place)
        if number > min(self._used, len(self._kinds) - 1):
            raise refused(place, "has a type that is not there, or not in order")
        self._used = max(self._used, number + 1)
        try:
            return from_plain(said[1], self._kinds[number])
        except InvalidData:
            raise refused(place, f"is no value of the type {self._kinds[number]}") from None

    def require_used(self) -> None:
        if self._used != len(self._kinds):
            raise refused("types", "has one that no value has")


def _each(said: Any, place: str, most: int, read: Callable[[Any, str], Any]) -> tuple[Any, ...]:
    return tuple(read(one, f"{place}[{number}]") for number, one in enumerate(items(said, place, most)))


def _file_to(file: FileSlice, types: _Types) -> dict[str, Any]:
    return {
        "path": file.path,
        "size": file.size,
        "rows": file.rows,
        "row_groups": None if file.row_groups is None else list(file.row_groups),
        "read_bytes": file.read_bytes,
        "format": file.format,
        "version": file.version,
        "partition_values": [
            [column, *types.value_to(value)] for column, value in sorted(file.partition_values.items())
        ],
        "found_by": file.found_by,
        "deletes": [_deletes_to(one) for one in file.deletes],
    }


def _file(said: Any, place: str, types: _Types) -> FileSlice:
    found = fields(said, place, _FILE)
    return FileSlice(
        path=text(found["path"], f"{place}.path", MAX_PATH_BYTES),
        size=whole(found["size"], f"{place}.size"),
        rows=maybe(whole, found["rows"], f"{place}.rows"),
        row_groups=maybe(_row_groups, found["row_groups"], f"{place}.row_groups"),
        read_bytes=maybe(whole, found["read_bytes"], f"{place}.read_bytes"),
        format=text(found["format"], f"{place}.format", MAX_TEXT_BYTES),
        version=maybe(text, found["version"], f"{place}.version", MAX_TEXT_BYTES),
        partition_values=_partition_values(found["partition_values"], f"{place}.partition_values", types),
        found_by=one_of(found["found_by"], f"{place}.found_by", get_args(FoundBy)),
        deletes=_each(found["deletes"], f"{place}.deletes", MAX_DELETES, _deletes),
    )


def _row_groups(said: Any, place: str) -> tuple[int, ...]:
    found = tuple(whole(one, place) for one in items(said, place, MAX_ROW_GROUPS))
    if any(one >= other for one, other in pairwise(found)):
        raise refused(place, "is not ascending")
    return found


def _partition_values(said: Any, place: str, types: _Types) -> Mapping[str, pa.Scalar]:
    found: dict[str, pa.Scalar] = {}
    before = ""
    for one in items(said, place, MAX_PARTITION_VALUES):
        if len(items(one, place, 3)) != 3:
            raise refused(place, "has what is no column with a value")
        column = text(one[0], place, MAX_NAME_BYTES)
        if found and column <= before:
            raise refused(place, "is not in order")
        before = column
        found[column] = types.value(one[1:], f"{place}.{column}")
    return found


def _deletes_to(deletes: Deletes) -> dict[str, Any]:
    if isinstance(deletes, DeletionVector):
        inline = None if deletes.inline is None else b64encode(deletes.inline).decode()
        where = {"path": deletes.path, "offset": deletes.offset, "length": deletes.length}
        return {"kind": "vector", "form": deletes.kind, **where, "rows": deletes.rows, "inline": inline}
    file = {"path": deletes.path, "size": deletes.size, "rows": deletes.rows}
    if isinstance(deletes, EqualityDeletes):
        return {"kind": "equality", **file, "schema": schema_to_json(deletes.schema)}
    return {"kind": "positions", **file}


def _deletes(said: Any, place: str) -> Deletes:
    kind = one_of(said.get("kind") if type(said) is dict else None, f"{place}.kind", tuple(_DELETES))
    found = fields(said, place, _DELETES[kind])
    rows = maybe(whole, found["rows"], f"{place}.rows")
    if kind == "vector":
        return DeletionVector(
            kind=one_of(found["form"], f"{place}.form", get_args(VectorKind)),
            path=maybe(text, found["path"], f"{place}.path", MAX_PATH_BYTES),
            offset=whole(found["offset"], f"{place}.offset"),
            length=whole(found["length"], f"{place}.length"),
            rows=rows,
            inline=maybe(_inline, found["inline"], f"{place}.inline"),
        )
    path, size = text(found["path"], f"{place}.path", MAX_PATH_BYTES), whole(found["size"], f"{place}.size")
    if kind == "positions":
        return PositionDeletes(path=path, size=size, rows=rows)
    schema = schema_from_json(found["schema"], f"{place}.schema")
    return EqualityDeletes(path=path, size=size, rows=rows, schema=schema)


def _inline(said: Any, place: str) -> bytes:
    try:
        found = b64decode(text(said, place, 2 * MAX_VECTOR_BYTES).encode(), validate=True)
    except ValueError:
        found = b""
    if b64encode(found).decode() != said or len(found) > MAX_VECTOR_BYTES:
        raise refused(place, f"is no base64 of at most {MAX_VECTOR_BYTES >> 20} MiB")
    return found


def _condition(said: Any, place: str, types: _Types) -> ScanCondition:
    found = fields(said, place, ("column", "operator", "values"))
    values = _each(found["values"], f"{place}.values", MAX_CONDITION_VALUES, types.value)
    return ScanCondition(
        column=text(found["column"], f"{place}.column", MAX_NAME_BYTES),
        operator=one_of(found["operator"], f"{place}.operator", OPERATORS),
        values=values,
    )


def _credentials_to(credentials: StorageCredentials) -> dict[str, Any]:
    return {
        "location": credentials.location,
        "values": [[name, value.reveal()] for name, value in sorted(credentials.values.items())],
        "expires_at_ms": credentials.expires_at_ms,
        "valid_ms": None if credentials.valid_ms is None else int(credentials.valid_ms),
        "number": credentials.number,
    }


def _credentials(said: Any, place: str) -> StorageCredentials:
    found = fields(said, place, _CREDENTIALS)
    values: dict[str, Secret] = {}
    before = ""
    for pair in items(found["values"], f"{place}.values", MAX_SECRETS):
        if len(items(pair, f"{place}.values", 2)) != 2:
            raise refused(f"{place}.values", "has what is no name with a value")
        name = text(pair[0], f"{place}.values", MAX_TEXT_BYTES)
        if values and name <= before:
            raise refused(f"{place}.values", "is not in order")
        before = name
        values[name] = Secret(text(pair[1], f"{place}.values.{name}", MAX_SECRET_BYTES))
    valid_ms = maybe(whole, found["valid_ms"], f"{place}.valid_ms")
    return StorageCredentials(
        location=text(found["location"], f"{place}.location", MAX_PATH_BYTES),
        values=values,
        expires_at_ms=maybe(whole, found["expires_at_ms"], f"{place}.expires_at_ms"),
        valid_ms=None if valid_ms is None else float(valid_ms),
        number=whole(found["number"], f"{place}.number"),
    )
