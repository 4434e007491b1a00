"""The few numbers in IPC messages that must be known before Arrow may unpack them: how large their bodies become.

Arrow makes room for what the first eight bytes of each compressed buffer claim, and a hundred kilobytes can unpack to
gigabytes. The layout of the messages is that of the format's flatbuffers; only what is needed of it is read here.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from ballista_py.errors import InvalidData

_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY, _BATCH = 2, 3
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
_AS_IT_IS = -1


def bytes_when_read(data: bytes, *, compressed: bool) -> int:
    """The bytes that reading the IPC stream takes, by what its messages say.

    Raises `InvalidData` for what is no such stream, and unless `compressed` for one with compressed bodies.
    """
    total = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(data):
            total += _size(message, compressed)
    except (struct.error, IndexError, ValueError, OSError, pa.ArrowException) as error:
        raise InvalidData(f"what was sent is no stream of Arrow messages ({type(error).__name__})") from None
    return total


def _size(message: Any, compressed: bool) -> int:
    metadata, body = memoryview(message.metadata), message.body
    size = 0 if body is None else body.size
    root = _Table(metadata, _at(metadata, "<I", 0))
    kind = root.scalar(_HEADER_TYPE, "<B", 0)
    if kind not in (_DICTIONARY, _BATCH):
        return size
    batch = root.table(_HEADER)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(_DICTIONARY_DATA)
    if batch is None or batch.table(_COMPRESSION) is None:
        return size
    if not compressed:
        raise InvalidData("what was sent is compressed, which is not taken here")
    content = memoryview(body)
    for start, length in batch.pairs(_BUFFERS):
        if length:
            claim: int = _at(content, "<q", start)
            if claim < _AS_IT_IS:
                raise InvalidData("what was sent unpacks to less than nothing")
            size += max(claim, length)
    return size


class _Table:
    """A table of a flatbuffer at a position. Reading beyond the bytes raises `struct.error` or `ValueError`."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data = data
        self._place = place
        self._fields = place - _at(data, "<i", place)
        self._fields_bytes: int = _at(data, "<H", self._fields)

    def scalar(self, field: int, form: str, default: int) -> int:
        place = self._field(field)
        return default if place is None else _at(self._data, form, place)

    def table(self, field: int) -> _Table | None:
        place = self._field(field)
        return None if place is None else _Table(self._data, place + _at(self._data, "<I", place))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two int64."""
        place = self._field(field)
        if place is None:
            return []
        start = place + _at(self._data, "<I", place)
        count = _at(self._data, "<I", start)
        if count * 16 > len(self._data):
            raise ValueError("a vector is longer than its message")
        return [struct.unpack_from("<qq", self._data, start + 4 + 16 * number) for number in range(count)]

    def _field(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._fields_bytes:
            return None
        offset = _at(self._data, "<H", self._fields + entry)
        return self._place + offset if offset else None


def _at(data: memoryview, form: str, place: int) -> int:
    if place < 0:
        raise ValueError("a position is before the message")
    found: int = struct.unpack_from(form, data, place)[0]
    return found
