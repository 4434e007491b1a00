"""How a request may be asked beside its path and body: what is not known is refused by name, not passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from ballista_py.node.http.errors import HttpRefused
from ballista_py.one_line import printable
from ballista_py.sql.own_words import meant

QUERY = "query"  # what a route calls the pattern of each of its query parameters
NUMBER = re.compile(r"[0-9]{1,19}")
TEXT = re.compile(r".*", re.DOTALL)
_PLAIN = ("", "identity")
_MOST_PARAMETERS = 100
_MOST_SHOWN = 60


def require_known_query(query_string: bytes, known: Mapping[str, re.Pattern[str]]) -> None:
    """Raise `HttpRefused` for a query parameter that is not `known`, is there twice, or is not as it must be.

    >>> require_known_query(b"chunk=7", {"chunk": NUMBER})
    >>> require_known_query(b"chunck=7", {"chunk": NUMBER})
    Traceback (most recent call last):
    ballista_py.node.http.errors.HttpRefused: there is no query parameter 'chunck' here: did you mean 'chunk'?
    """
    if not query_string:
        return
    try:
        said = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError:
        raise HttpRefused(400, "the query of the address cannot be read", "invalid_data") from None
    found = dict(said)
    for name, value in found.items():
        shown = printable(name[:_MOST_SHOWN])
        if name not in known:
            likely = meant(name[:_MOST_SHOWN], known)
            raise HttpRefused(400, f"there is no query parameter '{shown}' here{likely}", "invalid_data")
        if not known[name].fullmatch(value):
            wanted = "a whole number from 0 on, in digits" if known[name] is NUMBER else "a text"
            raise HttpRefused(400, f"the query parameter '{shown}' must be {wanted}", "invalid_data")
    if len(found) < len(said):
        raise HttpRefused(400, "a query parameter is there twice", "invalid_data")


def require_plain_body(headers: Mapping[str, Any]) -> None:
    """Raise `HttpRefused` for a body that says it is encoded: it would be read as something that it is not.

    >>> require_plain_body({"content-encoding": "gzip"})
    Traceback (most recent call last):
    ballista_py.node.http.errors.HttpRefused: a body with a Content-Encoding is not read: send it as it is
    """
    if str(headers.get("content-encoding", "")).strip().lower() not in _PLAIN:
        raise HttpRefused(415, "a body with a Content-Encoding is not read: send it as it is", "invalid_data")


__all__ = ["NUMBER", "QUERY", "TEXT", "require_known_query", "require_plain_body"]
