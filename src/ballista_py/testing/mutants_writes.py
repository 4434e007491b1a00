"""Deliberate faults of the write path: what the simulation of writes must find, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen

from ballista_py.state.statements import Decision, Statements, StatementsDocument
from ballista_py.storage import garbage
from ballista_py.storage.holdings import Held
from ballista_py.storage.manifest import DataFile, ManifestDocument, Prepared
from ballista_py.testing import write_simulation
from ballista_py.testing.write_simulation import WriteSimulation

Patch = tuple[Any, str, Any]
_committed = ManifestDocument.committed
_with_prepared = ManifestDocument.with_prepared
_compacted = ManifestDocument.compacted
_exchanged = ManifestDocument._exchanged


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
    manifest: ManifestDocument, prepared: Prepared, epoch: int, base: Iterable[str] | None = None
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


def _nothing_kept(manifest: ManifestDocument, added: Iterable[DataFile], removed: Any) -> ManifestDocument:
    return evolve(_exchanged(manifest, added, removed), retired=())


def _newest(held: Held, sequence: int | None) -> list[int]:
    return list(held.files.values())


def _unheard(statements: Statements, attempt: str, token: str = "") -> Decision:
    return Decision(attempt=attempt, token=token, committed=False)


def _last_word(document: StatementsDocument, decision: Decision, begun: int | None = None) -> StatementsDocument:
    number = document.decisions_made + 1
    sequence = document.sequence + decision.committed
    decision = evolve(decision, number=number, sequence=sequence if decision.committed else 0)
    kept = tuple(d for d in document.decisions if d.attempt != decision.attempt)
    return evolve(document, sequence=sequence, decisions_made=number, decisions=(*kept, decision))


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
        patches=((ManifestDocument, "compacted", _greedy), (write_simulation, "to_compact", _all_files)),
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
        patches=((Statements, "abort", _unheard),),
    ),
    WriteMutant(
        name="last-word",
        what="of a commit and an abort the later one counts",
        patches=((StatementsDocument, "decided", _last_word),),
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
