"""Several changes of one document in one commit: pure, so the sharing can be judged without a store.

Each change sees the result of the ones before it. What a change concluded is settled at once when it saw the
committed document, and only with the commit when it saw another change's uncommitted work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from attrs import define, field

T = TypeVar("T")


@define(eq=False)
class Ticket(Generic[T]):
    """One caller's change and, once `settled`, what became of it: an error, or done."""

    change: Callable[[T], T]
    settled: bool = False
    error: BaseException | None = None
    outcome: object = None

    def settle(self, outcome: object) -> None:
        self.outcome, self.settled = outcome, True

    def fail(self, error: BaseException) -> None:
        self.error, self.settled = error, True


@define
class GroupDraft(Generic[T]):
    """The candidate document of a group, and who is for what in it."""

    document: T
    committed: T
    changed: list[Ticket[T]] = field(factory=list)  # settle with the commit
    failed: list[tuple[Ticket[T], Exception | None]] = field(factory=list)  # fail with the commit
    deferred: list[Ticket[T]] = field(factory=list)  # to be tried again by themselves
    done: list[tuple[Ticket[T], Exception | None]] = field(factory=list)  # decided already, nothing to write


def tally(
    committed: T,
    group: list[Ticket[T]],
    objection: Callable[[T, T], Exception | None],
) -> GroupDraft[T]:
    """Apply the changes of the group in turn to `committed`.

    A result to which there is an objection fails its change when that change alone made it; after others it is
    deferred, because the two together may be the offence.
    """
    result = GroupDraft(document=committed, committed=committed)
    for ticket in group:
        _apply(ticket, result, objection)
    return result


def _apply(ticket: Ticket[T], result: GroupDraft[T], objection: Callable[[T, T], Exception | None]) -> None:
    alone = not result.changed
    error: Exception | None = None
    changed = result.document
    try:
        changed = ticket.change(result.document)
    except Exception as raised:
        error = raised
    if error is None and (changed is result.document or changed == result.document):
        if alone:
            result.done.append((ticket, None))
        else:
            result.changed.append(ticket)
        return
    if error is None:
        error = objection(result.committed, changed)
        if error is None:
            result.document = changed
            result.changed.append(ticket)
            return
        if not alone:
            result.deferred.append(ticket)
            return
    if alone:
        result.done.append((ticket, error))
    else:
        result.failed.append((ticket, error))
