"""Writes at an executor: rows become files, files become one commit a partition, and then the commit is served.

Promises: what is acknowledged is committed under this owner's epoch and served here; a token is applied once; what
is refused or broken off is applied nowhere. What an attempt prepared is folded in or given up as was decided for
the whole statement, and what nobody decides is aborted (see `prepared_statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from attrs import evolve

from ballista_py.engines.engine import Engine
from ballista_py.errors import InvariantViolated
from ballista_py.figures import UNSEEN, Figures
from ballista_py.owner.changes import NewRows, PartitionChange, part_of, tagged
from ballista_py.owner.commits import OwnerCommits
from ballista_py.owner.compaction import OwnerCompaction
from ballista_py.owner.files import OwnerFiles
from ballista_py.owner.keyed import KeyedRows, without_keys
from ballista_py.owner.prepared import PreparedStatements
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.rewrite import NEW_ROWS, Rewrite
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.column_bounds import may_hold
from ballista_py.storage.held.files import Mapper
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.manifest import DataFile, data_prefix
from ballista_py.storage.row_spool import SPOOL_BYTES
from ballista_py.storage.upkeep.compaction import CompactionPolicy
from ballista_py.transport.flight.commands import WriteTarget


class OwnerWrites:
    """The writes of one executor. Safe to share between threads.

    `mapper` runs requests to the store at the same time, and `each` the partitions of a statement. They must not
    share threads: the second waits for the first. `instance` gives the owner's instance id. Of the rows of a statement
    `spool_bytes` are in memory at most.
    """

    def __init__(
        self,
        holder: PartitionHolder,
        store: ConditionalStore,
        engine: Engine,
        runtime: Runtime,
        mapper: Mapper,
        instance: Callable[[], str],
        policy: CompactionPolicy | None = None,
        each: Mapper | None = None,
        spool_bytes: int = SPOOL_BYTES,
        figures: Figures = UNSEEN,
    ) -> None:
        self._holder = holder
        self._files = OwnerFiles(holder, store, engine, runtime, mapper, spool_bytes, figures)
        self._commits = OwnerCommits(holder, store, runtime, each or map, instance)
        prepared = PreparedStatements(holder, store, self._files, self._commits, runtime)
        self.catch_up, self.settle, self.tick = prepared.catch_up, prepared.settle, prepared.tick
        self.compact = OwnerCompaction(
            holder, store, self._files, self._commits, runtime, mapper, policy or CompactionPolicy()
        ).compact

    def write(
        self,
        target: WriteTarget,
        rows: Iterable[pa.RecordBatch],
        token: Callable[[], str | None] = lambda: None,
    ) -> dict[str, Any]:
        """Take in rows (last column: the partition) and apply or prepare them; what became of each partition.

        Once all rows are there `token` may give the one that they are applied under, in place of the target's.

        Raises `NotOwner` for a table that is not held here, `TableAltered`, `LeaseExpired`, and what the stream of rows
        raises; nothing is applied then.
        """
        table = self._holder.owned(part_of(target.table), target.incarnation).table
        began_ms = self._files.now_ms()
        self._holder.require_definition(target.table, exact=False)
        files = self._files.written(table, rows)
        return self._taken(evolve(target, token=token() or target.token), table, files, began_ms)

    def adopt(self, target: WriteTarget, files: Mapping[int, Sequence[DataFile]]) -> dict[str, Any]:
        """Take over data files that lie ready, by partition, and prepare them; what became of each partition.

        Each is read first: one that is not there, or damaged, is prepared nowhere. Raises as `write`,
        `InvariantViolated` for files that are not of this table as it is now, and what reading them raises.
        """
        table = self._holder.owned(part_of(target.table), target.incarnation).table
        began_ms = self._files.now_ms()
        self._holder.require_definition(target.table, exact=True)
        own = data_prefix(table.folder)
        if target.attempt is None or any(
            file.original is not None or file.definition > table.definition or not file.path.startswith(own)
            for some in files.values()
            for file in some
        ):
            raise InvariantViolated(f"files came for table '{table.name}' that are not its own as it is now")
        self._files.stage(table, [file for some in files.values() for file in some])
        return self._taken(target, table, files, began_ms)

    def _taken(
        self, target: WriteTarget, table: TableSpec, files: Mapping[int, Sequence[DataFile]], began_ms: float
    ) -> dict[str, Any]:
        """Apply or prepare files that are there, and that are loaded."""
        unique = bool(table.primary_key)
        try:
            new = NewRows(target=target, files=files)
            # Keys are taken by whoever committed before, whatever the statement has read; and what was looked at must
            # still be all that is there when it is prepared.
            adds_keys = unique and new.is_blind

            def change(partition: int, here: Sequence[DataFile]) -> PartitionChange:
                self._files.require_young(began_ms)  # it may have waited for its turn, or stood still
                done = new.change(partition, here)
                self._files.check_primary_key(
                    table, partition, done.add, [file for file in here if file.path not in done.remove]
                )
                return evolve(done, base=tuple(file.path for file in here)) if adds_keys else done

            return self._commits.change(
                target, new.partitions, change, alone=unique, blind=new.is_blind and not unique, newest=adds_keys
            )
        finally:
            self._files.done_with(target, [file.path for made in files.values() for file in made])

    def apply(
        self,
        target: WriteTarget,
        rows: Iterable[pa.RecordBatch],
        token: Callable[[], str | None] = lambda: None,
    ) -> dict[str, Any]:
        """Prepare changes of rows by their keys (see `commands.apply_command`); what became of each partition.

        Only files that may hold one of the keys by their statistics are looked into, and only those that do get a
        deletion vector, or are rewritten. Raises as `write`, `InvariantViolated` for rows that are not the table's,
        and `MergeTooLarge`.
        """
        table = self._holder.owned(part_of(target.table), target.incarnation).table
        began_ms = self._files.now_ms()
        self._holder.require_definition(target.table, exact=True)
        keyed = KeyedRows(table)
        files = self._files.written(table, keyed.coming(rows))
        target = evolve(target, token=token() or target.token)
        written = [file.path for made in files.values() for file in made]
        try:
            if target.attempt is None or not keyed.partitions <= set(target.table.partitions):
                raise InvariantViolated(f"changes of table '{table.name}' came without what they belong to")
            new = NewRows(target=target, files=files)

            def change(partition: int, here: Sequence[DataFile]) -> PartitionChange:
                self._files.require_young(began_ms)
                come = new.change(partition, here).add
                keys = keyed.of(partition)
                rest = self._files.rewritten(
                    target, table, partition, here, without_keys(table, keys), {NEW_ROWS: keys}
                )
                written.extend(file.path for file in rest.add)
                if not come and not rest.remove:
                    return PartitionChange()
                return PartitionChange(
                    (*rest.add, *come), rest.remove, keys.num_rows, tuple(file.path for file in here)
                )

            partitions = sorted(keyed.partitions | target.base.keys())
            return self._commits.change(target, partitions, change, alone=True, exact=True)
        finally:
            self._files.done_with(target, written)

    def rewrite(self, target: WriteTarget, rewrite: Rewrite) -> dict[str, Any]:
        """Replace the files that hold rows of a predicate by files without them, or with them changed."""
        table = self._holder.owned(part_of(target.table), target.incarnation).table
        self._holder.require_definition(target.table, exact=True)
        written: list[str] = []

        def change(partition: int, here: Sequence[DataFile]) -> PartitionChange:
            done = self._files.rewritten(target, table, partition, here, rewrite)
            written.extend(file.path for file in done.add)
            return done

        try:
            return self._commits.change(target, sorted(target.table.partitions), change, alone=True, exact=True)
        finally:
            self._files.done_with(target, written)

    def base(
        self, target: WriteTarget, where: str | None, alias: str
    ) -> tuple[dict[str, Any], Callable[[], Iterable[pa.RecordBatch]], pa.Schema]:
        """The files of these partitions, and the rows, file by file, of those that may hold some for `where`.

        The rows have the columns of the schema, and their partition. See `commands.base_command`.
        """
        from ballista_py.sql.prune.changes import (
            file_pruner,  # a parser, which an executor that only reads is spared
        )

        holdings = self._holder.owned(target.table, target.incarnation)
        self._holder.require_definition(target.table, exact=True)
        pruner = file_pruner(where, alias, holdings.table)
        trailer: dict[str, Any] = {"base": {}, "read": []}
        ids: list[tuple[int, int]] = []
        for partition in target.table.partitions:
            here = self._commits.caught_up(holdings, partition).document.files_at(target.table.sequence)
            loaded = self._files.loaded(target, partition, here)
            trailer["base"][str(partition)] = [file.path for file in here]
            for file in may_hold(here, pruner):
                trailer["read"].append([partition, file.path, file.rows])
                ids.append((partition, loaded[file.path]))

        def rows() -> Iterable[pa.RecordBatch]:
            for partition, file_id in ids:
                found = self._files.rows(holdings.table, [file_id])
                self._holder.require_definition(target.table, exact=True)
                for batch in found:
                    yield tagged(batch, partition)

        return trailer, rows, holdings.table.schema
