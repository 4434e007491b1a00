"""The messages of Arrow Flight's streams as bytes: read without a copy, and written with one.

`FlightData` carries one Arrow message: its header, its body, and what is said beside them. It is read by hand because
whoever parses it with a library copies the body, and because nothing in it may be believed before it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from ballista_py.errors import TransportError

Bytes: TypeAlias = "bytes | memoryview"

MAX_FIELDS = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DESCRIPTOR, _HEADER, _SAID, _BODY = 1, 2, 3, 1000
_MAX_VARINT_BITS = 63


@frozen
class FlightData:
    """One message of a stream. `descriptor` is None but in the first one of a client."""

    descriptor: bytes | None
    header: memoryview
    said: bytes
    body: memoryview


_NOTHING = memoryview(b"")


def read_data(data: bytes) -> FlightData:
    """The message in these bytes; its header and body are views of them. Raises `TransportError`.

    >>> read_data(data_frame(b"head", [b"bo", b"dy"])).body.tobytes()
    b'body'
    """
    found: dict[int, memoryview] = dict(_fields(memoryview(data)))
    descriptor = found.get(_DESCRIPTOR)
    return FlightData(
        None if descriptor is None else descriptor.tobytes(),
        found.get(_HEADER, _NOTHING),
        found.get(_SAID, _NOTHING).tobytes(),
        found.get(_BODY, _NOTHING),
    )


def data_frame(header: Bytes = b"", body: Sequence[Any] | None = None, said: bytes = b"") -> bytes:
    """A message with these parts; `body` are pieces of anything that gives its bytes, None for no body."""
    parts: list[Any] = []
    if len(header):
        parts += [_HEADER_TAG, varint(len(header)), header]
    if said:
        parts += [_SAID_TAG, varint(len(said)), said]
    if body is not None:
        parts += [_BODY_TAG, varint(sum(map(len, body))), *body]
    return b"".join(parts)


def varint(number: int) -> bytes:
    """A number as protobuf writes it.

    >>> varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_HEADER_TAG, _SAID_TAG, _BODY_TAG = (varint(number << 3 | _BYTES) for number in (_HEADER, _SAID, _BODY))


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    place, count = 0, 0
    while place < len(data):
        count += 1
        if count > MAX_FIELDS:
            raise _unreadable()
        tag, place = _varint_at(data, place)
        kind = tag & 7
        if kind == _BYTES:
            size, place = _varint_at(data, place)
            if size > len(data) - place:
                raise _unreadable()
            yield tag >> 3, data[place : place + size]
            place += size
        elif kind == _VARINT:
            _, place = _varint_at(data, place)
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            raise _unreadable()


def _varint_at(data: memoryview, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data) and shift <= _MAX_VARINT_BITS:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise _unreadable()


def _unreadable() -> TransportError:
    return TransportError("the bytes are no message of an Arrow Flight stream")
