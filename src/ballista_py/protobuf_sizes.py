"""What a message of protobuf takes once it is read, told by its bytes before anything reads it.

Two bytes can be a message within a message, which takes hundreds once it is an object. So a few megabytes that a node
or a client sends could end a process; what would take more than it may is refused by a scan of its bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ballista_py.errors import InvalidData

MAX_UNPACKED_BYTES = 64 << 20
MESSAGE_BYTES = 768  # of one within another: as protobuf holds it, as an object of Python, as the value made of it
TEXT_BYTES = 128
NUMBER_BYTES = 136  # in three lists on its way into a value
_LEAST_BYTES = 2  # of whatever counts
_VARINT, _EIGHT, _DELIMITED, _BEGIN, _END, _FOUR = 0, 1, 2, 3, 4, 5
_GOES_ON = bytes(range(128, 256))  # bytes of a number that are not its last
_MESSAGE, _TEXTS = 11, (9, 12)  # kinds of a field: message; string and bytes
_MAX_DEPTH = 64


def require_unpackable(data: bytes, descriptor: Any, most: int = MAX_UNPACKED_BYTES) -> int:
    """How many bytes the message of this `descriptor` takes at most once it is read.

    Raises `InvalidData` for more than `most`. What is no such message is left to whoever reads it: to refuse it takes
    nothing.
    """
    at_most = len(data) * MESSAGE_BYTES // _LEAST_BYTES
    if at_most <= min(most, MAX_UNPACKED_BYTES):
        return at_most
    scan = _Scan(data, most)
    try:
        return scan.message(0, len(data), _fields(descriptor), 0)
    except IndexError:  # it is cut off
        return 0


class _Scan:
    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._left = self._most = most

    def message(self, at: int, end: int, fields: dict[int, Any], depth: int) -> int:
        """Count a message from `at` to `end`; groups of fields that nobody knows count as what stands around them.

        Returns what was counted so far.
        """
        data = self._data
        while at < end:
            key, at = self._number(at)
            wire = key & 7
            if wire == _VARINT:
                self._take(NUMBER_BYTES)
                _, at = self._number(at)
            elif wire in (_EIGHT, _FOUR):
                self._take(NUMBER_BYTES)
                at += 8 if wire == _EIGHT else 4
            elif wire == _DELIMITED:
                size, at = self._number(at)
                if at + size > end:
                    raise IndexError
                self._delimited(at, at + size, fields.get(key >> 3), depth)
                at += size
            elif wire in (_BEGIN, _END):
                self._take(NUMBER_BYTES)
            else:
                raise IndexError
        if at > len(data):
            raise IndexError
        return self._most - self._left

    def _delimited(self, at: int, end: int, kind: Any, depth: int) -> None:
        if callable(kind):
            self._take(MESSAGE_BYTES)
            if depth < _MAX_DEPTH:  # no message of ours is nested so deep; protobuf refuses what is
                self.message(at, end, kind(), depth + 1)
        elif kind in (None, *_TEXTS):
            self._take(TEXT_BYTES + 2 * (end - at))
        else:
            numbers = len(self._data[at:end].translate(None, _GOES_ON))
            self._take(NUMBER_BYTES * numbers)

    def _number(self, at: int) -> tuple[int, int]:
        data = self._data
        byte = data[at]
        if byte < 128:
            return byte, at + 1
        value, shift = byte & 127, 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at + 1
            shift += 7
            if shift > 63:
                raise IndexError

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidData(
                f"the message would take more than {self._most >> 20} MiB once it is read: it holds too many values"
            )


@cache
def _fields(descriptor: Any) -> dict[int, Any]:
    """By number: for a message what gives its fields, for others their kind."""
    return {
        field.number: (lambda kind=field.message_type: _fields(kind)) if field.type == _MESSAGE else field.type
        for field in descriptor.fields
    }


__all__ = ["MAX_UNPACKED_BYTES", "require_unpackable"]
