"""One partition's rows on the object store: a fenced manifest over immutable files.

Promises: after `activate(e)` returned, nothing stamped with an older epoch is ever committed here (G5); a commit
is seen whole or not at all; a token is applied once, whatever is resent. Who may be owner is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ballista_py.errors import InvariantViolated, ObjectExists, ObjectMissing, OutcomeUnknown
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state import fence
from ballista_py.state.object_state import ObjectState, Versioned
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.manifest import (
    DataFile,
    ManifestDocument,
    Prepared,
    manifest_key,
    objection,
)


class PartitionStorage:
    """The manifest of the partition whose text form is `path`. Safe to share between threads.

    `committed_by` goes into the header of every commit. All verbs raise `ObjectMissing` while there is no
    manifest, and what `ObjectState.update` raises for a store in trouble.

    >>> from ballista_py.state.memory import MemoryStore
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
    ) -> None:
        self._runtime = runtime or SystemRuntime()
        self._committed_by = committed_by
        self._empty = ManifestDocument(table=table, partition=path)
        self._state = ObjectState(
            store,
            manifest_key(table, path),
            ManifestDocument,
            runtime=self._runtime,
            committed_by=committed_by,
            invariant=objection,
        )

    def read(self) -> Versioned[ManifestDocument]:
        """The newest manifest."""
        found = self._state.read()
        if (found.document.table, found.document.partition) != (self._empty.table, self._empty.partition):
            raise InvariantViolated(
                f"'{self._state.key}' is the manifest of partition '{found.document.partition}' of table "
                f"'{found.document.table}': the state location was rearranged"
            )
        return found

    def create(self) -> Versioned[ManifestDocument]:
        """Make an empty manifest, or read the one that exists."""
        try:
            return self._state.create(self._empty)
        except (ObjectExists, OutcomeUnknown):  # of many commits nobody can tell whether the first one was ours
            return self.read()

    def activate(self, epoch: int) -> Versioned[ManifestDocument]:
        """Raise the fence to `epoch`: from the moment this returns, older owners can commit nothing here.

        The manifest that is returned holds every commit of theirs that counts. Raises `Fenced` when a newer epoch
        is active; activating the same epoch again is fine.
        """
        return fence.activate(self._state, epoch)

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
        return self._update(lambda m: m.committed(add, remove, epoch, token, source_position, affected))

    def prepare(
        self, prepared: Prepared, *, epoch: int, base: Sequence[str] | None = None
    ) -> Versioned[ManifestDocument]:
        """Make a statement ready to be applied here by `fold`, and invisible until then.

        Raises `Fenced`, and `TryLater` when it was made from other files than are here (`base`) or has to wait.
        """
        return self._state.update(lambda m: m.with_prepared(prepared, epoch, base))

    def fold(self, attempt: str, *, epoch: int | None, sequence: int = 0) -> Versioned[ManifestDocument]:
        """Apply what was prepared, because it committed as `sequence`. Raises `Fenced`.

        Without an epoch it is done in the name of whoever is owner.
        """
        return self._update(lambda m: m.folded(attempt, epoch, sequence))

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

    def _update(self, change: Callable[[ManifestDocument], ManifestDocument]) -> Versioned[ManifestDocument]:
        at_ms = self._runtime.wall_ms()
        return self._state.update(lambda m: change(m).stamped(m, self._committed_by, at_ms))
