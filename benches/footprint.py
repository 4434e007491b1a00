"""What an executor takes to have its rows: memory while they are loaded, and time and CPU when it starts again.

    python benches/footprint.py loads [--scale 1] [--limits 150MB 256MB 1GB] [--folder DIR]
    python benches/footprint.py restarts [--gigabytes 2] [--folder DIR]

`loads` brings lineitem of TPC-H in 16 partitions to an engine with a memory limit, and prints the peak of the process
beside the limit, and what the process takes before the first row.

`restarts` fills an executor's holder with partitions of random numbers until its packed file has so many gigabytes,
ends it, and starts it again: with what it has kept, with what it has kept after `kill -9`, and as it was without (each
file decoded anew). For the record: `--gigabytes 10`. Counted is from the lease to the first answer over all partitions,
in a process that has everything imported; the second count is without that answer. The data files are links to one
another, so that they are in the memory of the system: what is compared is decoding, not the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import evolve
from rich.console import Console
from rich.table import Table

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.node.demo.tpch_data import generate_tpch
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.local import LocalStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage

# With the allocators of a node, which are settled before anything is imported.
AS_A_NODE = """
import runpy, sys
from ballista_py.node.allocators import settle_allocators
settle_allocators()
sys.argv = sys.argv[1:]
sys.path.insert(0, "benches")
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PARTITIONS = 16
FILE_ROWS = 1_000_000
COLUMNS = 8
PACKED_BYTES = FILE_ROWS * COLUMNS * 8  # of a file of random numbers


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"loads": loads, "restarts": restarts}
    parser.add_argument("part", nargs="*", help=f"of {', '.join(parts)}; default: both")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--limits", nargs="*", default=["150MB", "256MB", "1GB"])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--folder", help="where to keep the data between runs")
    parser.add_argument("--peer", help="for this program itself")
    options = parser.parse_args()
    if options.peer:
        peer(json.loads(options.peer))
        return
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as scratch:
        for part in options.part or parts:
            parts[part](Console(width=130), options, Path(options.folder or scratch))


