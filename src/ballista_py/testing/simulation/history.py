"""What happened in a simulated world, as facts: recorded where they happen, judged by `checkers` afterwards.

Times are true ones, in virtual milliseconds. An event prints as one line, and two runs from one seed print the
same lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Literal, TypeAlias

from attrs import define, field, frozen

INF = float("inf")
Outcome = Literal["done", "failed", "unknown"]


@frozen(kw_only=True)
class Accessed:
    """One request for a document, from when it was sent until its reply came.

    A read has seen `version`. A write over `base` made `version`; `end_ms` is infinite while its sender does not
    know. Requests that were refused are left out: they say nothing.
    """

    at_ms: float
    node: str
    kind: Literal["read", "write"]
    key: str
    base: str | None
    version: str
    end_ms: float


@frozen(kw_only=True)
class Landed:
    """A write took effect: `data` over `base` (None: there was nothing) as `version`."""

    at_ms: float
    node: str
    key: str
    base: str | None
    version: str
    data: bytes = field(repr=False)


@frozen(kw_only=True)
class Changed:
    """A caller's change of a document by `ObjectState.update` began, or has ended with an `outcome`."""

    at_ms: float
    node: str
    key: str
    change: str
    outcome: Outcome | None


@frozen(kw_only=True)
class Led:
    """A scheduler instance had the right to act until `until_ms`; merged with what came before."""

    at_ms: float
    node: str
    scheduler_id: str
    instance: str
    until_ms: float


@frozen(kw_only=True)
class Leased:
    """An executor instance had the right to serve until `until_ms`; merged with what came before."""

    at_ms: float
    node: str
    instance: str
    until_ms: float


@frozen(kw_only=True)
class Told:
    """A scheduler sent an executor what it is to hold: (partition, epoch, role) of each."""

    at_ms: float
    node: str
    executor_id: str
    instance: str
    table: str
    revision: int
    partitions: tuple[tuple[int, int, str], ...]


@frozen(kw_only=True)
class Serves:
    """An executor instance serves a partition from now on (as far as it has a lease), or no longer."""

    at_ms: float
    node: str
    executor_id: str
    instance: str
    table: str
    partition: int
    epoch: int
    on: bool


@frozen(kw_only=True)
class Fault:
    """Something was made to go wrong."""

    at_ms: float
    node: str
    what: str


@frozen(kw_only=True)
class Surprise:
    """A part raised what it never should: an error outside the tree, or that a document is broken."""

    at_ms: float
    node: str
    what: str


@frozen(kw_only=True)
class Healed:
    """The last fault has ended. `served_ms` is when every partition was served by its owner, if it ever was."""

    at_ms: float
    node: str
    served_ms: float
    unserved: tuple[int, ...]


Event: TypeAlias = Accessed | Landed | Changed | Led | Leased | Told | Serves | Fault | Surprise | Healed


@define
class History:
    """The events of one run, in the order in which they were noted."""

    events: list[Event] = field(factory=list)

    def add(self, event: Event) -> None:
        """Note one event."""
        self.events.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def lines(self) -> Iterator[str]:
        """One line of text for each event; documents are given in full."""
        for event in self.events:
            data = f" {event.data!r}" if isinstance(event, Landed) else ""
            yield f"{event}{data}"

    def digest(self) -> str:
        """A fingerprint of all lines."""
        found = sha256()
        for line in self.lines():
            found.update(line.encode())
        return found.hexdigest()


_ROLES = {"owner": "", "target": "t", "replica": "r"}


def timeline(events: Iterable[Event], until_ms: float, about: str = "", last: int = 40) -> list[str]:
    """The last events up to a moment as short lines for people, as far as they mention `about`.

    Reads and heartbeats are left out, faults always shown.
    """
    shown: list[str] = []
    for event in events:
        if isinstance(event, Accessed) or event.at_ms > until_ms:
            continue
        text = _short(event)
        if isinstance(event, Fault) or about in text:
            shown.append(f"{event.at_ms / 1000:10.3f} s  {event.node:<14} {text}")
    return shown[-last:]


def _short(event: Event) -> str:
    match event:
        case Landed():
            return f"wrote {event.key} {event.base or 'nothing'} -> {event.version}"
        case Changed():
            return f"change {event.change} {event.outcome or 'begins'}"
        case Led():
            return f"may act as {event.instance[:8]} until {event.until_ms / 1000:.3f} s"
        case Leased():
            return f"lease of {event.instance[:8]} until {event.until_ms / 1000:.3f} s"
        case Told():
            held = " ".join(f"p{p}@{epoch}{_ROLES[role]}" for p, epoch, role in event.partitions)
            return f"tells {event.executor_id}/{event.instance[:8]} at revision {event.revision}: {held}"
        case Serves():
            return f"{'serves' if event.on else 'drops'} p{event.partition}@{event.epoch} as {event.instance[:8]}"
        case Fault() | Surprise():
            return event.what
        case Healed():
            return f"healed; all served at {event.served_ms / 1000:.3f} s; unserved {event.unserved}"
        case _:
            return str(event)
