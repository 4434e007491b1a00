"""What a call ends with when it fails: a status of gRPC, one line, and bytes for those who understand them."""

from __future__ import annotations

from typing import Literal, TypeAlias

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


class CallStatus(Exception):
    """Raised out of the answer to a call, which ends with it."""

    def __init__(self, code: Code, text: str, extra: bytes = b"") -> None:
        super().__init__(text)
        self.code: Code = code
        self.text = text
        self.extra = extra


class LinkBroke(Exception):
    """The other side of a call went away, or gave it up."""
