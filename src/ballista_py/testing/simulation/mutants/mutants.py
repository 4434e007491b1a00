"""Deliberate faults in the coordination core: what the simulation must find, or it proves nothing.

Each mutant breaks one rule of the design by replacing one piece of the real code while it is applied. The table
of which seed finds which is in docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen

from ballista_py.testing.simulation.mutants import documents as mutants_documents
from ballista_py.testing.simulation.mutants import ownership as mutants_ownership
from ballista_py.testing.simulation.mutants import schedulers as mutants_schedulers

Patch = tuple[Any, str, Any]


@frozen(kw_only=True)
class Mutant:
    """One deliberate fault. `breaks` are the guarantees of which at least one must be seen to fail.

    >>> with MUTANTS[0].applied():
    ...     pass
    """

    name: str
    what: str
    breaks: tuple[str, ...]
    patches: Callable[[], list[Patch]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code within this block, for the whole process."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches():
                before = owner.__dict__[name]
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
            yield


def _mutant(name: str, what: str, breaks: str, patches: Callable[[], list[Patch]]) -> Mutant:
    return Mutant(name=name, what=what, breaks=tuple(breaks.split()), patches=patches)


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "blind-retry",
        "a write whose reply was lost is made anew without reading back",
        "G2",
        mutants_documents.blind_retry,
    ),
    _mutant(
        "conflict-believed",
        "a conflict is taken at its word, though it may be the echo of our own write",
        "G2",
        mutants_documents.conflict_believed,
    ),
    _mutant(
        "unknown-reported-failed",
        "an outcome that nobody knows is reported as a failure",
        "G2",
        mutants_documents.unknown_reported_failed,
    ),
    _mutant(
        "unconditional-write",
        "a replace goes through whatever version it finds",
        "G1 G2",
        mutants_documents.unconditional_write,
    ),
    _mutant(
        "takeover-at-once",
        "an id is taken over without waiting whether its holder still beats",
        "G3",
        mutants_schedulers.takeover_at_once,
    ),
    _mutant(
        "wall-clock-liveness",
        "a member is dead when its heartbeat is old by the reader's wall clock",
        "G3 O1",
        mutants_schedulers.wall_clock_liveness,
    ),
    _mutant(
        "no-tombstone",
        "a silent scheduler is removed from cluster.json without a tombstone on its heartbeat",
        "O1 G3",
        mutants_schedulers.no_tombstone,
    ),
    _mutant(
        "successor-commits",
        "a change that an ended instance began is committed by the instance after it",
        "G3",
        mutants_schedulers.successor_commits,
    ),
    _mutant(
        "impatient",
        "a member is dead after a third of the time to live",
        "G3",
        mutants_schedulers.impatient,
    ),
    _mutant(
        "lease-from-reply",
        "a scheduler's lease counts from when the reply came, not from when the beat was sent",
        "G3 O1",
        mutants_schedulers.lease_from_reply,
    ),
    _mutant(
        "former-forgotten",
        "nobody remembers who handed a partition over and may not know yet",
        "O1",
        mutants_ownership.former_forgotten,
    ),
    _mutant(
        "own-ears-alone",
        "an executor is lost when this scheduler alone has not heard it",
        "O1",
        mutants_schedulers.own_ears_alone,
    ),
    _mutant(
        "heartbeats-first",
        "executors are lost by heartbeats that were read before cluster.json",
        "O1",
        mutants_schedulers.heartbeats_first,
    ),
    _mutant(
        "eviction-unguarded",
        "an executor is removed whatever instance and admission stand there by now",
        "O1",
        mutants_schedulers.eviction_unguarded,
    ),
    _mutant(
        "grant-outlives-granter",
        "a grant lasts a full time to live, however little is left of the scheduler's own lease",
        "O1",
        mutants_ownership.grant_outlives_granter,
    ),
    _mutant(
        "no-readmission",
        "an executor whose lease ran out is granted a new one without a commit",
        "O1",
        mutants_ownership.no_readmission,
    ),
    _mutant(
        "no-first-readmission",
        "an executor never heard before is granted a lease at once",
        "O1",
        mutants_ownership.no_first_readmission,
    ),
    _mutant(
        "readmitted-without-beat",
        "an executor is re-admitted before a beat says that its silence is over",
        "O1",
        mutants_ownership.readmitted_without_beat,
    ),
    _mutant(
        "lease-from-receipt",
        "an executor's lease counts from when the grant came, not from when its heartbeat was sent",
        "O1",
        mutants_ownership.lease_from_receipt,
    ),
    _mutant(
        "lost-goes-on",
        "an executor that was declared lost rejoins and goes on serving what it holds",
        "O1 G6",
        mutants_ownership.lost_goes_on,
    ),
    _mutant(
        "fence-removed",
        "a manifest accepts a commit of any epoch",
        "G5",
        mutants_ownership.fence_removed,
    ),
    _mutant(
        "no-activation",
        "an owner serves without writing its epoch into the manifest",
        "G5",
        mutants_ownership.no_activation,
    ),
    _mutant(
        "epoch-unchecked",
        "a plan is committed as it was made, whatever epochs and owners the map has by now",
        "G4 O1",
        mutants_ownership.epoch_unchecked,
    ),
    _mutant(
        "notify-before-commit",
        "executors are told of a plan before its commit is known to have landed",
        "G6",
        mutants_ownership.notify_before_commit,
    ),
    _mutant(
        "promoted-at-same-epoch",
        "the target of a move becomes the owner at the epoch of the owner before",
        "G4",
        mutants_ownership.promoted_at_same_epoch,
    ),
)
