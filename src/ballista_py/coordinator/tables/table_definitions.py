"""How the next definition of a table comes to be: announced, then committed, then proven, each by a conditional write.

Whoever reads the table looks at the document of its statements first. A definition is announced there before it is
committed, so nobody who has not seen it in the catalog can take an older one for the newest: it reads the catalog
again. The commit to `cluster.json` is the instant from which on the table is another one. What an attempt that came to
no end has announced stays announced; it makes readers look once more, and `conclude` ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from attrs import evolve, frozen

from ballista_py.coordinator.tables.held_columns import new_columns, require_engines_hold
from ballista_py.errors import (
    ConfigError,
    DocumentError,
    ObjectExists,
    ObjectMissing,
    SqlError,
    TryLater,
    VersionConflict,
)
from ballista_py.partitions.alterations import Alter
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.documents import (
    CLUSTER_KEY,
    ClusterDocument,
    PartitionMapDocument,
    TableDocument,
    partition_map_key,
    table_key,
)
from ballista_py.state.documents.object_state import SHARED, ObjectState
from ballista_py.state.ownership.catalog_proof import require_described
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.work import pause

ATTEMPTS = 8
TURN_MS = 10_000.0
LOOK_MS = 25.0
Guard = Callable[[ClusterDocument], None]


def unguarded(_cluster: ClusterDocument) -> None:
    """A guard that lets every commit through."""


@frozen
class TableDefinitions:
    """Commits definitions of tables. Thread-safe; raises what `ObjectState` raises."""

    store: ConditionalStore
    runtime: Runtime

    def newest(self, name: str) -> TableSpec | None:
        """The table of that name, as it is now."""
        return self._read().tables.get(name)

    def _read(self) -> ClusterDocument:
        try:
            return self._cluster.read().document
        except ObjectMissing:
            return ClusterDocument()

    def commit(
        self, table: TableSpec, alter: Alter, mark: str | None = None, guard: Guard = unguarded
    ) -> TableSpec:
        """Make of the table what `alter` makes of its newest definition; the table that there is then.

        `alter` is called again where somebody else was quicker. `mark` is remembered in the same commit. Raises
        `SqlError` for a table that was dropped, `TryLater` when others are quicker again and again, and what `alter`
        and `guard` raise, which is asked of the very catalog that is replaced; nothing was changed then.
        """
        return self._commit_after(table, alter, mark, self.let_through(table), guard)

    def let_through(self, table: TableSpec) -> tuple[str, ...]:
        """Wait, but not for long, for statements that an earlier definition kept from being done; those awaited.

        So definitions that follow each other keep no statement waiting for ever, and no statements a definition.
        """
        statements = TableDecisions(self.store, table.folder, runtime=self.runtime)
        first = statements.read().waiting
        deadline_ms = self.runtime.monotonic_ms() + TURN_MS
        while {*first} & {*statements.read().waiting} and self.runtime.monotonic_ms() < deadline_ms:
            pause(self.runtime, LOOK_MS)
        return first

    def _commit_after(
        self,
        table: TableSpec,
        alter: Alter,
        mark: str | None,
        waited_for: tuple[str, ...] = (),
        guard: Guard = unguarded,
    ) -> TableSpec:
        for _ in range(ATTEMPTS):
            cluster = self._read()
            guard(cluster)
            now = _same(cluster, table)
            require_described(self.store, now, lambda: _same(self._read(), table))
            wanted = alter(now)
            if wanted is now:
                if mark is not None:
                    self._cluster.update(lambda cluster: cluster.noted(mark))
                return now
            _require_held(cluster, now, wanted)
            if wanted.name != now.name:
                _require_free(cluster, wanted.name)
            TableDecisions(self.store, now.folder, runtime=self.runtime).announce(wanted.definition, waited_for)
            with suppress(VersionConflict):
                self._commit(now, wanted, mark, guard)
                return wanted
        raise TryLater(f"table '{table.name}' is being altered by others: try again later")

    def conclude(self, table: TableSpec, announced: int) -> TableSpec:
        """Have a definition of at least that number: who announced it and did not commit it cannot any more."""
        # A statement that waits does this, so nothing waits for statements here.
        return self._commit_after(
            table, lambda now: evolve(now, definition=announced) if now.definition < announced else now, None
        )

    def _commit(self, now: TableSpec, wanted: TableSpec, mark: str | None, guard: Guard) -> None:
        """Put `wanted` in the place of `now`. Raises `VersionConflict` when that is not there any more."""

        def change(cluster: ClusterDocument) -> ClusterDocument:
            guard(cluster)
            found = cluster.tables.get(now.name)
            if found is None or found.incarnation != now.incarnation or found.definition != now.definition:
                raise VersionConflict(f"table '{now.name}' was altered meanwhile", key=CLUSTER_KEY)
            _require_held(cluster, now, wanted)
            if wanted.name == now.name:
                return cluster.with_altered(wanted, mark)
            _require_free(cluster, wanted.name)
            return cluster.with_renamed(now.name, wanted, mark)

        revision = self._cluster.update(change).header.revision
        self._prove(wanted, revision)

    def _prove(self, table: TableSpec, revision: int) -> None:
        """Let the map say that the catalog is at least so new, and the folder what the table is.

        The map has a newer revision then, which executors are told of until they have heard it.
        """

        def of_map(now: PartitionMapDocument) -> PartitionMapDocument:
            if now.incarnation != table.incarnation:
                return now
            return evolve(now, catalog_revision=max(now.catalog_revision, revision))

        def of_folder(now: TableDocument) -> TableDocument:
            newer = TableDocument(table=table, catalog_revision=revision)
            return now if now.table.definition >= table.definition else newer

        with suppress(ObjectMissing, DocumentError):
            self._state(partition_map_key(table.map_name), PartitionMapDocument).update(of_map)
        described = self._state(table_key(table.folder), TableDocument)
        try:
            with suppress(DocumentError):
                described.update(of_folder)
        except ObjectMissing:
            with suppress(ObjectExists):
                described.create(TableDocument(table=table, catalog_revision=revision))

    @property
    def _cluster(self) -> ObjectState[ClusterDocument]:
        return ObjectState(self.store, CLUSTER_KEY, ClusterDocument, runtime=self.runtime, retry=SHARED)

    def _state(self, key: str, kind: type) -> ObjectState:  # type: ignore[type-arg]
        return ObjectState(self.store, key, kind, runtime=self.runtime)


def _same(cluster: ClusterDocument, table: TableSpec) -> TableSpec:
    now = cluster.tables.get(table.name)
    if now is None or now.incarnation != table.incarnation:
        raise SqlError(f"table '{table.name}' does not exist any more")
    return now


def _require_free(cluster: ClusterDocument, name: str) -> None:
    try:
        cluster.require_no_view(name)
    except ConfigError as error:
        raise SqlError(error.message) from None
    if name in cluster.tables or name in cluster.unreadable:
        raise SqlError(f"table '{name}' exists already")


def _require_held(cluster: ClusterDocument, now: TableSpec, wanted: TableSpec) -> None:
    """Raise `SqlError` for a column that comes and that an executor cannot hold."""
    try:
        require_engines_hold(cluster, wanted.name, new_columns(now, wanted))
    except ConfigError as error:
        raise SqlError(error.message) from None
