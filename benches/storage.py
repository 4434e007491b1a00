"""Wildcard scans beside Spark and DuckDB, and how fast a new owner is hydrated beside a plain copy.

    python benches/storage.py scans [--rows 2000000] [--rounds 5] [--executors 2] [--folder DIR]
    python benches/storage.py hydrate [--rows 2000000] [--rounds 5] [--folder DIR]

`scans` counts the lines of a log that fit a LIKE pattern with a wildcard at both ends: one that nothing fits, one that
one line in 50,000 fits, one that half of them fit. For the record: `--rows 20000000`. Peers, each a process of its own
(`_storage_peer.py`): the cluster with executors on DuckDB and on Polars, DuckDB over the Parquet files, DuckDB over
Vortex files by way of Arrow, Spark `local[2]`. All counts are compared. Printed are medians, how many times faster
than Spark the cluster is, and the peak resident memory of each peer's whole process tree.

`hydrate` has an executor's holder load 16 partitions from a local store, kept as Parquet and as Vortex, into each
engine, beside a copy of the same files with `shutil` and beside Arrow merely decoding them. MB are those of the files.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from _peers import Peer
from ballista_py.engines.duckdb import DuckDBEngine
from ballista_py.engines.engine import Engine
from ballista_py.engines.polars import PolarsEngine
from ballista_py.planning.partition_spec import PartitionSpec
from ballista_py.planning.table import FILE_FORMATS, TableSpec
from ballista_py.state.control import PartitionAssignment, UpdatePartitions
from ballista_py.state.executor_lease import ExecutorLease
from ballista_py.state.local import LocalStore
from ballista_py.storage.files import write_data_file
from ballista_py.storage.formats import file_format
from ballista_py.storage.holder import PartitionHolder
from ballista_py.storage.partition_storage import PartitionStorage

SCRIPT = str(Path(__file__).with_name("_storage_peer.py"))
PARTITIONS = 16
FILES = 8
PATTERNS = {"no hits": "%qzj%xkw%", "rare hits": "%needle%stack%", "many hits": "%request%done%"}
LINES = """
    select i as id, i % 97 as service,
        case when i % 50000 = 7 then 'a needle in the stack of ' else '' end
        || case when i % 2 = 0 then 'request ' else 'response ' end || hash(i)::varchar
        || ' of user ' || (i * 7919 % 100003) || ' was done in ' || (i % 977)
        || ' ms at /' || md5((i % 4999)::varchar) || '/index' as line
    from range({first}, {last}) r(i)