def loads(console: Console, options: argparse.Namespace, folder: Path) -> None:
    """The peak of a process that loads lineitem, by its memory limit."""
    data = generate_tpch(folder / f"tpch-{options.scale:g}", options.scale)
    state = folder / f"lineitem-{options.scale:g}"
    if not state.exists():
        rows = pq.read_table(data / "lineitem.parquet")
        step = -(-rows.num_rows // PARTITIONS)
        for p in range(PARTITIONS):
            _put(LocalStore(str(state)), p, rows.slice(p * step, step))
    table = Table(title=f"loading lineitem, scale {options.scale:g}, {PARTITIONS} partitions, 2 threads")
    for name in ("memory limit", "MB before", "peak MB", "peak / limit", "s", "CPU s"):
        table.add_column(name, justify="right")
    for limit in options.limits:
        shutil.rmtree(folder / "node", ignore_errors=True)
        found = _ask(state=str(state), node=str(folder / "node"), limit=limit, partitions=PARTITIONS)
        peak, megabytes = found["peak"] / 1e6, float(limit.rstrip("MGB")) * (1e3 if limit.endswith("GB") else 1)
        table.add_row(
            limit,
            f"{found['before'] / 1e6:.0f}",
            f"{peak:.0f}",
            f"{peak / megabytes:.2f}",
            f"{found['held']:.1f}",
            f"{found['cpu']:.1f}",
        )
    console.print(table)


def restarts(console: Console, options: argparse.Namespace, folder: Path) -> None:
    """An executor that starts again, with and without what it has kept."""
    count = int(-(-options.gigabytes * 1e9 // PACKED_BYTES))
    state, node = folder / f"numbers-{count}", folder / f"node-{count}"
    if not (state / "done").exists():
        shutil.rmtree(state, ignore_errors=True)
        _fill(state, count)
    table = Table(title=f"{count} partitions, {count * FILE_ROWS:,} rows")
    for name in ("", "packed GB", "held after s", "first answer after s", "CPU s", "peak MB"):
        table.add_column(name, justify="right" if name else "left")
    keeps = {"state": str(state), "node": str(node), "limit": "1GB", "partitions": count, "keeper": "me"}
    shutil.rmtree(node, ignore_errors=True)
    for name, how in (
        ("first start", keeps),
        ("again", keeps),
        ("again, to be killed", {**keeps, "dies": True}),
        ("again after kill -9", keeps),
        ("without", {**keeps, "node": f"{node}-without", "keeper": ""}),
    ):
        found = _ask(**how)
        figures = [found["packed"] / 1e9, found["held"], found["answered"], found["cpu"]]
        table.add_row(name, *(f"{n:.2f}" for n in figures), f"{found['peak'] / 1e6:.0f}")
        console.print(name, found)
    console.print(table)
    shutil.rmtree(f"{node}-without", ignore_errors=True)


def _fill(state: Path, count: int) -> None:
    store, draw = LocalStore(str(state)), np.random.default_rng(1)
    rows = pa.table({f"c{n}": draw.random(FILE_ROWS) for n in range(COLUMNS)})
    first = _put(store, 0, rows)
    for p in range(1, count):
        path = state / first.path.replace("/0.parquet", f"/{p}.parquet")
        os.link(state / first.path, path)
        _commit(store, p, evolve(first, path=str(path.relative_to(state))))
    (state / "done").touch()


def _put(store: LocalStore, p: int, rows: pa.Table) -> DataFile:
    file = write_data_file(store, f"snapshots/t/data/{p}.parquet", rows)
    _commit(store, p, file)
    return file


def _commit(store: LocalStore, p: int, file: DataFile) -> None:
    partition = PartitionStorage(store, "t", f"expr0={p}")
    partition.create()
    partition.commit(add=[file], epoch=0, token=f"{p}")


def _ask(**wanted: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", AS_A_NODE, __file__, "--peer", json.dumps(wanted)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done
    return json.loads(done.stdout)


def peak_bytes() -> int:
    """The most memory of this program so far; that of who started it, which `getrusage` counts, too, is left out."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) << 10


def peer(wanted: dict[str, object]) -> None:
    """Hold all partitions, answer over them, and say what that took."""
    store = LocalStore(str(wanted["state"]))
    first = PartitionStorage(store, "t", "expr0=0").read().document.files[0]
    schema = pq.read_schema(str(Path(str(wanted["state"])) / first.path)).remove_metadata()
    spec = TableSpec(name="t", schema=schema, spec=PartitionSpec.parse([f"bucket(16, {schema.names[0]})"], schema))
    folder = Path(str(wanted["node"]))
    before, began, cpu = psutil.Process().memory_info().rss, time.perf_counter(), time.process_time()
    keeper = str(wanted.get("keeper", ""))
    engine = DuckDBEngine(
        str(folder), threads=2, memory_limit=str(wanted["limit"]), keeps_order=False, keeper=keeper
    )
    lease, numbers = ExecutorLease("e1", "127.0.0.1:1"), range(int(str(wanted["partitions"])))
    lease.answered(Grant(sequence=lease.heartbeat(()).sequence, lease_ms=1e12))
    holder = PartitionHolder(lease, store, engine)
    roles = tuple(PartitionAssignment(partition=p, path=f"expr0={p}", epoch=0, role="replica") for p in numbers)
    holder.apply(UpdatePartitions(instance_id=lease.info.instance_id, table=spec, revision=1, partitions=roles))
    report = holder.tick()
    assert (report.hydrated, report.failed) == (len(numbers), 0), report
    held, peak = time.perf_counter() - began, peak_bytes()
    named = LegTable(table="t", revision=1, partitions=tuple(numbers), epochs=(0,) * len(numbers))
    ids = holder.files_for(Leg(fragment="f", executor_id="e1", sql="", tables=(named,)))
    sql = f'select count(*), min("{schema.names[0]}") from t'
    ((count, _),) = [
        row for b in engine.query(sql, ids).batches() for row in zip(*b.to_pydict().values(), strict=True)
    ]
    answered, cpu = time.perf_counter() - began, time.process_time() - cpu
    said = {
        "before": before,
        "peak": peak,
        "held": held,
        "answered": answered,
        "cpu": cpu,
        "rows": count,
        "packed": sum(path.stat().st_size for path in folder.glob("*.duckdb")),
        "kept": holder.progress().files_kept,
    }
    print(json.dumps(said), flush=True)
    if wanted.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    engine.close()


if __name__ == "__main__":
    main()
