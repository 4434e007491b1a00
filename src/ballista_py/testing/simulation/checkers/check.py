"""The guarantees, checked on a recorded history. Every checker takes the events and yields what they violate.

G1 and G2 are about documents, G3 about schedulers, O1 and G4 to G6 about partitions, L1 about recovery. `ERR`
stands for an error that no part should ever raise. The words of each are in docs/guarantees.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from attrs import frozen

from ballista_py.testing.simulation.checkers.version_chain import chain_objection
from ballista_py.testing.simulation.history import Accessed, Event, Healed, History, Surprise


@frozen(kw_only=True)
class Violation:
    """One broken guarantee: which, when, and what happened. `about` finds the events around it."""

    guarantee: str
    at_ms: float
    what: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.guarantee} violated at {self.at_ms / 1000:.3f} s: {self.what}"


Checker: TypeAlias = Callable[[Sequence[Event]], Iterable[Violation]]


def check_history(history: History | Sequence[Event]) -> list[Violation]:
    """Everything that the history violates, the earliest first.

    >>> check_history([Surprise(at_ms=1.0, node="scheduler-1", what="KeyError: 'x'")])[0].guarantee
    'ERR'
    """
    from ballista_py.testing.simulation.checkers.documents import check_changes, check_commits
    from ballista_py.testing.simulation.checkers.ownership import (
        check_epochs,
        check_fences,
        check_notifications,
        check_single_service,
    )
    from ballista_py.testing.simulation.checkers.schedulers import check_schedulers

    events = history.events if isinstance(history, History) else history
    checkers: tuple[Checker, ...] = (
        check_surprises,
        check_versions,
        check_commits,
        check_changes,
        check_schedulers,
        check_epochs,
        check_fences,
        check_notifications,
        check_single_service,
        check_recovery,
    )
    found = [violation for checker in checkers for violation in checker(events)]
    return sorted(found, key=lambda violation: violation.at_ms)


def check_surprises(events: Sequence[Event]) -> Iterator[Violation]:
    """ERR: nothing fails but by errors of the tree, and no document is ever broken."""
    for event in events:
        if isinstance(event, Surprise):
            yield Violation(
                guarantee="ERR", at_ms=event.at_ms, what=f"{event.node}: {event.what}", about=event.node
            )


def check_versions(events: Sequence[Event]) -> Iterator[Violation]:
    """G1: what everybody saw of each document is one chain of versions."""
    by_key: dict[str, list[Accessed]] = defaultdict(list)
    for event in events:
        if isinstance(event, Accessed):
            by_key[event.key].append(event)
    for key, accesses in sorted(by_key.items()):
        objection = chain_objection(accesses)
        if objection is not None:
            yield Violation(guarantee="G1", at_ms=objection[0], what=objection[1], about=key)


def check_recovery(events: Sequence[Event]) -> Iterator[Violation]:
    """L1: when faults stop, every partition is served by its owner in time."""
    for event in events:
        if isinstance(event, Healed) and event.unserved:
            shown = ", ".join(map(str, event.unserved[:8]))
            what = f"after the last fault {len(event.unserved)} partition(s) stayed without service: {shown}"
            yield Violation(guarantee="L1", at_ms=event.at_ms, what=what)
