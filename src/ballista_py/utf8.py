"""What is no text: a character of which there is only half, as Python makes it of a byte that is not UTF-8."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ballista_py.errors import InvalidData

_HALF = re.compile(r"[\ud800-\udfff]")


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
