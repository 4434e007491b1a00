"""Deliberate faults of the write path: what the simulation of writes must find, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen

from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.documents.decisions import Decision, SourceSpan, StatementsDocument, TableDecisions
from ballista_py.state.documents.object_state import Versioned
from ballista_py.storage.held import loads as partition_loads
from ballista_py.storage.held import replicas as replica_reads
from ballista_py.storage.held.holdings import Held, Holdings
from ballista_py.storage.held.replicas import ReplicaReads
from ballista_py.storage.manifest import AppliedToken, DataFile, ManifestDocument, Prepared
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.token_pages import TokenPages
from ballista_py.storage.upkeep import garbage
from ballista_py.testing.simulation.writes import actors as write_actors
from ballista_py.testing.simulation.writes.simulation import WriteSimulation

Patch = tuple[Any, str, Any]
_committed = ManifestDocument.committed
_with_prepared = ManifestDocument.with_prepared
_compacted = ManifestDocument.compacted
_exchanged = ManifestDocument._exchanged
_folded = ManifestDocument.folded
_stamped = ManifestDocument.stamped
_current = ManifestDocument.current
_decided = StatementsDocument.decided
_behind_of = replica_reads.behind_of


@frozen(kw_only=True)
class WriteMutant:
    """One deliberate fault; `changes` are fields of the simulation."""

    name: str
    what: str
    patches: tuple[Patch, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()

    @contextmanager
    def applied(self) -> Iterator[Callable[[int], WriteSimulation]]:
        """Break the code within this block, for the whole process; gives simulations by their seed."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                before = owner.__dict__[name]
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
            yield lambda seed: WriteSimulation(seed, **dict(self.changes))


def _again(manifest: ManifestDocument, *arguments: Any) -> ManifestDocument:
    return _committed(evolve(manifest, tokens=()), *arguments)


def _any_base(
    manifest: ManifestDocument,
    prepared: Prepared,
    epoch: int,
    base: Iterable[str] | None = None,
    since: int | None = None,
) -> ManifestDocument:
    here = {file.path for file in manifest.files}
    kept = evolve(prepared, remove=tuple(path for path in prepared.remove if path in here))
    return _with_prepared(evolve(manifest, prepared=()), kept, epoch, None)


def _greedy(
    manifest: ManifestDocument, add: Iterable[DataFile], remove: Iterable[str], epoch: int
) -> ManifestDocument:
    return evolve(_compacted(evolve(manifest, prepared=()), add, remove, epoch), prepared=manifest.prepared)


def _all_files(files: Iterable[DataFile], _prepared: object, _policy: object) -> tuple[DataFile, ...]:
    found = tuple(files)
    return found if len(found) > 1 else ()


def _nothing_kept(
    manifest: ManifestDocument, added: Iterable[DataFile], removed: Any, since: int | None = None
) -> ManifestDocument:
    return evolve(_exchanged(manifest, added, removed, since), retired=())


def _newest(held: Held, sequence: int | None) -> list[int]:
    return list(held.files.values())


def _unheard(statements: TableDecisions, attempt: str, token: str = "") -> Decision:
    return Decision(attempt=attempt, token=token, committed=False)


def _last_word(
    document: StatementsDocument,
    decision: Decision,
    begun: int | None = None,
    definition: int | None = None,
    span: SourceSpan | None = None,
) -> StatementsDocument:
    number = document.decisions_made + 1
    sequence = document.sequence + decision.committed
    decision = evolve(decision, number=number, sequence=sequence if decision.committed else 0)
    kept = tuple(d for d in document.decisions if d.attempt != decision.attempt)
    return evolve(document, sequence=sequence, decisions_made=number, decisions=(*kept, decision))


def _any_epoch(manifest: ManifestDocument, epoch: int) -> None:
    return


def _folded_without_sequence(
    manifest: ManifestDocument, attempt: str, epoch: int, sequence: int = 0
) -> ManifestDocument:
    return _folded(manifest, attempt, epoch, 0)


def _past_forgotten(manifest: ManifestDocument, before: ManifestDocument, by: str, at_ms: int) -> ManifestDocument:
    return evolve(_stamped(manifest, before, by, at_ms), readable_from=0)


def _behind(
    storage: PartitionStorage, _decisions: object, _epoch: int
) -> tuple[Versioned[ManifestDocument], bool]:
    return storage.read(), False


def _never_readable(manifest: ManifestDocument, at_ms: int) -> ManifestDocument:
    return evolve(_current(manifest, at_ms), readable_from=manifest.sequence + 1)


def _newest_alone(_pages: TokenPages, manifest: ManifestDocument, token: str) -> AppliedToken | None:
    return manifest.applied(token)


def _unasked(reads: ReplicaReads, leg: Leg) -> None:
    return


