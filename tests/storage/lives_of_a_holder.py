"""Lives of an executor's holder over one data_dir, each in a process that is killed: `python … FOLDER SEED LIVES`.

Each life gets its partitions back, compares all of them with their manifests, and then writes, deletes by vectors,
alters, compacts, unloads, packs and compares, until it is killed. What is found wrong is said.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from ballista_py.engines.duckdb import engine as engines
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError
from ballista_py.logs import EventFormatter
from ballista_py.owner import files as owner_files
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions.columns import INITIAL, initial_text
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.sql.rewrite import PLACE, Rewrite
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.local import LocalStore
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.compaction import CompactionPolicy
from ballista_py.transport.flight.commands import WriteTarget

PARTITIONS = 4
MOST_COLUMNS = 8
WRONG = 3
MAX_S = 150.0  # on a machine that does much else there are fewer lives


class Life:
    def __init__(self, folder: Path, number: int, draw: random.Random, ready: int) -> None:
        self.ready = ready
        self.folder, self.number, self.draw = folder, number, draw
        self.store, self.writes_done = LocalStore(str(folder / "state")), 0
        engines.SETTLES_MS = 0.0  # lives are short here
        owner_files.SMALL_ROWS = 100
        self.engine = DuckDBEngine(str(folder / "engine"), threads=1, keeper="me")
        self.lease = ExecutorLease("e1", "127.0.0.1:1")
        self.lease.answered(Grant(sequence=self.lease.heartbeat(()).sequence, lease_ms=1e12))
        self.holder = PartitionHolder(self.lease, self.store, self.engine)
        policy = CompactionPolicy(min_files=3)
        self.writes = OwnerWrites(
            self.holder, self.store, self.engine, SystemRuntime(), map, lambda: f"life {number}", policy
        )

    def table(self) -> TableSpec:
        """The table as it was altered so far."""
        more = sum(1 for _ in self.folder.glob("column-*"))
        fields = [pa.field("k", pa.int64()), pa.field("v", pa.string())]
        for n in range(more):
            given = initial_text(pa.array([f"initial {n}"]))
            fields.append(pa.field(f"c{n}", pa.string(), metadata={INITIAL: given}))
        schema = pa.schema(fields)
        return TableSpec(
            name="t", schema=schema, spec=PartitionSpec.parse(["bucket(4, k)"], schema), definition=more
        )

    def told(self, revision: int) -> None:
        """What is to be held: now and then not all of it."""
        partitions = [p for p in range(PARTITIONS) if p == 0 or self.draw.random() < 0.9]
        self.holder.apply(
            UpdatePartitions(
                instance_id=self.lease.info.instance_id,
                table=self.table(),
                revision=revision,
                partitions=tuple(
                    PartitionAssignment(partition=p, path=f"expr0={p}", epoch=self.number + 1, role="owner")
                    for p in partitions
                ),
            )
        )
        self.holder.tick()

    def compare(self) -> None:
        """Raise `AssertionError` where what is served is not what the manifests say."""
        table = self.table()
        for p in range(PARTITIONS):
            named = LegTable(
                table="t", revision=1, partitions=(p,), epochs=(self.number + 1,), definition=table.definition
            )
            leg = Leg(fragment="f", executor_id="e1", sql="", tables=(named,))
            try:
                ids = self.holder.files_for(leg)
            except BallistaError:
                continue
            query = self.engine.query("select * from t", ids)
            served = pa.Table.from_batches(query.batches(), schema=query.schema)
            files = PartitionStorage(self.store, "t", f"expr0={p}").read().document.files
            rows = [read_data_file(self.store, file, table.schema) for file in files]
            wanted = pa.concat_tables([table.schema.empty_table(), *rows])
            assert in_order(served) == in_order(wanted), f"partition {p} in life {self.number}"

    def write(self) -> None:
        table, p = self.table(), self.draw.randrange(PARTITIONS)
        count = self.draw.choice([1, 20, 500, 5_000])
        keys = [self.draw.getrandbits(40) for _ in range(count)]
        columns = {name: [f"{name} {k}" for k in keys] for name in table.schema.names if name != "k"}
        rows = pa.record_batch({"k": keys, **columns}, schema=table.schema)
        rows = rows.append_column(PARTITION_COLUMN, pa.array([p] * count, pa.int32()))
        self.writes.write(self.target(p), [rows])

    def delete(self) -> None:
        columns = ", ".join(self.table().schema.names)
        where = f"k % 37 = {self.draw.randrange(37)}"
        rewrite = Rewrite(
            rows=f"select {columns}, coalesce({where}, false) from t",
            count=f"select count(*) from t where {where}",
            places=f'select "{PLACE}" from t where {where}',
            deletes=True,
        )
        self.writes.rewrite(self.target(self.draw.randrange(PARTITIONS)), rewrite)

    def target(self, p: int) -> WriteTarget:
        self.writes_done += 1
        definition = self.table().definition
        named = LegTable(table="t", revision=1, partitions=(p,), epochs=(self.number + 1,), definition=definition)
        return WriteTarget(table=named, incarnation="", token=f"{self.number}-{self.writes_done}")

    def alter(self) -> None:
        more = self.table().definition
        if more < MOST_COLUMNS:
            (self.folder / f"column-{more}").touch()

    def pack(self) -> None:
        with self.engine._tables._loading:
            self.engine._tables._pack()

    def run(self) -> None:
        self.engine.tidy()  # which notes that the file ended no process
        self.told(1)
        self.compare()
        os.write(self.ready, b"1")
        found = self.holder.progress()
        with (self.folder / "found").open("a") as told:
            told.write(f"{found.files_kept} {found.files_loaded}\n")
        for turn in range(2, 10_000):
            acts = [self.write] * 6 + [self.delete] * 3 + [self.pack] * 4 + [self.compare] * 2
            acts += [self.writes.compact, self.engine.tidy, lambda turn=turn: self.told(turn)]
            if self.draw.random() < 0.01:
                acts = [self.alter]
            with suppress(BallistaError):  # a partition that is not held now, a table that was altered
                self.draw.choice(acts)()


def in_order(rows: pa.Table) -> list[dict[str, object]]:
    return rows.sort_by([("k", "ascending")]).to_pylist()


def one_life(folder: Path, number: int, seed: int, ready: int) -> None:
    try:
        Life(folder, number, random.Random(seed), ready).run()
    except BaseException:
        traceback.print_exc()
        os._exit(WRONG)


def main() -> int:
    folder, seed, lives = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    draw = random.Random(seed)
    said = logging.StreamHandler()
    said.setFormatter(EventFormatter(""))
    logging.getLogger().addHandler(said)
    for p in range(PARTITIONS):
        PartitionStorage(LocalStore(str(folder / "state")), "t", f"expr0={p}").create()
    until = time.monotonic() + MAX_S
    for number in range(lives):
        if time.monotonic() > until:
            break
        waits, ready = os.pipe()
        pid = os.fork()
        if not pid:
            one_life(folder, number, seed * 1_000 + number, ready)
        os.close(ready)
        if draw.random() < 0.8:  # the others die while they get their partitions back
            os.read(waits, 1)
        os.close(waits)
        time.sleep(draw.choice([0.02, 0.1, 0.3, 0.5]) * draw.random())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            print(f"life {number} of seed {seed} ended by itself", flush=True)
            return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
