"""Commands, answers and trailers as JSON objects in UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ballista_py.errors import TransportError


def to_json(values: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON object. A value that JSON does not know becomes its text."""
    return orjson.dumps(values, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


def from_json(data: bytes) -> dict[str, Any]:
    """The object that `to_json` wrote. Raises `TransportError` for anything else.

    >>> from_json(to_json({"kind": "sql"}))
    {'kind': 'sql'}
    """
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise TransportError("the message is not a JSON object: is the peer a node or client of ballista_py?")
    return values