def _as_it_stands(manifest: ManifestDocument, decisions: StatementsDocument) -> ManifestDocument:
    return manifest


def _sequence_ignored(holdings: Holdings, wanted: LegTable, now_ms: float, max_lag_ms: float) -> list[int]:
    return _behind_of(holdings, evolve(wanted, sequence=None), now_ms, max_lag_ms)


def _abort_commits(
    document: StatementsDocument,
    decision: Decision,
    begun: int | None = None,
    definition: int | None = None,
    span: SourceSpan | None = None,
) -> StatementsDocument:
    return _decided(document, evolve(decision, committed=True), begun, definition, span)


WRITE_MUTANTS: tuple[WriteMutant, ...] = (
    WriteMutant(
        name="token-forgotten",
        what="a manifest applies a token that it has applied",
        patches=((ManifestDocument, "committed", _again),),
    ),
    WriteMutant(
        name="base-unchecked",
        what="a statement is prepared though the rows that it was made from have changed",
        patches=((ManifestDocument, "with_prepared", _any_base),),
    ),
    WriteMutant(
        name="greedy-compaction",
        what="files that a prepared statement replaces are compacted",
        patches=((ManifestDocument, "compacted", _greedy), (write_actors, "to_compact", _all_files)),
    ),
    WriteMutant(
        name="nothing-retired",
        what="files that were replaced are not kept for queries that began before",
        patches=((ManifestDocument, "_exchanged", _nothing_kept),),
    ),
    WriteMutant(
        name="newest-files",
        what="a query reads the newest files, whatever its sequence",
        patches=((Held, "file_ids", _newest),),
    ),
    WriteMutant(
        name="not-caught-up",
        what="a query leaves out what is prepared and was committed before it began",
        changes=(("catches_up", False),),
    ),
    WriteMutant(
        name="abort-unheard",
        what="what is left prepared is given up without a decision",
        patches=((TableDecisions, "abort", _unheard),),
    ),
    WriteMutant(
        name="last-word",
        what="of a commit and an abort the later one counts",
        patches=((StatementsDocument, "decided", _last_word),),
    ),
    WriteMutant(
        name="late-owner",
        what="a manifest takes in what an owner commits whose epoch is over",
        patches=((ManifestDocument, "_require", _any_epoch),),
    ),
    WriteMutant(
        name="unnumbered-fold",
        what="what is folded in does not say from which sequence on it is visible",
        patches=((ManifestDocument, "folded", _folded_without_sequence),),
    ),
    WriteMutant(
        name="past-forgotten",
        what="a manifest does not say from which sequence on it can be read",
        patches=((ManifestDocument, "stamped", _past_forgotten),),
    ),
    WriteMutant(
        name="abort-commits",
        what="an abort is entered as a commit",
        patches=((StatementsDocument, "decided", _abort_commits),),
    ),
    WriteMutant(
        name="change-behind",
        what="a change reads the files of a manifest and not what is prepared there and decided",
        patches=((write_actors, "caught_up", _behind),),
    ),
    WriteMutant(
        name="never-readable",
        what="a manifest says that it can be read from a later sequence on than it has",
        patches=((ManifestDocument, "current", _never_readable),),
    ),
    WriteMutant(
        name="pages-unread",
        what="a manifest knows the newest tokens alone",
        patches=((TokenPages, "applied", _newest_alone),),
    ),
    WriteMutant(
        name="replica-unasked",
        what="a replica answers with what it holds, however old",
        patches=((ReplicaReads, "freshen", _unasked),),
    ),
    WriteMutant(
        name="replica-half-told",
        what="a replica leaves out what is prepared and was committed before the query began",
        patches=((partition_loads, "with_committed", _as_it_stands),),
    ),
    WriteMutant(
        name="replica-unnumbered",
        what="a replica within its lag is not compared with a manifest read after the sequence was known",
        patches=((replica_reads, "behind_of", _sequence_ignored),),
    ),
    WriteMutant(
        name="hasty-collector",
        what="files are garbage as soon as no manifest names them",
        patches=((garbage, "MAX_WRITE_MS", 0.0),),
        changes=(("min_age_ms", 0.0),),
    ),
)


def caught_by(mutant: WriteMutant, seeds: int) -> tuple[int, str] | None:
    """The first seed from 1 on that finds the mutant, and what it sees; None if none does."""
    with mutant.applied() as simulation:
        for seed in range(1, seeds + 1):
            wrong = simulation(seed).run().wrong
            if wrong:
                return seed, wrong[0]
    return None


def write_caught_by(name: str, seeds: int) -> tuple[int, str] | None:
    """As `caught_by`, by the name of the mutant, so that another process can be asked."""
    return caught_by(next(mutant for mutant in WRITE_MUTANTS if mutant.name == name), seeds)
