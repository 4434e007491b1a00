"""Commands, answers and trailers as JSON objects in UTF-8."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from ballista_py.errors import InvalidData, TransportError
from ballista_py.utf8 import require_all_utf8

MAX_BYTES = 64 << 20
MAX_SAID_BYTES = 16 << 20  # beside rows: how a stream ended, what was answered
MAX_VALUES = 1_000_000  # of what nodes say to each other; what clients say has less
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BETWEEN = (b",", b":", b"[", b"{")


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
