"""What became of a write whose reply was lost, or was a conflict that may be an echo of our own success.

Pure. A commit stamps a fresh id into the document and keeps the last 32 there. So a later read of the document
tells whether the write landed, lost, may still land, or can no longer be told.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Generic, TypeVar

from attrs import frozen

from ballista_py.state.documents.codec import RECENT_COMMITS, Decoded, Header

T = TypeVar("T")


class Landing(Enum):
    """The fate of one attempt, as one read of the document shows it."""

    LANDED = auto()
    LOST = auto()  # it did not land and never will: the version that it wanted is gone
    PENDING = auto()  # the version that it wanted still stands: it may land yet, or be sent again as it is
    UNKNOWN = auto()  # too many commits since to tell


@frozen(kw_only=True)
class Attempt(Generic[T]):
    """One write: `data` over `base_version`, or where nothing is if that is None.

    It is `blind` once a reply to it never came; else the store at least said that it did not write.
    """

    document: T
    header: Header
    data: bytes
    base_version: str | None
    blind: bool = False


@frozen(kw_only=True)
class Read(Generic[T]):
    """A document and the version that it was read at."""

    decoded: Decoded[T]
    version: str


def judge(attempt: Attempt[T], current: Read[T] | None) -> Landing:
    """What `current`, read after the attempt was sent, says of the attempt. None: nothing is stored."""
    if current is None:
        if attempt.base_version is None:
            return Landing.PENDING
        return Landing.UNKNOWN if attempt.blind else Landing.LOST
    header = current.decoded.header
    if attempt.header.commit_id in header.recent_commits:
        return Landing.LANDED
    if current.version == attempt.base_version:
        return Landing.PENDING
    commits_since = header.revision - attempt.header.revision
    return Landing.LOST if 0 <= commits_since < RECENT_COMMITS else Landing.UNKNOWN
