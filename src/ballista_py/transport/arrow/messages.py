"""What an Arrow message will take once it is read, found out before Arrow may read it.

Arrow's reader makes room for what the first eight bytes of each compressed buffer claim, and copies a name as often as
fields lead to it: a hundred kilobytes become gigabytes. So every message from outside is measured here by its bytes
alone. The layout is that of the format's flatbuffers; only what is needed of it is read.

Tables of a flatbuffer, read where they lie: only what is asked for, and nothing beyond the bytes.

Every read beyond the bytes raises `struct.error` or `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import define, frozen

from ballista_py.errors import InvalidData
from ballista_py.transport.arrow.types import MAX_DEPTH, MAX_FIELDS


class Table:
    """A table at a position."""

    __slots__ = ("_data", "_fields", "_fields_bytes", "place")

    def __init__(self, data: memoryview, place: int) -> None:
        self._data = data
        self.place = place
        self._fields = place - int_at(data, "<i", place)
        self._fields_bytes = int_at(data, "<H", self._fields)

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """The table that the bytes are about."""
        return cls(data, int_at(data, "<I", 0))

    def scalar(self, field: int, form: str, default: int) -> int:
        """A number."""
        place = self._field(field)
        return default if place is None else int_at(self._data, form, place)

    def table(self, field: int) -> Table | None:
        """The table that the field leads to."""
        place = self._field(field)
        return None if place is None else Table(self._data, place + int_at(self._data, "<I", place))

    def length(self, field: int) -> int:
        """How many elements the vector has, or bytes the text; no more than fit into the message."""
        place = self._field(field)
        if place is None:
            return 0
        count = int_at(self._data, "<I", place + int_at(self._data, "<I", place))
        if count > len(self._data):
            raise ValueError("a vector is longer than its message")
        return count

    def tables(self, field: int) -> Iterator[Table]:
        """The tables of a vector; many of its places may lead to one."""
        place = self._field(field)
        if place is None:
            return
        start = place + int_at(self._data, "<I", place) + 4
        for number in range(self.length(field)):
            at = start + 4 * number
            yield Table(self._data, at + int_at(self._data, "<I", at))

    def pairs(self, field: int) -> npt.NDArray[np.int64]:
        """A vector of structs of two int64, as rows of two."""
        place = self._field(field)
        if place is None:
            return np.empty((0, 2), np.int64)
        start = place + int_at(self._data, "<I", place) + 4
        numbers = np.frombuffer(self._data, "<i8", 2 * self.length(field), start)
        return numbers.reshape(-1, 2)

    def _field(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._fields_bytes:
            return None
        offset = int_at(self._data, "<H", self._fields + entry)
        return self.place + offset if offset else None


def int_at(data: memoryview, form: str, place: int) -> int:
    """The number of that form at that position."""
    if place < 0:
        raise ValueError("a position is before the message")
    found: int = struct.unpack_from(form, data, place)[0]
    return found


MAX_BODY_BYTES = 128 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_TEXT_BYTES = 16 << 20
CONTINUES = b"\xff\xff\xff\xff"

Kind: TypeAlias = Literal["schema", "dictionary", "rows"]
_KINDS: dict[int, Kind] = {1: "schema", 2: "dictionary", 3: "rows"}
_HEADER_TYPE, _HEADER, _BODY_LENGTH, _METADATA = 1, 2, 3, 4
_SCHEMA_FIELDS, _SCHEMA_METADATA, _SCHEMA_FEATURES = 1, 2, 3
_NAME, _TYPE_KIND, _TYPE, _DICTIONARY, _CHILDREN, _FIELD_METADATA = 0, 2, 3, 4, 5, 6
_TIMESTAMP, _UNION, _ZONE, _UNION_IDS = 10, 14, 1, 1
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
_AS_IT_IS = -1
_BROKEN = (struct.error, IndexError, ValueError, OverflowError)


@frozen
class Measured:
    """A message: what it brings, how long its body says that it is, and the bytes that its buffers take when read."""

    kind: Kind
    body_bytes: int
    unpacked: int


def measure(
    header: memoryview, body: memoryview, *, compressed: bool, max_bytes: int = MAX_BODY_BYTES
) -> Measured:
    """What the message with this header and body takes; its body may be `compressed` or not.

    Raises `InvalidData` for a message that is none, and for one that takes more than the bounds of this module or
    `max_bytes`.
    """
    if len(header) > MAX_HEADER_BYTES:
        raise InvalidData("the description of a message is too long: send smaller batches")
    try:
        root = Table.root(header)
        kind = _KINDS.get(root.scalar(_HEADER_TYPE, "<B", 0))
        content = root.table(_HEADER)
        if kind is None or content is None:
            raise InvalidData("what was sent is no Arrow message of columns or rows")
        walk = _Walk()
        walk.metadata(root, _METADATA)
        length = root.scalar(_BODY_LENGTH, "<q", 0)
        if not 0 <= length <= len(body):
            raise InvalidData("a message has not the bytes that it speaks of")
        if kind == "schema":
            walk.schema(content)
            return Measured(kind, length, 0)
        batch = content.table(_DICTIONARY_DATA) if kind == "dictionary" else content
        unpacked = length if batch is None else _unpacked(batch, body, compressed)
    except _BROKEN as error:
        raise InvalidData(f"what was sent is no stream of Arrow messages ({type(error).__name__})") from None
    if unpacked > max_bytes:
        raise InvalidData(f"a message takes more than {max_bytes >> 20} MiB: send smaller batches")
    return Measured(kind, length, unpacked)


def bytes_when_read(data: bytes, *, compressed: bool) -> int:
    """The bytes that reading the IPC stream takes, by what its messages say.

    Raises `InvalidData` for what is no such stream, and unless `compressed` for one with compressed bodies.
    """
    return sum(found.unpacked for found in _measured(memoryview(data), compressed))


def check_schema_bytes(data: bytes) -> None:
    """That the first message of an IPC stream may be read as a schema. Raises `InvalidData`."""
    found = next(_measured(memoryview(data), compressed=False), None)
    if found is None or found.kind != "schema":
        raise InvalidData("what was sent is no schema")


def _measured(data: memoryview, compressed: bool) -> Iterator[Measured]:
    """The messages of an IPC stream, one after the other, until its end."""
    place = 0
    while place < len(data):
        try:
            length = int_at(data, "<i", place + 4)
        except struct.error:
            raise InvalidData("what was sent is no stream of Arrow messages (it breaks off)") from None
        if data[place : place + 4] != CONTINUES or length < 0:
            raise InvalidData("what was sent is no stream of Arrow messages of this age")
        if length == 0:
            return
        begin = place + 8
        found = measure(data[begin : begin + length], data[begin + length :], compressed=compressed)
        yield found
        place = begin + length + found.body_bytes


def _unpacked(batch: Table, body: memoryview, compressed: bool) -> int:
    """The bytes of all buffers; one that is named twice is copied twice."""
    places = batch.pairs(_BUFFERS)
    if batch.table(_COMPRESSION) is None:
        if not len(places):
            return 0
        lengths = places[:, 1]
        if int(lengths.min()) < 0:
            raise InvalidData("a message has buffers of less than nothing")
        return int(lengths.sum(dtype=np.float64))
    if not compressed:
        raise InvalidData("what was sent is compressed, which is not taken here")
    size = 0
    for start, length in places.tolist():
        if length:
            claim = int_at(body, "<q", start)
            if claim < _AS_IT_IS:
                raise InvalidData("what was sent unpacks to less than nothing")
            size += max(claim, length)
    return size


@define
class _Walk:
    """One walk over the tables of a schema, which counts a table as often as something leads to it: so does Arrow."""

    fields: int = 0
    text: int = 0

    def schema(self, schema: Table) -> None:
        self.metadata(schema, _SCHEMA_METADATA)
        self._say(8 * schema.length(_SCHEMA_FEATURES))
        for field in schema.tables(_SCHEMA_FIELDS):
            self._field(field, 1)

    def metadata(self, table: Table, field: int) -> None:
        for pair in table.tables(field):
            self._say(32 + pair.length(0) + pair.length(1))

    def _field(self, field: Table, depth: int) -> None:
        self.fields += 1
        if self.fields > MAX_FIELDS:
            raise InvalidData(f"what was sent has more than {MAX_FIELDS:,} columns, nested ones counted")
        if depth > MAX_DEPTH:
            raise InvalidData(f"what was sent has columns that are nested more than {MAX_DEPTH} deep")
        self._say(field.length(_NAME))
        self.metadata(field, _FIELD_METADATA)
        kind, content = field.scalar(_TYPE_KIND, "<B", 0), field.table(_TYPE)
        if content is not None and kind == _TIMESTAMP:
            self._say(content.length(_ZONE))
        if content is not None and kind == _UNION:
            self._say(4 * content.length(_UNION_IDS))
        for child in field.tables(_CHILDREN):
            self._field(child, depth + 1)

    def _say(self, count: int) -> None:
        self.text += count
        if self.text > MAX_TEXT_BYTES:
            raise InvalidData(f"the names and metadata of its columns take more than {MAX_TEXT_BYTES >> 20} MiB")
