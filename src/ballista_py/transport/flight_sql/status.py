"""Errors of our tree as gRPC statuses with an SQLSTATE, which is all that a client of Flight SQL understands."""

from __future__ import annotations

import re

from ballista_py.errors import (
    AlreadyRegistered,
    BallistaError,
    ConfigError,
    InvalidData,
    JobAbandoned,
    JobCancelled,
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
    SqlError,
    StoreError,
    TimeLimit,
    TransportError,
    TryLater,
    Unauthenticated,
    UnsupportedExpression,
    WriteError,
    WriteIncomplete,
    named,
    to_wire,
)
from ballista_py.transport.flight.call_status import CallStatus, Code, LinkBroke

MAX_MESSAGE_CHARS = 1_000


class NotRunning(PlanningError):
    """What is to be cancelled does not run, or not here."""

    code = "planning.not_running"


class Unsupported(PlanningError):
    """Something of Flight SQL that this cluster does not do; refused with the status for that."""

    code = "planning.unsupported"


# The first class that fits says the SQLSTATE and the status.
_STATES: tuple[tuple[type[BallistaError], str, Code], ...] = (
    (Unsupported, "0A000", "UNIMPLEMENTED"),
    (NotRunning, "HY000", "NOT_FOUND"),
    (UnsupportedExpression, "0A000", "UNIMPLEMENTED"),
    (PartitionsUnassigned, "57P03", "UNAVAILABLE"),
    (MergeTooLarge, "53200", "INVALID_ARGUMENT"),
    (TimeLimit, "57014", "INVALID_ARGUMENT"),
    (PlanningError, "42000", "INVALID_ARGUMENT"),
    (SchemaMismatch, "22000", "INVALID_ARGUMENT"),
    (WriteIncomplete, "40003", "INTERNAL"),
    (WriteError, "23000", "INVALID_ARGUMENT"),
    (JobMissing, "02000", "NOT_FOUND"),
    (JobCancelled, "57014", "INVALID_ARGUMENT"),
    (JobResultTooLarge, "54000", "INVALID_ARGUMENT"),
    (JobAbandoned, "58000", "INTERNAL"),
    (JobError, "55000", "INVALID_ARGUMENT"),
    (TryLater, "53300", "UNAVAILABLE"),
    (Unauthenticated, "28000", "UNAUTHENTICATED"),
    (SchedulerLost, "08006", "UNAVAILABLE"),
    (TransportError, "08P01", "INVALID_ARGUMENT"),
    (AlreadyRegistered, "55000", "INVALID_ARGUMENT"),
    (OwnershipError, "57P03", "UNAVAILABLE"),
    (ObjectMissing, "58030", "INTERNAL"),
    (ObjectExists, "58030", "INTERNAL"),
    (OutcomeUnknown, "40003", "INTERNAL"),
    (StoreError, "58030", "UNAVAILABLE"),
    (InvalidData, "22000", "INVALID_ARGUMENT"),
    (ConfigError, "22023", "INVALID_ARGUMENT"),
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


def to_status(error: BaseException) -> CallStatus:
    """The status to raise, `from None`: one line, and an SQLSTATE in brackets.

    >>> str(to_status(Unsupported("there are no transactions here")))
    'there are no transactions here [SQLSTATE 0A000]'
    """
    if isinstance(error, CallStatus):
        return error
    if isinstance(error, LinkBroke):
        error = TransportError(str(error))
    error = named(error)
    unknown: tuple[str, Code] = ("XX000", "INTERNAL")
    state, code = next(((state, code) for known, state, code in _STATES if isinstance(error, known)), unknown)
    text = " ".join(str(to_wire(error)["message"]).split())
    if isinstance(error, SqlError):
        state = next((finer for pattern, finer in _FINER if pattern.search(text)), state)
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return CallStatus(code, f"{text} [SQLSTATE {state}]")
