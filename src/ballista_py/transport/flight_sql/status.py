"""Errors of our tree as gRPC statuses with an SQLSTATE, which is all that a client of Flight SQL understands.

pyarrow makes the status of a Python error from its class, and appends the traceback to the text. The classes here
let it choose the status and keep the traceback: it is Python's `traceback` module that formats one, and that gives
up, without a word, on an error whose `__suppress_context__` cannot be read.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow.flight as flight

from ballista_py.errors import (
    AlreadyRegistered,
    BallistaError,
    ConfigError,
    InvalidData,
    MergeTooLarge,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    OwnershipError,
    PartitionsUnassigned,
    PlanningError,
    SchedulerLost,
    SchemaMismatch,
    SqlError,
    StoreError,
    TimeLimit,
    TransportError,
    TryLater,
    Unauthenticated,
    UnsupportedExpression,
    WriteError,
    WriteIncomplete,
    to_wire,
)

MAX_MESSAGE_CHARS = 1_000


class NotRunning(PlanningError):
    """What is to be cancelled does not run, or not here."""

    code = "planning.not_running"


class Unsupported(PlanningError):
    """Something of Flight SQL that this cluster does not do; refused with the status for that."""

    code = "planning.unsupported"


def _unreadable(_error: object) -> bool:
    raise AttributeError


class _Untraced:
    """An error whose traceback cannot be formatted."""

    __suppress_context__: Any = property(_unreadable)


class Refusal(_Untraced, ValueError):
    """INVALID_ARGUMENT."""


class NotProvided(_Untraced, NotImplementedError):
    """UNIMPLEMENTED."""


class NotFound(_Untraced, KeyError):
    """NOT_FOUND."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError shows its argument in quotes


class Unavailable(_Untraced, flight.FlightUnavailableError):  # type: ignore[misc]  # pyarrow.flight has no types
    """UNAVAILABLE."""


class NotAuthenticated(_Untraced, flight.FlightUnauthenticatedError):  # type: ignore[misc]
    """UNAUTHENTICATED."""


class Failure(_Untraced, flight.FlightInternalError):  # type: ignore[misc]
    """INTERNAL."""


# The first class that fits says the SQLSTATE and the status.
_STATES: tuple[tuple[type[BallistaError], str, type[Exception]], ...] = (
    (Unsupported, "0A000", NotProvided),
    (NotRunning, "HY000", NotFound),
    (UnsupportedExpression, "0A000", NotProvided),
    (PartitionsUnassigned, "57P03", Unavailable),
    (MergeTooLarge, "53200", Refusal),
    (TimeLimit, "57014", Refusal),
    (PlanningError, "42000", Refusal),
    (SchemaMismatch, "22000", Refusal),
    (WriteIncomplete, "40003", Failure),
    (WriteError, "23000", Refusal),
    (TryLater, "53300", Unavailable),
    (Unauthenticated, "28000", NotAuthenticated),
    (SchedulerLost, "08006", Unavailable),
    (TransportError, "08P01", Refusal),
    (AlreadyRegistered, "55000", Refusal),
    (OwnershipError, "57P03", Unavailable),
    (ObjectMissing, "58030", Failure),
    (ObjectExists, "58030", Failure),
    (OutcomeUnknown, "40003", Failure),
    (StoreError, "58030", Unavailable),
    (InvalidData, "22000", Refusal),
    (ConfigError, "22023", Refusal),
)


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


def to_status(error: BaseException) -> Exception:
    """The error to raise, `from None`, out of a method of a Flight server: one line, and an SQLSTATE in brackets.

    >>> str(to_status(Unsupported("there are no transactions here")))
    'there are no transactions here [SQLSTATE 0A000]'
    """
    state, kind = next(
        ((state, kind) for known, state, kind in _STATES if isinstance(error, known)), ("XX000", Failure)
    )
    text = " ".join(str(to_wire(error)["message"]).split())
    if isinstance(error, SqlError):
        state = next((finer for pattern, finer in _FINER if pattern.search(text)), state)
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return kind(f"{text} [SQLSTATE {state}]")
