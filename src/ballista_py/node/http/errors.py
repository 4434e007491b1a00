"""Errors of our tree as answers of HTTP: a status, and one line of JSON made by `errors.to_wire`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from attrs import field, frozen

from ballista_py.errors import BallistaError, named, to_wire
from ballista_py.one_line import one_line
from ballista_py.transport.flight.errors import MAX_MESSAGE_CHARS
from ballista_py.transport.statuses import status_of

_log = logging.getLogger(__name__)
JSON = "application/json"
RETRY_AFTER_S = 1


@frozen
class ErrorReply:
    """What a client is told instead of an answer. `body` is JSON with `error` and `code`."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(factory=dict)


class HttpRefused(Exception):
    """What HTTP itself has a status for, such as a path that there is not; its `message` is said as it is."""

    def __init__(self, status: int, message: str, code: str = "transport", **more: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.more = status, message, code, more


def told(error: BaseException) -> dict[str, Any]:
    """`error` and `code`, in one line of words.

    >>> told(BallistaError("no\\ntoken"))
    {'error': 'no token', 'code': 'error'}
    """
    if isinstance(error, HttpRefused):
        return {"error": error.message, "code": error.code, **error.more}
    error = named(error)
    if not isinstance(error, BallistaError):
        _log.error("a request failed for a reason that its client is not told", exc_info=error)
    wire = to_wire(error)
    message = " ".join(str(wire["message"])[: 2 * MAX_MESSAGE_CHARS].split())
    return {"error": one_line(message, MAX_MESSAGE_CHARS), "code": wire["code"]}


def error_reply(error: BaseException) -> ErrorReply:
    """The whole answer that says `error`."""
    body = orjson.dumps(told(error))
    if isinstance(error, HttpRefused):
        # Who sends too large a head has nothing to say next.
        over = {"Connection": "close"} if error.status == 431 else {}
        return ErrorReply(error.status, body, over)
    status = status_of(named(error)).http
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_AFTER_S)}}
    return ErrorReply(status, body, headers.get(status, {}))
