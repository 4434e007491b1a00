"""A table in the place of another one: made whole under its own folder, then given the name by one conditional write.

Until then nobody knows of it. What is to be known first is announced to those who read or change the table that has
the name, as a definition of it is: so nobody takes that one for the newest once the other one has its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from attrs import frozen

from ballista_py.coordinator.tables.table_definitions import ATTEMPTS, TableDefinitions
from ballista_py.errors import ConfigError, ObjectMissing, TryLater, VersionConflict
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState

ROWS = "="
Declare = Callable[[ClusterDocument], TableSpec]


@frozen(kw_only=True)
class Named:
    """A table that has its name since `revision` of the catalog, and the one that had it until then, if any."""

    table: TableSpec
    replaced: TableSpec | None
    revision: int


@frozen
class TableReplacements:
    """Gives names that may be taken. Thread-safe; raises what `ObjectState` raises."""

    catalog: ObjectState[ClusterDocument]
    definitions: TableDefinitions

    def commit(self, name: str, declare: Declare, mark: str | None = None) -> Named:
        """Give the table that `declare` tells the name, whoever has it.

        `mark` is remembered in the same commit, and may have the number of rows behind it. Raises `ConfigError` when
        the statement of that mark was carried out already, `TryLater` when others are quicker again and again, and
        what `declare` raises; nothing was changed then.
        """
        for _ in range(ATTEMPTS):
            before = self._newest(name)
            if before is not None:
                waited_for = self.definitions.let_through(before)
                statements = TableDecisions(
                    self.definitions.store, before.folder, runtime=self.definitions.runtime
                )
                statements.announce(before.definition + 1, waited_for)
            with suppress(VersionConflict):
                return self._commit(name, before, declare, mark)
        raise TryLater(f"table '{name}' is being altered by others: try again later")

    def _newest(self, name: str) -> TableSpec | None:
        try:
            return self.catalog.read().document.tables.get(name)
        except ObjectMissing:
            return None

    def _commit(self, name: str, before: TableSpec | None, declare: Declare, mark: str | None) -> Named:
        """Put the table in the place of `before`. Raises `VersionConflict` when that has the name no more."""

        def change(cluster: ClusterDocument) -> ClusterDocument:
            if mark is not None and mark.partition(ROWS)[0] in {
                known.partition(ROWS)[0] for known in cluster.definitions
            }:
                raise ConfigError(f"table '{name}' was made by this very statement already")
            if not _is_same(cluster.tables.get(name), before):
                raise VersionConflict(f"table '{name}' was altered meanwhile", key=CLUSTER_KEY)
            table = declare(cluster)
            return cluster.with_table(table, mark) if before is None else cluster.with_replaced(table, mark)

        done = self.catalog.update(change)
        return Named(table=done.document.tables[name], replaced=before, revision=done.header.revision)


def _is_same(now: TableSpec | None, before: TableSpec | None) -> bool:
    if now is None or before is None:
        return now is before
    return (now.incarnation, now.definition) == (before.incarnation, before.definition)
