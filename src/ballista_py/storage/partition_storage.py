"""One partition's rows on the object store: a fenced manifest over immutable files.

Promises: after `activate(e)` returned, nothing stamped with an older epoch is ever committed here (G5); a commit
is seen whole or not at all; a token is applied once, whatever is resent. Who may be owner is decided elsewhere.

The manifests of partitions that are about to be named: many at the same time, as long as somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ballista_py.errors import BallistaError, ObjectExists, ObjectMissing, OutcomeUnknown
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.values import require_short_value
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.lost_documents import DocumentMemory
from ballista_py.state.documents.object_state import ObjectState, Versioned
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import (
    TAIL_TOKENS,
    AppliedToken,
    DataFile,
    ManifestDocument,
    Prepared,
    manifest_key,
    objection,
)
from ballista_py.storage.token_pages import TokenPages
from ballista_py.work import require_wanted


class PartitionStorage:
    """The manifest of the partition whose text form is `path`. Safe to share between threads.

    `committed_by` goes into the header of every commit; `pages`, and `memory` of the manifests that were seen,
    are shared by all of a process. All verbs raise `ObjectMissing` while there is no manifest, `DocumentUnreadable`
    where that of another partition lies, and what `ObjectState.update` raises for a store in trouble.

    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> storage = PartitionStorage(MemoryStore(), "events", "expr0=5")
    >>> _ = storage.create()
    >>> _ = storage.activate(1)
    >>> file = DataFile(path="snapshots/events/data/a.parquet", rows=3, bytes=700)
    >>> storage.commit(add=[file], epoch=1, token="insert-1").document.applied("insert-1")
    AppliedToken(token='insert-1', added=3, removed=0, affected=3)
    >>> storage.read().document.rows
    3
    """

    def __init__(
        self,
        store: ConditionalStore,
        table: str,
        path: str,
        *,
        runtime: Runtime | None = None,
        committed_by: str = "",
        pages: TokenPages | None = None,
        memory: DocumentMemory | None = None,
    ) -> None:
        self._runtime = runtime or SystemRuntime()
        self._committed_by = committed_by
        self._pages = pages or TokenPages(store, self._runtime)
        self._empty = ManifestDocument(table=table, partition=path)
        self._state = ObjectState(
            store,
            manifest_key(table, path),
            ManifestDocument,
            runtime=self._runtime,
            committed_by=committed_by,
            invariant=objection,
            memory=memory,
        )

    def read(self) -> Versioned[ManifestDocument]:
        """The newest manifest."""
        return self._state.read()

    def create(self) -> Versioned[ManifestDocument]:
        """Make an empty manifest, or read the one that exists."""
        try:
            return self._state.create(self._empty)
        except (ObjectExists, OutcomeUnknown):  # of many commits nobody can tell whether the first one was ours
            return self.read()

    def activate(self, epoch: int) -> Versioned[ManifestDocument]:
        """Raise the fence to `epoch`: from the moment this returns, older owners can commit nothing here.

        The manifest that is returned holds every commit of theirs that counts. Raises `Fenced` when a newer epoch
        is active; activating the same epoch again is fine. An epoch has one owner for ever: raises `DocumentOlder` when
        another one has activated it, because it was given out twice, by an older copy of the partition map.
        """
        return self._state.update(lambda m: m.activated(epoch, self._committed_by))

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[str] = (),
        epoch: int,
        token: str,
        source_position: str | None = None,
        affected: int | None = None,
    ) -> Versioned[ManifestDocument]:
        """Change the list of files as the owner at `epoch`; the manifest says what the token did, now or earlier.

        The files must be on the store already. Raises `Fenced` unless exactly that epoch is active, and
        `InvariantViolated` for a file that is listed already and for a path in `remove` that is not. `affected`
        is what the statement counts (default: the rows added).
        """

        def change(m: ManifestDocument) -> ManifestDocument:
            if self._pages.applied(m, token) is not None:
                return m
            return m.committed(add, remove, epoch, token, source_position, affected)

        landed = self._update(change)
        self._turn_page(landed.document, epoch)
        return landed

    def applied(self, manifest: ManifestDocument, token: str) -> AppliedToken | None:
        """What the statement of that token did by the time of that manifest, if it is known to have been applied."""
        return self._pages.applied(manifest, token)

    def prepare(
        self, prepared: Prepared, *, epoch: int, base: Sequence[str] | None = None, since: int | None = None
    ) -> Versioned[ManifestDocument]:
        """Make a statement ready to be applied here by `fold`, and invisible until then.

        Raises `Fenced`, and `TryLater` when it was made from other files than are here (`base`), when something came
        after the sequence that it read (`since`) which it must have seen, or when it has to wait.
        """

        def change(m: ManifestDocument) -> ManifestDocument:
            if self._pages.applied(m, prepared.token) is not None:
                return m
            return m.with_prepared(prepared, epoch, base, since)

        return self._state.update(change)

    def fold(self, attempt: str, *, epoch: int | None, sequence: int = 0) -> Versioned[ManifestDocument]:
        """Apply what was prepared, because it committed as `sequence`. Raises `Fenced`.

        Without an epoch it is done in the name of whoever is owner.
        """

        def change(m: ManifestDocument) -> ManifestDocument:
            token = m.token_of(attempt)
            if token is not None and m.applied(token) is None and self._pages.applied(m, token) is not None:
                return m.abandoned(attempt, epoch)
            return m.folded(attempt, epoch, sequence)

        landed = self._update(change)
        if epoch is not None:
            self._turn_page(landed.document, epoch)
        return landed

    def abandon(self, attempt: str, *, epoch: int | None) -> Versioned[ManifestDocument]:
        """Forget what was prepared, because it was decided not to be. Raises `Fenced`; `epoch` as for `fold`."""
        return self._state.update(lambda m: m.abandoned(attempt, epoch))

    def prepare_run(
        self, prepared: Prepared, since: tuple[str | None, str | None], *, replaces: bool
    ) -> ManifestDocument:
        """Make a run of the data pipeline ready to be applied here by `fold`; no owner is asked, no epoch changed.

        Makes the manifest if there is none. `since` and `replaces` are those of `ManifestDocument.with_run`, whose
        errors are raised: `VersionConflict` when rows changed since, `TryLater` while anything else is prepared.
        """

        def change(manifest: ManifestDocument) -> ManifestDocument:
            if self._pages.applied(manifest, prepared.token) is not None:
                return manifest
            return manifest.with_run(prepared, since, replaces=replaces)

        try:
            return self._state.update(change).document
        except ObjectMissing:
            try:
                return self._state.create(change(self._empty)).document
            except ObjectExists:
                return self._state.update(change).document

    def compact(self, *, add: Sequence[DataFile], remove: Sequence[str], epoch: int) -> bool:
        """Put files with the same rows in the place of others; False when that is not possible any more.

        Raises `Fenced`, and `InvariantViolated` for files that hold more or fewer rows.
        """
        landed = self._update(lambda m: m.compacted(add, remove, epoch)).document
        return {file.path for file in add} <= {file.path for file in landed.files}

    def _turn_page(self, manifest: ManifestDocument, epoch: int) -> None:
        """Move tokens out of the manifest if there are many. What fails is done after one of the next commits."""
        if len(manifest.tokens) < TAIL_TOKENS:
            return
        with suppress(BallistaError):
            turn = self._pages.turned(manifest)
            if turn is None:
                return
            landed = self._state.update(
                lambda m: m.with_page(turn.page, turn.moved, turn.before, turn.kept, epoch)
            )
            pages = landed.document.pages
            self._pages.discard(turn.merged if turn.page in pages else turn.page.path)

    def _update(self, change: Callable[[ManifestDocument], ManifestDocument]) -> Versioned[ManifestDocument]:
        at_ms = self._runtime.wall_ms()
        return self._state.update(lambda m: change(m).stamped(m, self._committed_by, at_ms))


def partition_paths(store: ConditionalStore, table: str) -> set[str]:
    """The text forms of all partitions of `table` that have a manifest."""
    first, last = manifest_key(table, "\n").split("\n")
    keys = (entry.key for entry in store.list(first))
    return {key.removeprefix(first).removesuffix(last) for key in keys if key.endswith(last)}


RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def make_manifests(
    store: ConditionalStore,
    table: TableSpec,
    values: Iterable[tuple[Any, ...]],
    runtime: Runtime,
    run_all: RunAll = map,
) -> None:
    """Make an empty manifest for each value that has none.

    `run_all` works as `map` does, on several at the same time. Raises `SchemaMismatch`, before it makes anything, for
    a value that is too large to name a partition; what the store raises; and as `Work.check` once
    nobody waits for it or its time is over: what was made by then belongs to no partition, and is found by the next
    statement that names these values.
    """

    values = list(values)
    for value in values:
        require_short_value(table.name, [key.expression for key in table.spec.keys], value)

    def make(value: tuple[Any, ...]) -> None:
        require_wanted()
        PartitionStorage(store, table.folder, table.spec.path(value), runtime=runtime).create()

    for _ in run_all(make, values):
        pass
