"""Errors of our tree as answers of HTTP: a status, and one line of JSON made by `errors.to_wire`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from attrs import field, frozen

from ballista_py.errors import (
    BallistaError,
    ConfigError,
    DocumentError,
    InvalidData,
    JobError,
    JobMissing,
    JobResultTooLarge,
    MergeTooLarge,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    OwnershipError,
    PartitionsUnassigned,
    PlanningError,
    SchedulerLost,
    SchemaMismatch,
    StoreError,
    TimeLimit,
    TransportError,
    TryLater,
    Unauthenticated,
    UnsupportedExpression,
    WriteError,
    WriteIncomplete,
    WrongCluster,
    named,
    to_wire,
)

_log = logging.getLogger(__name__)
JSON = "application/json"
RETRY_AFTER_S = 1
# The first class that fits says the status. No 408: clients of HTTP send such a request again by themselves.
STATUSES: tuple[tuple[type[BallistaError], int], ...] = (
    (UnsupportedExpression, 400),
    (PartitionsUnassigned, 503),
    (MergeTooLarge, 422),
    (TimeLimit, 504),
    (PlanningError, 400),
    (SchemaMismatch, 400),
    (WriteIncomplete, 409),
    (WriteError, 409),
    (JobMissing, 404),
    (JobResultTooLarge, 422),
    (JobError, 409),
    (TryLater, 503),
    (SchedulerLost, 503),
    (Unauthenticated, 401),
    (WrongCluster, 409),
    (TransportError, 400),
    (InvalidData, 400),
    (OwnershipError, 503),
    (ObjectMissing, 404),
    (ObjectExists, 409),
    (OutcomeUnknown, 409),
    (StoreError, 503),
    (DocumentError, 500),
    (ConfigError, 500),
)


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


def status_of(error: BaseException) -> int:
    """The status of an answer that is `error`; 500 is for faults of a node's own.

    >>> status_of(TryLater("starting")), status_of(KeyError("x"))
    (503, 500)
    """
    return next((status for known, status in STATUSES if isinstance(error, known)), 500)


def told(error: BaseException) -> dict[str, Any]:
    """`error` and `code`, in one line of words.

    >>> told(Unauthenticated("no\\ntoken"))
    {'error': 'no token', 'code': 'transport.unauthenticated'}
    """
    if isinstance(error, HttpRefused):
        return {"error": error.message, "code": error.code, **error.more}
    error = named(error)
    if not isinstance(error, BallistaError):
        _log.error("a request failed for a reason that its client is not told", exc_info=error)
    wire = to_wire(error)
    return {"error": " ".join(str(wire["message"]).split()), "code": wire["code"]}


def error_reply(error: BaseException) -> ErrorReply:
    """The whole answer that says `error`."""
    body = orjson.dumps(told(error))
    if isinstance(error, HttpRefused):
        return ErrorReply(error.status, body)
    status = status_of(named(error))
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_AFTER_S)}}
    return ErrorReply(status, body, headers.get(status, {}))
