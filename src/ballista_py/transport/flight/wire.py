"""Commands, answers and trailers as JSON objects in UTF-8, and what is none: half of a character.

Python makes one of a byte that is not UTF-8, in names of files and in what is typed.

The messages of Arrow Flight's streams as bytes: read without a copy, and written with one.

`FlightData` carries one Arrow message: its header, its body, and what is said beside them. It is read by hand because
whoever parses it with a library copies the body, and because nothing in it may be believed before it was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import orjson
from attrs import frozen

from ballista_py.errors import InvalidData, TransportError

MAX_BYTES = 64 << 20
MAX_SAID_BYTES = 16 << 20  # beside rows: how a stream ended, what was answered
MAX_VALUES = 1_000_000  # of what nodes say to each other; what clients say has less
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BETWEEN = (b",", b":", b"[", b"{")
_HALF = re.compile(r"[\ud800-\udfff]")


def to_json(values: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON object. A value that JSON does not know becomes its text.

    Raises `InvalidData` naming a text that is not UTF-8, and for an integer of more than 64 bits.
    """
    try:
        return orjson.dumps(values, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError as error:
        require_all_utf8(values)
        raise InvalidData(f"what is said cannot be sent: {error}") from None


def sorted_json(values: Mapping[str, Any]) -> bytes:
    """The same bytes for equal values that were read by `from_json`, in whatever order they have their names."""
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)


def from_json(data: bytes, most_values: int | None = None, most_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The object that `to_json` wrote. Raises `TransportError` for anything else.

    Raises `InvalidData` for more bytes, or for more than `most_values` (`MAX_VALUES`), before any of them is made: each
    takes a hundred times its byte.

    >>> from_json(to_json({"kind": "sql"}))
    {'kind': 'sql'}
    """
    if len(data) > most_bytes:
        raise InvalidData(
            f"a command, ticket or answer has more than {most_bytes >> 20} MiB: ask for less at once"
        )
    most = MAX_VALUES if most_values is None else most_values
    if has_more_values(data, most):
        raise InvalidData(f"a command, ticket or answer has more than {most:,} values: ask for less at once")
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise TransportError("the message is not a JSON object: is the peer a node or client of ballista_py?")
    return values


def has_more_values(data: bytes, most: int) -> bool:
    """Whether JSON has more values than that, names counted; in time and memory of its bytes.

    >>> has_more_values(b'{"text": "1,2,3,4", "more": [1, 2]}', 7), has_more_values(b"[[],[],[],[]]", 7)
    (False, True)
    """
    if sum(map(data.count, _BETWEEN)) <= most:
        return False
    if data.count(b'"') - data.count(b'\\"') > 4 * most:  # so that there are few texts to look for
        return True
    without_texts = _TEXT.sub(b"", data)
    return sum(map(without_texts.count, _BETWEEN)) > most


def require_utf8(what: str, text: object) -> None:
    r"""Raise `InvalidData` for a text that has no bytes in UTF-8; what is no text at all is somebody else's.

    >>> require_utf8("the statement", "select \udcff")
    Traceback (most recent call last):
    ballista_py.errors.InvalidData: the statement is not UTF-8: character 8 is half a character, or was a byte 0xFF
    """
    found = None if not isinstance(text, str) or text.isascii() else _HALF.search(text)
    if found is None:
        return
    byte = ord(found[0]) - 0xDC00
    was = f", or was a byte 0x{byte:02X}" if 0x80 <= byte <= 0xFF else ""
    raise InvalidData(f"{what} is not UTF-8: character {found.start() + 1} is half a character{was}")


def require_all_utf8(values: Mapping[str, Any]) -> None:
    r"""Raise `InvalidData` naming the first text of JSON values, names counted, that has no bytes in UTF-8.

    >>> require_all_utf8({"rows": [{"name": "\ud800"}]})
    Traceback (most recent call last):
    ballista_py.errors.InvalidData: rows[0].name is not UTF-8: character 1 is half a character
    """
    for place, text in _texts(values, ""):
        require_utf8(place, text)


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, held in value.items():
            yield f"a name in {place or 'what is said'}", str(name)
            yield from _texts(held, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple):
        for number, held in enumerate(value):
            yield from _texts(held, f"{place}[{number}]")


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
