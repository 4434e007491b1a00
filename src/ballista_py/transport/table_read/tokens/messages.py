"""What an Agent and a Client of Table Read say to each other, as values: the grants, and what became of them.

How they reach each other is the engine's own matter: its messages may be lost, come twice and come late.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from ballista_py.transport.table_read.tokens.positions import START, Position, RowRange, Sections


@frozen(order=True)
class ReaderId:
    """A Client: its `name`, and the `instance` that it is since it was started last."""

    name: str
    instance: str


@frozen(kw_only=True)
class ReadLocation:
    """Where a partition is served. The lowest `priority` is to be asked first."""

    uri: str
    priority: int = 0


@frozen(kw_only=True)
class AgentPartition:
    """A partition of a slice, as it was planned.

    Without `sections` it is read whole: its rows are not those of files (they are aggregated, say), so it has
    no places at which one could go on, and is begun anew wherever that is needed.
    """

    number: int
    ticket: bytes
    locations: tuple[ReadLocation, ...]
    sections: Sections | None

    @property
    def rows(self) -> RowRange:
        """All of it."""
        if self.sections is None:
            return RowRange(START, None)
        return RowRange(self.sections.first, self.sections.end)


@frozen(kw_only=True)
class ReadGrant:
    """The rows of a partition that one instance of a Client is to read. Its `token` is the consumption token.

    `ancestors` are superseded grants of the same rows, oldest first: Servers end what they still serve under
    them.
    """

    job: str
    token: str
    ancestors: tuple[str, ...]
    client: ReaderId
    partition: int
    rows: RowRange
    sections: Sections | None
    snapshot: str
    ticket: bytes
    locations: tuple[ReadLocation, ...]


@frozen
class WaitForWork:
    """Nothing to do now: ask again after `retry_after_ms`."""

    retry_after_ms: float


@frozen
class NoMoreWork:
    """The job has ended, or this instance was replaced: do not ask again."""


@frozen(kw_only=True)
class ReadReport:
    """A Client lives, and has read up to `position`."""

    token: str
    client: ReaderId
    position: Position


@frozen(kw_only=True)
class ReportReply:
    """Whether the grant is live, and the cut that is asked for, if one is."""

    token: str
    is_live: bool
    cut_id: str | None = None


@frozen(kw_only=True)
class CutAnswer:
    """Where a Client will stop: the same for the same cut, however often it is asked for."""

    token: str
    client: ReaderId
    cut_id: str
    end: Position


@frozen(kw_only=True)
class ReadDone:
    """A Client has all of `rows`, and sends this until it is answered."""

    token: str
    client: ReaderId
    rows: RowRange


@frozen(kw_only=True)
class DoneReply:
    """What became of a `ReadDone`.

    Of `counted` and `again` (it was counted before) the rows are those of the job. Under a grant that is
    `superseded` they are not, nor are those that go beyond the grant (`refused`), which are read by somebody
    else.
    """

    token: str
    outcome: Literal["counted", "again", "superseded", "refused"]

    @property
    def counts(self) -> bool:
        return self.outcome in ("counted", "again")


@frozen(kw_only=True)
class GaveUp:
    """A Client throws away what it has read under a grant. It sends this until it is answered."""

    token: str
    client: ReaderId


@frozen(kw_only=True)
class ReplanAsked:
    """No location is left: where is the partition now, as of the same snapshot?"""

    token: str
    client: ReaderId
    partition: int
    snapshot: str


@frozen(kw_only=True)
class Replanned:
    """Where the partition is now; nowhere, as long as it has no owner."""

    token: str
    snapshot: str
    ticket: bytes
    locations: tuple[ReadLocation, ...]


@frozen(kw_only=True)
class SnapshotLost:
    """A Server says that nobody pins the snapshot."""

    token: str
    client: ReaderId
    snapshot: str
