"""Tables of a flatbuffer, read where they lie: only what is asked for, and nothing beyond the bytes.

Every read beyond the bytes raises `struct.error` or `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


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
