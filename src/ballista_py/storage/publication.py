"""Makes what a run of the data pipeline wrote visible in all of its partitions at one instant, or in none.

Promises: a reader that goes by the table's sequence sees all of a run or nothing of it, wherever the process that
published it died; nothing is replaced that was changed after the run had begun to read its source; of two runs at
once one is published and the other is told so. Every manifest gets the run as prepared, where nobody sees it; one
commit to the table's decisions is the moment of truth (`state/documents/decisions.py`); then it is folded into the
manifests, by this process or by whoever comes across it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from attrs import field, frozen

from ballista_py.errors import BallistaError, ObjectMissing, OutcomeUnknown, TryLater, VersionConflict
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.decisions import (
    Decision,
    StatementsDocument,
    TableDecisions,
    by_count,
    statements_key,
)
from ballista_py.state.documents.object_state import Versioned
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.decisions_check import require_decided
from ballista_py.storage.manifest import DataFile, ManifestDocument, Prepared
from ballista_py.storage.partition_storage import PartitionStorage, partition_paths

RunAll: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
MAX_MEETINGS = 100


@frozen(kw_only=True)
class Begun:
    """A table as it was before a run read its source: the manifests by path, and how many decisions were made.

    `paths` are all partitions, those without a manifest too. `earlier` is the decision on an earlier attempt under
    the same token, if that counts.
    """

    paths: Sequence[str] = field(repr=False)
    decisions: int
    manifests: Mapping[str, ManifestDocument] = field(repr=False)
    earlier: Decision | None = None


@frozen
class Publication:
    """Publishes runs to the table with this folder. `run_all` works as `map` does, perhaps at the same time.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> runs = Publication(MemoryStore(), "events")
    >>> begun = runs.begin(["expr0=0", "expr0=1"], token="load-1")
    >>> file = DataFile(path="snapshots/events/data/a.parquet", rows=3, bytes=700)
    >>> runs.publish(begun, {"expr0=0": [file], "expr0=1": []}, attempt="run-1", token="load-1", position="{}").sequence
    1
    >>> runs.begin(["expr0=0"], token="load-1").manifests["expr0=0"].rows
    3
    """

    store: ConditionalStore
    folder: str
    runtime: Runtime = field(factory=SystemRuntime)
    run_all: RunAll = map

    def begin(self, known: Iterable[str] = (), *, token: str) -> Begun:
        """What is there before anything is read from a source. To be called before that.

        `known` are partitions of the table; those that have a manifest are found. What earlier runs have decided and
        did not live to finish is finished first.
        """
        statements = self._statements()
        decisions = statements.read()
        # Listed after that, so that every manifest is seen in which something decided was prepared.
        paths = sorted(partition_paths(self.store, self.folder).union(known))
        found = self.run_all(lambda path: self._finished(path, decisions), paths)
        manifests = {path: one for path, one in zip(paths, found, strict=True) if one is not None}
        folded = max((one.sequence for one in manifests.values()), default=0)
        if folded > decisions.sequence:  # decided since, or the decisions are an older copy
            require_decided(self.folder, statements.read().sequence, folded)
        for decision in decisions.decisions:
            if decision.committed and not decision.settled:
                statements.settle(decision.attempt)
        return Begun(
            decisions=decisions.decisions_made,
            manifests=manifests,
            earlier=decisions.of(token),
            paths=tuple(paths),
        )

    def publish(
        self,
        begun: Begun,
        files: Mapping[str, Sequence[DataFile]],
        *,
        attempt: str,
        token: str,
        position: str,
        replaces: bool = True,
        done: Callable[[int], None] = lambda _count: None,
        confirm: Callable[[], None] = lambda: None,
    ) -> Decision:
        """Make the files, by partition, all that is there (or come to it, without `replaces`); the decision.

        `attempt` must be fresh. The decision names another attempt if one under the same token counts already.
        `done(n)` is told how many manifests were prepared. `confirm` is called when all are, and raises when the files
        may not be there any more: then nothing is published.

        Raises `VersionConflict` when another run changed a partition since `begun` or took this one's place: nothing
        was changed then. After any other error nothing was changed either, except after `OutcomeUnknown`: then the
        run may count, and its files must stay.
        """
        statements = self._statements(attempt)
        rows = sum(file.rows for several in files.values() for file in several)
        # Runs at once meet at their first partition, so that they seldom have to undo more than that.
        first, *others = sorted(files) or [""]
        at_ms = self.runtime.wall_ms()

        def prepare(path: str) -> None:
            here = begun.manifests.get(path)
            prepared = Prepared(
                attempt=attempt,
                token=token,
                add=tuple(files[path]),
                affected=sum(file.rows for file in files[path]),
                prepared_at_ms=at_ms,
                source_position=position,
            )
            since = here.mark if here is not None else (None, None)
            self._prepare(statements, path, prepared, since, replaces=replaces)

        try:
            if files:
                prepare(first)
            for count, _ in enumerate(self.run_all(prepare, others), start=2):
                done(count)
            # In this order: from now on manifests name the files, so whoever ends a claim after this sees it there.
            confirm()
        except BaseException:
            self._give_up(statements, attempt, files)
            raise
        wanted = Decision(attempt=attempt, token=token, committed=True, affected=rows)
        decision = self._decide(statements, wanted, begun, files)
        if not decision.committed:
            with suppress(BallistaError):
                self._end(decision, files)
            counts = statements.read().of(token)
            if counts is None:
                raise VersionConflict(
                    f"another run took the place of this one on table '{self.folder}': nothing was changed, run again",
                    key=self.folder,
                )
            decision = counts
        self.finish(decision, files)
        return decision

    def finish(self, decision: Decision, paths: Iterable[str]) -> None:
        """Fold a decision in everywhere. It counts, whatever happens here: what is left, others come across."""
        try:
            self._end(decision, paths)
            self._statements(decision.attempt).settle(decision.attempt)
        except BallistaError:
            return

    def _decide(
        self, statements: TableDecisions, wanted: Decision, begun: Begun, paths: Iterable[str]
    ) -> Decision:
        """The decision that holds. After an error abort and commit meet in the document, so that it is known."""
        try:
            return statements.commit(wanted.attempt, wanted.token, affected=wanted.affected, begun=begun.decisions)
        except BallistaError as error:
            try:
                decision = statements.abort(wanted.attempt, wanted.token)
            except BallistaError:
                raise OutcomeUnknown(
                    f"whether a run of table '{self.folder}' counts is not known ({error.message}): run again with "
                    f"the token '{wanted.token}'",
                    key=statements_key(self.folder),
                ) from error
            if not decision.committed:
                self._give_up(statements, wanted.attempt, paths)
                raise
            return decision

    def _give_up(self, statements: TableDecisions, attempt: str, paths: Iterable[str]) -> None:
        """Abort what was not decided. What is left of it hinders nobody: the next run does away with it."""
        with suppress(BallistaError):
            self._end(statements.abort(attempt), paths)

    def _end(self, decision: Decision, paths: Iterable[str]) -> None:
        def one(path: str) -> None:
            try:
                end(self._storage(path, decision.attempt), decision)
            except ObjectMissing:
                return

        for _ in self.run_all(one, list(paths)):
            pass

    def _prepare(
        self,
        statements: TableDecisions,
        path: str,
        prepared: Prepared,
        since: tuple[str | None, str | None],
        *,
        replaces: bool,
    ) -> None:
        storage = self._storage(path, prepared.attempt)
        for meeting in range(MAX_MEETINGS):
            try:
                storage.prepare_run(prepared, since, replaces=replaces)
                return
            except TryLater:
                if meeting == MAX_MEETINGS - 1:
                    raise
            for waiting in storage.read().document.prepared:
                end(storage, statements.supersede(prepared.attempt, waiting.attempt))

    def _finished(self, path: str, decisions: StatementsDocument) -> ManifestDocument | None:
        """The manifest with all that `decisions` knows folded in; None if there is none."""
        storage = self._storage(path, "")
        try:
            manifest = storage.read().document
        except ObjectMissing:
            return None
        for waiting in manifest.prepared:
            decision = decisions.on(waiting.attempt)
            if decision is not None:
                manifest = end(storage, decision)
        return manifest

    def _storage(self, path: str, by: str) -> PartitionStorage:
        return PartitionStorage(self.store, self.folder, path, runtime=self.runtime, committed_by=by)

    def _statements(self, by: str = "") -> TableDecisions:
        return TableDecisions(self.store, self.folder, runtime=self.runtime, committed_by=by, old=by_count)


def visible_files(manifest: ManifestDocument, decisions: StatementsDocument) -> list[DataFile]:
    """The files of a partition as of the last sequence in `decisions`, which were read before the manifest.

    So partitions that are read one after the other show one state of their table. Raises `TryLater` when that state
    is gone already, because the reader was that slow.
    """
    for waiting in manifest.prepared:
        decision = decisions.on(waiting.attempt)
        if decision is not None and decision.committed:
            manifest = manifest.folded(waiting.attempt, None, decision.sequence)
    now = decisions.sequence
    if now < manifest.readable_from:
        raise TryLater(f"partition '{manifest.partition}' of '{manifest.table}' was replaced while it was read")
    if now >= manifest.sequence:
        return list(manifest.files)
    past = [old.file for old in manifest.retired if old.file.added <= now < old.removed]
    return [*(file for file in manifest.files if file.added <= now), *past]


def caught_up(
    storage: PartitionStorage, decisions: Callable[[], StatementsDocument], epoch: int
) -> tuple[Versioned[ManifestDocument], bool]:
    """The manifest with all that is decided by now folded in or given up, by the owner at `epoch`, and whether that
    changed it.

    What a client saw of a statement is in it, for whatever is read after that. Raises `Fenced`.
    """
    found, changed = storage.read(), False
    if not found.document.prepared:
        return found, changed
    known = decisions()  # after the manifest: what is not prepared there any more needs no decision
    for waiting in found.document.prepared:
        decision = known.on(waiting.attempt)
        if decision is not None and decision.committed:
            found, changed = storage.fold(waiting.attempt, epoch=epoch, sequence=decision.sequence), True
        elif decision is not None:
            found, changed = storage.abandon(waiting.attempt, epoch=epoch), True
    return found, changed


def end(storage: PartitionStorage, decision: Decision) -> ManifestDocument:
    """Bring what is prepared in a manifest to the end that was decided for it, in the name of whoever is owner."""
    if decision.committed:
        return storage.fold(decision.attempt, epoch=None, sequence=decision.sequence).document
    return storage.abandon(decision.attempt, epoch=None).document
