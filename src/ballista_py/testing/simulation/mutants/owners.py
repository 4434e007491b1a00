"""Deliberate faults of owners and of what is around them: what the simulation of owners must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen

from ballista_py.owner import commits as owner_commits
from ballista_py.owner import prepared as prepared_statements
from ballista_py.owner.commits import OwnerCommits
from ballista_py.owner.pipeline_runs import OutsideRuns
from ballista_py.owner.prepared import Ended, PreparedStatements
from ballista_py.state.documents.object_state import Versioned
from ballista_py.storage.decisions_check import DecisionsCheck
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.manifest import ManifestDocument
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep import repair, repaired
from ballista_py.testing.simulation.owners.simulation import OwnerSimulation

Patch = tuple[Any, str, Any]
_decisions_after = repaired.decisions_after
_current = ManifestDocument.current
_exchanged = ManifestDocument._exchanged


@frozen(kw_only=True)
class OwnerMutant:
    """One deliberate fault."""

    name: str
    what: str
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[Callable[[int], OwnerSimulation]]:
        """Break the code within this block, for the whole process; gives simulations by their seed."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                before = owner.__dict__[name]
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
            yield lambda seed: OwnerSimulation(seed)


def _nothing(*_arguments: Any, **_named: Any) -> None:
    return


def _behind(storage: PartitionStorage, *_more: Any) -> tuple[Versioned[ManifestDocument], bool]:
    return storage.read(), False


def _any_base(
    commits: OwnerCommits,
    target: Any,
    storage: PartitionStorage,
    epoch: int,
    partition: int,
    change: Any,
    *_more: Any,
) -> Versioned[ManifestDocument]:
    if target.attempt is not None:
        prepared = change.prepared(target, 0)
        here = {file.path for file in storage.read().document.files}
        kept = evolve(prepared, remove=tuple(path for path in prepared.remove if path in here))
        return storage.prepare(kept, epoch=epoch)
    return storage.commit(
        add=change.add, remove=change.remove, epoch=epoch, token=target.token, affected=change.affected
    )


def _given_up(statements: PreparedStatements, name: str, partition: int, attempt: str, _folded: int) -> Ended:
    holdings = statements._holder.holdings(name)
    if holdings is not None and partition in holdings.held:
        landed = statements._commits.settle(holdings, partition, attempt, None)
        statements._holder.publish({partition: landed})
    return Ended(table=name, partition=partition)


def _for_ever(*_arguments: Any) -> list[str]:
    return []


def _not_raised(now: Any, folded: int, *more: Any) -> Any:
    return evolve(_decisions_after(now, folded, *more), sequence=now.sequence)


def _any_epoch(manifest: ManifestDocument, epoch: int) -> None:
    return


def _never_readable(manifest: ManifestDocument, at_ms: int) -> ManifestDocument:
    return evolve(_current(manifest, at_ms), readable_from=manifest.sequence + 1)


def _folded_at_once(
    commits: OwnerCommits, holdings: Any, partition: int, attempt: str, sequence: int | None
) -> Versioned[ManifestDocument]:
    storage, epoch = commits.storage(holdings, partition)
    return storage.abandon(attempt, epoch=epoch) if sequence is None else storage.fold(attempt, epoch=epoch)


def _from_the_newest(
    manifest: ManifestDocument, added: Any, removed: Any, _since: int | None = None
) -> ManifestDocument:
    return _exchanged(manifest, added, removed)


OWNER_MUTANTS: tuple[OwnerMutant, ...] = (
    OwnerMutant(
        name="owner-behind",
        what="an owner changes files without what is prepared there and decided",
        patches=((owner_commits, "caught_up", _behind),),
    ),
    OwnerMutant(
        name="owner-not-caught-up",
        what="an owner answers a query without what committed before it began",
        patches=((PreparedStatements, "catch_up", _nothing),),
    ),
    OwnerMutant(
        name="owner-gives-up",
        what="an owner gives up what is prepared without asking for the decision",
        patches=((PreparedStatements, "_end", _given_up),),
    ),
    OwnerMutant(
        name="owner-base-unchecked",
        what="an owner prepares a statement though the rows that it was made from have changed",
        patches=((OwnerCommits, "_commit", _any_base),),
    ),
    OwnerMutant(
        name="owner-waits-for-ever",
        what="an owner never ends what nobody decides",
        patches=((prepared_statements, "to_end", _for_ever),),
    ),
    OwnerMutant(
        name="owner-unnumbered",
        what="an owner folds a statement in without its sequence",
        patches=((OwnerCommits, "settle", _folded_at_once),),
    ),
    OwnerMutant(
        name="owner-counts-from-the-newest",
        what="what is folded in after a later statement is visible from that one on",
        patches=((ManifestDocument, "_exchanged", _from_the_newest),),
    ),
    OwnerMutant(
        name="commit-unserved",
        what="an owner acknowledges what it does not serve yet",
        patches=((PartitionHolder, "publish", _nothing),),
    ),
    OwnerMutant(
        name="former-owner-heard",
        what="a manifest takes in what an owner commits whose epoch is over",
        patches=((ManifestDocument, "_require", _any_epoch),),
    ),
    OwnerMutant(
        name="run-not-caught-up",
        what="an owner answers without a run of the pipeline that was published before the query began",
        patches=((OutsideRuns, "catch_up", _nothing),),
    ),
    OwnerMutant(
        name="decisions-unproven",
        what="nobody asks whether decisions are older than manifests that were written under them",
        patches=((DecisionsCheck, "require", _nothing),),
    ),
    OwnerMutant(
        name="repaired-too-low",
        what="a repair goes on from the sequence of the older copy",
        patches=((repair, "decisions_after", _not_raised),),
    ),
    OwnerMutant(
        name="queries-planned-for-ever",
        what="a partition can be read from a later sequence on than there is",
        patches=((ManifestDocument, "current", _never_readable),),
    ),
)


def caught_by(mutant: OwnerMutant, seeds: int, first: int = 1) -> tuple[int, str] | None:
    """The first of so many seeds from `first` on that finds the mutant, and what it sees; None if none does."""
    with mutant.applied() as simulation:
        for seed in range(first, first + seeds):
            wrong = simulation(seed).run().wrong
            if wrong:
                return seed, wrong[0]
    return None


def owner_caught_by(name: str, seeds: int) -> tuple[int, str] | None:
    """As `caught_by`, by the name of the mutant, so that another process can be asked."""
    return caught_by(next(mutant for mutant in OWNER_MUTANTS if mutant.name == name), seeds)
