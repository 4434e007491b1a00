"""What one write over many partitions costs an owner: the files of a flush loaded together, and one by one."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import LegTable
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.local import LocalStore
from ballista_py.storage.held.files import LoadedFiles
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.transport.flight.commands import WriteTarget

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("x", pa.float64())])
TOGETHER = LoadedFiles.stage


def one_by_one(files: LoadedFiles, table: str, staged: Sequence[tuple[Any, pa.Table]]) -> None:
    """Each file by a load of its own, as it was."""
    for one in staged:
        TOGETHER(files, table, [one])


def flush(count: int, partitions: int, rounds: int) -> None:
    """CPU seconds of writes of `count` rows to so many partitions, and of what loading them takes of that."""
    ways: dict[str, Callable[..., None]] = {"one by one": one_by_one, "together": TOGETHER}
    folder = Path(tempfile.mkdtemp(prefix="ballista-flush-"))
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    try:
        writes = {name: _owner(folder / name.replace(" ", "-"), partitions) for name in ways}
        for number in range(rounds + 1):
            for name, way in ways.items():
                spent = [0.0]

                def timed(*given: Any, way: Any = way, spent: list[float] = spent) -> None:
                    began = time.process_time()
                    way(*given)
                    spent[0] += time.process_time() - began

                LoadedFiles.stage = timed  # type: ignore[method-assign]
                began, cpu = time.perf_counter(), time.process_time()
                writes[name](number, count)
                if number:
                    found[name].append((time.process_time() - cpu, spent[0], time.perf_counter() - began))
    finally:
        LoadedFiles.stage = TOGETHER  # type: ignore[method-assign]
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{count:,} rows to {partitions:,} partitions of one owner, medians of {rounds} rounds")
    medians = {
        name: [statistics.median(kind) for kind in zip(*times, strict=True)] for name, times in found.items()
    }
    for name, (cpu, loading, seconds) in medians.items():
        print(f"  {name:<12}{cpu:>7.2f} s CPU, of which loading {loading:.2f}{seconds:>8.2f} s")
    before, after = medians.values()
    print(f"  CPU of the write {before[0] / after[0]:.2f}x, of loading {before[1] / after[1]:.1f}x")


def _owner(folder: Path, partitions: int) -> Callable[[int, int], None]:
    store, lease = LocalStore(str(folder / "state")), ExecutorLease("e1", "127.0.0.1:1")
    lease.answered(Grant(sequence=lease.heartbeat(()).sequence, lease_ms=1e12))
    engine = DuckDBEngine(str(folder / "engine"), threads=2, keeper="me")
    holder = PartitionHolder(lease, store, engine)
    spec = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse([f"bucket({partitions}, k)"], SCHEMA))
    numbers = tuple(range(partitions))
    for p in numbers:
        PartitionStorage(store, "t", f"expr0={p}").create()
    owned = tuple(PartitionAssignment(partition=p, path=f"expr0={p}", epoch=1, role="owner") for p in numbers)
    holder.apply(UpdatePartitions(instance_id=lease.info.instance_id, table=spec, revision=1, partitions=owned))
    holder.tick()
    writes = OwnerWrites(holder, store, engine, SystemRuntime(), map, lambda: "bench")
    named = LegTable(table="t", revision=1, partitions=numbers, epochs=(1,) * partitions)

    def write(number: int, count: int) -> None:
        draw = np.random.default_rng(number)
        keys = draw.integers(0, 1 << 40, count)
        rows = pa.record_batch({"k": keys, "v": [f"v{k}" for k in keys], "x": draw.random(count)}, schema=SCHEMA)
        rows = rows.append_column(PARTITION_COLUMN, pa.array(np.sort(keys % partitions).astype(np.int32)))
        said = writes.write(WriteTarget(table=named, incarnation="", token=f"w{number}"), [rows])
        assert sum(one["affected"] for one in said.values()) == count, said

    return write
