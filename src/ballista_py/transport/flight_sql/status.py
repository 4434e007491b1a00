"""Errors of our tree as gRPC statuses with an SQLSTATE, which is all that a client of Flight SQL understands."""

from __future__ import annotations

import re

from ballista_py.errors import SqlError, TransportError, named, to_wire
from ballista_py.transport.statuses import CallStatus, LinkBroke, status_of

MAX_MESSAGE_CHARS = 1_000


# The engine says in words alone what is wrong with a statement. Without a match it is the class of all such errors.
_FINER = [
    (re.compile(pattern), state)
    for pattern, state in (
        (r"^Table '.*' does not exist", "42P01"),
        (r"^Referenced column|does not have a column|[Cc]olumn .* not found", "42703"),
        (r"^[Ss]yntax error|does not parse", "42601"),
        (r"^Could not convert", "22018"),
        (r"out of range|[Oo]verflow", "22003"),
        (r"[Dd]ivision by zero", "22012"),
    )
]


def to_status(error: BaseException) -> CallStatus:
    """The status to raise, `from None`: one line, and an SQLSTATE in brackets.

    >>> str(to_status(SqlError("Table 'a' does not exist")))
    "Table 'a' does not exist [SQLSTATE 42P01]"
    """
    if isinstance(error, CallStatus):
        return error
    if isinstance(error, LinkBroke):
        error = TransportError(str(error))
    error = named(error)
    status = status_of(error)
    state = status.sqlstate
    text = " ".join(str(to_wire(error)["message"]).split())
    if isinstance(error, SqlError):
        state = next((finer for pattern, finer in _FINER if pattern.search(text)), state)
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return CallStatus(status.sql_grpc, f"{text} [SQLSTATE {state}]")
