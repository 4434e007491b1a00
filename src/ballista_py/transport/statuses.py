"""What a call ends with when it fails: one table that says it for gRPC, for HTTP and for SQL, class by class.

Our own clients read the very error (`errors.to_wire`); these statuses are for everybody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from ballista_py import errors
from ballista_py.errors import BallistaError

Code: TypeAlias = Literal[
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "ABORTED",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "UNAVAILABLE",
    "UNAUTHENTICATED",
    "INTERNAL",
]
# Drivers have no words for these codes: they would tell of an unknown or an internal error whatever the fault is.
PLAINER: Mapping[Code, Code] = {
    "FAILED_PRECONDITION": "INVALID_ARGUMENT",
    "RESOURCE_EXHAUSTED": "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED": "INVALID_ARGUMENT",
    "ALREADY_EXISTS": "INTERNAL",
    "ABORTED": "INTERNAL",
}


class CallStatus(Exception):
    """Raised out of the answer to a call, which ends with it: a status, one line, bytes for those who know them."""

    def __init__(self, code: Code, text: str, extra: bytes = b"") -> None:
        super().__init__(text)
        self.code: Code = code
        self.text = text
        self.extra = extra


class LinkBroke(Exception):
    """The other side of a call went away, or gave it up."""


@frozen
class ErrorStatus:
    """What a class of errors is to a client that knows nothing of our tree.

    `grpc` is the status of a call and `http` that of an answer; `sqlstate` is what drivers of databases look at, and
    `sql_grpc` the status of a call of Flight SQL.
    """

    grpc: Code
    http: int
    sqlstate: str
    sql_grpc: Code


def _row(grpc: Code, http: int, sqlstate: str, sql_grpc: Code | None = None) -> ErrorStatus:
    return ErrorStatus(grpc, http, sqlstate, sql_grpc or PLAINER.get(grpc, grpc))


# No 408: clients of HTTP send such a request again by themselves. 503 comes with `Retry-After`.
STATUSES: Mapping[type[BallistaError], ErrorStatus] = {
    BallistaError: _row("INTERNAL", 500, "XX000"),
    errors.StoreError: _row("UNAVAILABLE", 503, "58030"),
    errors.ObjectMissing: _row("NOT_FOUND", 404, "58030", "INTERNAL"),  # none that a statement has named
    errors.ObjectExists: _row("ALREADY_EXISTS", 409, "58030"),
    errors.VersionConflict: _row("UNAVAILABLE", 503, "58030"),
    errors.OutcomeUnknown: _row("ABORTED", 409, "40003"),
    errors.StoreUnavailable: _row("UNAVAILABLE", 503, "58030"),
    errors.UnsafeStore: _row("UNAVAILABLE", 503, "58030"),
    errors.DocumentError: _row("FAILED_PRECONDITION", 500, "58000", "INTERNAL"),
    errors.RetriesExhausted: _row("UNAVAILABLE", 503, "40001"),
    errors.SchemaVersionUnsupported: _row("FAILED_PRECONDITION", 500, "58000", "INTERNAL"),
    errors.DocumentUnreadable: _row("FAILED_PRECONDITION", 500, "58000", "INTERNAL"),
    errors.DocumentLost: _row("FAILED_PRECONDITION", 500, "58000", "INTERNAL"),
    errors.DocumentOlder: _row("FAILED_PRECONDITION", 500, "58000", "INTERNAL"),
    errors.InvariantViolated: _row("FAILED_PRECONDITION", 500, "58000", "INTERNAL"),
    errors.OwnershipError: _row("FAILED_PRECONDITION", 503, "57P03", "UNAVAILABLE"),
    errors.AlreadyRegistered: _row("FAILED_PRECONDITION", 503, "55000"),
    errors.Fenced: _row("FAILED_PRECONDITION", 503, "57P03", "UNAVAILABLE"),
    errors.LeaseExpired: _row("FAILED_PRECONDITION", 503, "57P03", "UNAVAILABLE"),
    errors.NotOwner: _row("FAILED_PRECONDITION", 503, "57P03", "UNAVAILABLE"),
    errors.TableAltered: _row("FAILED_PRECONDITION", 503, "57P03", "UNAVAILABLE"),
    errors.PlanningError: _row("INVALID_ARGUMENT", 400, "42000"),
    errors.SqlError: _row("INVALID_ARGUMENT", 400, "42000"),  # `flight_sql/status.py` knows finer ones
    errors.Unsupported: _row("UNIMPLEMENTED", 400, "0A000"),
    errors.UnsupportedExpression: _row("UNIMPLEMENTED", 400, "0A000"),
    errors.PartitionKeysMissing: _row("INVALID_ARGUMENT", 400, "42000"),
    errors.PartitionsUnassigned: _row("UNAVAILABLE", 503, "57P03"),
    errors.MergeTooLarge: _row("RESOURCE_EXHAUSTED", 422, "53200"),
    errors.NotRunning: _row("NOT_FOUND", 404, "HY000"),
    errors.TimeLimit: _row("DEADLINE_EXCEEDED", 504, "57014"),
    errors.WriteError: _row("FAILED_PRECONDITION", 409, "23000"),
    errors.SchemaMismatch: _row("INVALID_ARGUMENT", 400, "22000"),
    errors.WriteIncomplete: _row("ABORTED", 409, "40003"),
    errors.NotVisibleYet: _row("ABORTED", 409, "40003"),
    errors.PositionMoved: _row("ABORTED", 409, "40001"),
    errors.SourceError: _row("FAILED_PRECONDITION", 409, "58030"),
    errors.SourceUnavailable: _row("UNAVAILABLE", 503, "58030"),
    errors.SourceLost: _row("FAILED_PRECONDITION", 409, "55000"),
    errors.SourceUnfit: _row("FAILED_PRECONDITION", 409, "55000"),
    errors.JobError: _row("FAILED_PRECONDITION", 409, "55000"),
    errors.JobMissing: _row("NOT_FOUND", 404, "02000"),
    errors.JobRefused: _row("FAILED_PRECONDITION", 409, "55000"),
    errors.JobSuperseded: _row("FAILED_PRECONDITION", 409, "55000"),
    errors.JobCancelled: _row("FAILED_PRECONDITION", 409, "57014"),
    errors.JobResultTooLarge: _row("RESOURCE_EXHAUSTED", 422, "54000"),
    errors.JobAbandoned: _row("FAILED_PRECONDITION", 409, "58000", "INTERNAL"),
    errors.SnapshotGone: _row("FAILED_PRECONDITION", 409, "55000"),
    errors.TransportError: _row("INVALID_ARGUMENT", 400, "08P01"),
    errors.SchedulerLost: _row("UNAVAILABLE", 503, "08006"),
    errors.Unauthenticated: _row("UNAUTHENTICATED", 401, "28000"),
    errors.WrongCluster: _row("FAILED_PRECONDITION", 409, "08P01"),
    errors.NodeSilent: _row("UNAVAILABLE", 503, "08006"),
    errors.TryLater: _row("UNAVAILABLE", 503, "53300"),
    errors.InvalidData: _row("INVALID_ARGUMENT", 400, "22000"),
    errors.ConfigError: _row("INVALID_ARGUMENT", 400, "22023"),  # what a node's own says ends it at its start
    errors.MissingExtra: _row("FAILED_PRECONDITION", 500, "22023"),
}


def status_of(error: BaseException) -> ErrorStatus:
    """The row of the error's class, or of the nearest one above it; what is outside the tree is a node's own fault.

    >>> status_of(errors.TryLater("starting")).http, status_of(KeyError("x")).grpc
    (503, 'INTERNAL')
    """
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), STATUSES[BallistaError])
