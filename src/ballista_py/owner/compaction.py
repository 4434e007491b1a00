"""Compaction at an owner: small files of a partition merged into one, over what is loaded of them."""

from __future__ import annotations

from attrs import frozen

from ballista_py.errors import TableAltered
from ballista_py.owner.changes import tagged
from ballista_py.owner.commits import OwnerCommits
from ballista_py.owner.files import OwnerFiles
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import LegTable
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.files import Mapper
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.held.holdings import Holdings
from ballista_py.storage.row_spool import RowSpool
from ballista_py.storage.upkeep.compaction import CompactionPolicy, to_compact


@frozen(kw_only=True)
class Compacted:
    """A merge of `files` files `into` fewer."""

    table: str
    partition: int
    files: int
    into: int


@frozen
class OwnerCompaction:
    """Used by one thread at a time. `mapper` runs requests to the store at the same time."""

    holder: PartitionHolder
    store: ConditionalStore
    files: OwnerFiles
    commits: OwnerCommits
    runtime: Runtime
    mapper: Mapper
    policy: CompactionPolicy

    def compact(self) -> Compacted | None:
        """Merge the small files of one partition, if one has too many.

        Reads go on over the old files, statements that rewrite the table wait.
        """
        for name, partition in self.holder.owned_partitions():
            holdings = self.holder.holdings(name)
            if holdings is None or partition not in holdings.held:
                continue
            if len(holdings.held[partition].files) >= self.policy.min_files:
                with self.commits.turn(holdings.table.folder):
                    done = self._compact(holdings, partition)
                if done is not None:
                    self.holder.reload(name, [partition])
                    return done
        return None

    def _compact(self, holdings: Holdings, partition: int) -> Compacted | None:
        table = holdings.table
        storage, epoch = self.commits.storage(holdings, partition)
        manifest = storage.read().document
        files = to_compact(manifest.files, manifest.prepared, self.policy)
        loaded = holdings.held[partition].files
        if not files or any(file.path not in loaded or file.definition > table.definition for file in files):
            return None
        spool = RowSpool(
            self.store,
            table.folder,
            table.schema,
            self.runtime,
            self.mapper,
            file_format=table.file_format,
            definition=table.definition,
            figures=self.files.figures,
            table=table.name,
        )
        mine = LegTable(
            table=table.name,
            revision=holdings.revision,
            partitions=(partition,),
            epochs=(epoch,),
            definition=table.definition,
            incarnation=table.incarnation,
        )
        rows = self.files.rows(table, [loaded[file.path] for file in files])
        try:
            self.holder.require_definition(mine, exact=True)
            for batch in rows:
                spool.add(tagged(batch.cast(table.schema), partition))
            new = spool.finish().get(partition, [])
            with self.holder.changing(mine, exact=True):
                done = storage.compact(add=new, remove=[file.path for file in files], epoch=epoch)
        except TableAltered:
            done = False
        if not done:
            spool.discard()
            return None
        self.files.figures.add("executor_compactions", table=table.name)
        self.files.figures.add("executor_compacted_files", len(files), table=table.name)
        return Compacted(table=table.name, partition=partition, files=len(files), into=len(new))