"""


def main() -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["scans", "hydrate"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--folder", help="where to keep the data between runs")
    options = parser.parse_args()
    console = Console(width=130)
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as scratch:
        folder = Path(options.folder or scratch)
        data = generate(folder / f"lines-{options.rows}", options.rows)
        {"scans": scans, "hydrate": hydrate}[options.part](console, options, folder, data)


def generate(folder: Path, rows: int) -> Path:
    """A folder of Parquet files with a log of so many lines; made unless it is there."""
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        step = -(-rows // FILES)
        with duckdb.connect(config={"threads": 2}) as connection:
            for n in range(FILES):
                sql = LINES.format(first=n * step, last=min(rows, (n + 1) * step))
                connection.execute(
                    f"copy ({sql}) to '{folder / f'{n}.parquet'}' (format parquet, compression zstd)"
                )
        (folder / "done").touch()
    return folder


def scans(console: Console, options: argparse.Namespace, folder: Path, data: Path) -> None:
    """The wildcard scans on every peer in turn."""
    state, executors = str(folder / f"state-{options.rows}"), str(options.executors)
    for name in ("load", "vortex-files"):
        Peer(name, SCRIPT, name, str(data), state, executors).close()
    kinds = ["cluster", "cluster-polars", "duckdb", "vortex", "spark"]
    peers = [Peer(kind, SCRIPT, kind, str(data), state, executors) for kind in kinds]
    seconds: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in kinds} for name in PATTERNS}
    try:
        for number in range(options.rounds + 1):
            for name, pattern in PATTERNS.items():
                sql = f"select count(*) as hits, min(id) as first from lines where line like '{pattern}'"
                answers = {peer.name: peer.ask(sql=sql) for peer in peers}
                if len({str(answer["rows"]) for answer in answers.values()}) > 1:
                    raise SystemExit(f"{name}: the peers disagree: { {p: a['rows'] for p, a in answers.items()} }")
                for kind in kinds if number else ():
                    seconds[name][kind].append(answers[kind]["seconds"])
            if number == 0:
                for peer in peers:
                    peer.reset_peak()
        _report_scans(console, options, peers, seconds)
    finally:
        for peer in peers:
            peer.close()


def _report_scans(
    console: Console, options: argparse.Namespace, peers: list[Peer], seconds: dict[str, dict[str, list[float]]]
) -> None:
    table = Table(title=f"count of lines LIKE …, {options.rows:,} rows, median seconds of {options.rounds} rounds")
    for name in ("pattern", *(peer.name for peer in peers), "spark / cluster", "duckdb / cluster"):
        table.add_column(name, justify="left" if name == "pattern" else "right")
    for name, by_peer in seconds.items():
        medians = {kind: statistics.median(found) for kind, found in by_peer.items()}
        ratios = [f"{medians[other] / medians['cluster']:.1f}" for other in ("spark", "duckdb")]
        table.add_row(name, *(f"{s:.3f}" for s in medians.values()), *ratios)
    peak = {peer.name: peer.peak_bytes for peer in peers}
    ratios = [f"{peak[other] / peak['cluster']:.2f}" for other in ("spark", "duckdb")]
    table.add_row("peak MB", *(f"{size / 1e6:.0f}" for size in peak.values()), *ratios, style="bold")
    console.print(table)


def hydrate(console: Console, options: argparse.Namespace, folder: Path, data: Path) -> None:
    """Loading partitions into an engine, beside copying their files."""
    rows = pq.read_table(sorted(data.glob("*.parquet")))
    schema = rows.schema
    spec = TableSpec(name="lines", schema=schema, spec=PartitionSpec.parse([f"bucket({PARTITIONS}, id)"], schema))
    engines: dict[str, Callable[[], Engine]] = {
        "duckdb": lambda: DuckDBEngine(str(folder / "engine"), threads=2, keeps_order=False),
        "polars": PolarsEngine,
    }
    table = Table(
        title=f"hydrate {options.rows:,} rows in {PARTITIONS} partitions, medians of {options.rounds} rounds"
    )
    for name in (
        "files",
        "MB",
        "copy MB/s",
        "decode MB/s",
        *(f"{e} MB/s" for e in engines),
        *(f"{e} / copy" for e in engines),
    ):
        table.add_column(name, justify="left" if name == "files" else "right")
    for form in FILE_FORMATS:
        root = folder / f"hydrate-{form}-{options.rows}"
        shutil.rmtree(root, ignore_errors=True)
        store = LocalStore(str(root))
        megabytes = _write(store, form, rows) / 1e6
        runs: dict[str, Callable[[], float]] = {
            "copy": lambda root=root: _copied(root, folder / "copy"),
            "decode": lambda root=root, form=form: _decoded(root, form, schema),
        }
        for name, make in engines.items():
            runs[name] = lambda make=make, store=store: _hydrated(make, store, spec)
        found: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(options.rounds + 1):
            for name, run in runs.items():
                seconds = run()
                if number:
                    found[name].append(seconds)
        speed = {name: megabytes / statistics.median(times) for name, times in found.items()}
        ratios = [f"{speed[engine] / speed['copy']:.2f}" for engine in engines]
        table.add_row(form, f"{megabytes:.0f}", *(f"{mb:.0f}" for mb in speed.values()), *ratios)
    console.print(table)


def _write(store: LocalStore, form: str, rows: pa.Table) -> int:
    """One file a partition, each with a manifest; returns the bytes of the files."""
    step, size = -(-rows.num_rows // PARTITIONS), 0
    for p in range(PARTITIONS):
        part = rows.slice(p * step, step)
        file = write_data_file(store, f"snapshots/lines/data/{p}.{form}", part, form)
        partition = PartitionStorage(store, "lines", f"expr0={p}")
        partition.create()
        partition.commit(add=[file], epoch=0, token=f"{p}")
        size += file.bytes
    return size


def _copied(root: Path, target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    started = time.perf_counter()
    for path in sorted((root / "snapshots/lines/data").iterdir()):
        shutil.copyfile(path, target / path.name)
    return time.perf_counter() - started


def _decoded(root: Path, form: str, schema: pa.Schema) -> float:
    started = time.perf_counter()
    for path in sorted((root / "snapshots/lines/data").iterdir()):
        if path.suffix == f".{form}":
            for _ in file_format(form).read_batches(str(path), schema, path.name):
                pass
    return time.perf_counter() - started


def _hydrated(make: Callable[[], Engine], store: LocalStore, spec: TableSpec) -> float:
    engine = make()
    lease = ExecutorLease("e1", "127.0.0.1:1")
    holder = PartitionHolder(lease, store, engine)
    wanted = tuple(
        PartitionAssignment(partition=p, path=f"expr0={p}", epoch=1, role="target") for p in range(PARTITIONS)
    )
    holder.apply(UpdatePartitions(instance_id=lease.info.instance_id, table=spec, revision=1, partitions=wanted))
    started = time.perf_counter()
    report = holder.tick()
    seconds = time.perf_counter() - started
    assert (report.hydrated, report.failed) == (PARTITIONS, 0), report
    engine.close()
    return seconds


if __name__ == "__main__":
    main()
