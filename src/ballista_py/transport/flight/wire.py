"""Commands, answers and trailers as JSON objects in UTF-8, and what is none: half of a character.

Python makes one of a byte that is not UTF-8, in names of files and in what is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

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
