"""An owner of a table with a primary key, of which ten rows are a large file: see the fixture `owner`."""

from __future__ import annotations

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import from_wire
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.plan import LegTable
from ballista_py.sql.prune.changes import local_rewrite
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.transport.flight.commands import GONE_COLUMN, WriteTarget

LARGE_ROWS = 10


class Owner:
    def __init__(self, world, writes):
        self.world, self.writes, self.count = world, writes, 0

    def target(self, *partitions: int) -> WriteTarget:
        self.count += 1
        table = LegTable(table="t", revision=1, partitions=partitions, epochs=(1,) * len(partitions))
        return WriteTarget(table=table, incarnation="", token=f"t{self.count}", attempt=f"a{self.count}")

    def apply(self, partition: int, put=(), gone=(), *, settled: bool = True, told: str = "new"):
        target = self.target(partition)
        keys = [*put, *gone]
        rows = pa.record_batch(
            {
                "k": pa.array(keys, pa.int64()),
                "v": pa.array([told] * len(keys), pa.string()),
                GONE_COLUMN: pa.array([False] * len(put) + [True] * len(gone), pa.bool_()),
                PARTITION_COLUMN: pa.array([partition] * len(keys), pa.int32()),
            }
        )
        return self.send(target, rows, settled)

    def send(self, target, rows, settled: bool = True):
        said = self.writes.apply(target, [rows])
        decisions = TableDecisions(self.world.store, "t", runtime=self.world.clock)
        decision = (
            decisions.commit(target.attempt, target.token, affected=0)
            if settled
            else decisions.abort(target.attempt)
        )
        self.writes.settle(target, decision.sequence if settled else None)
        return next(iter(said.values()), None)

    def rows(self, partition: int = 1) -> dict[int, str]:
        leg = self.world.leg((partition, 1))
        query = self.world.engine.query("select k, v from t", self.world.holder.files_for(leg))
        found = [pair for batch in query.batches() for pair in zip(*batch.to_pydict().values(), strict=True)]
        assert len(dict(found)) == len(found), "a key twice"
        return dict(found)

    @property
    def files(self):
        return self.world.storage(1).read().document.files

    @property
    def vectors(self):
        return [file for file in self.files if file.original is not None]

    @property
    def table(self):
        return self.world.holder.holdings("t").table

    @property
    def stored(self) -> set[str]:
        """The data files that there are, whether or not a manifest names them."""
        return {entry.key for entry in self.world.store.list("snapshots/t/data/")}

    @property
    def staged(self) -> set[str]:
        """The files that the engine has for commits that are not made yet."""
        return set(self.world.holder.files._staged.get("t", ()))

    def change(self, text: str) -> Rewrite:
        """What owners are asked for a statement."""
        return local_rewrite(read_change(text), self.table, {"k": "bigint", "v": "varchar"})

    def rewrite(self, text: str) -> int:
        """Run a statement; how many rows it affects. Raises what the owner says that it met."""
        said = self.writes.rewrite(evolve(self.target(1), attempt=None), self.change(text))["1"]
        if "error" in said:
            raise from_wire(said["error"])
        return said["affected"]
