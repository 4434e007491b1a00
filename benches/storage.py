"""Wildcard scans beside Spark and DuckDB, and how fast a new owner is hydrated beside a plain copy.

    python benches/storage.py scans [--rows 2000000] [--rounds 5] [--executors 2] [--folder DIR]
    python benches/storage.py hydrate [--rows 2000000] [--rounds 5] [--folder DIR]
    python benches/storage.py amplify [--rows 100000] [--folder DIR]

`scans` counts the lines of a log that fit a LIKE pattern with a wildcard at both ends: one that nothing fits, one that
one line in 50,000 fits, one that half of them fit. For the record: `--rows 20000000`. Peers, each a process of its own
(`_storage_peer.py`): the cluster with executors on DuckDB and on Polars, DuckDB over the Parquet files, DuckDB over
Vortex files by way of Arrow, Spark `local[2]`. All counts are compared. Printed are medians, how many times faster
than Spark the cluster is, and the peak resident memory of each peer's whole process tree.

`hydrate` brings 16 partitions, kept as Parquet and as Vortex, to an executor: into its file cache, as from a store
elsewhere (read, checked, written), beside a copy of the same files with `shutil`; and with its holder into each engine,
beside Arrow merely decoding them. Eight threads, as in the node. MB are those of the files.

`amplify` writes rows to one partition in statements of 200 rows with its owner compacting after each, and says how many
bytes were written, in data files and in manifests, for each byte that is left in the end, and how many lie there.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from _peers import Peer
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.engine import Engine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import FILE_FORMATS, TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import LegTable
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.local import LocalStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.transport.flight.commands import PARTITION_COLUMN, WriteTarget

SCRIPT = str(Path(__file__).with_name("_storage_peer.py"))
PARTITIONS = 16
FILES = 8
WORKERS = 8
STATEMENT_ROWS = 200
MAX_SMALL_ROWS = 100_000
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
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"scans": scans, "hydrate": hydrate, "amplify": amplify}
    parser.add_argument("part", nargs="*", help=f"of {', '.join(parts)}; default: all")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--folder", help="where to keep the data between runs")
    options = parser.parse_args()
    console = Console(width=130)
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as scratch:
        folder = Path(options.folder or scratch)
        data = generate(folder / f"lines-{options.rows}", options.rows)
        for part in options.part or parts:
            parts[part](console, options, folder, data)


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
        "cache MB/s",
        "decode MB/s",
        *(f"{e} MB/s" for e in engines),
        "cache / copy",
        *(f"{e} / decode" for e in engines),
    ):
        table.add_column(name, justify="left" if name == "files" else "right")
    for form in FILE_FORMATS:
        root = folder / f"hydrate-{form}-{options.rows}"
        shutil.rmtree(root, ignore_errors=True)
        store = LocalStore(str(root))
        megabytes = _write(store, form, rows) / 1e6
        runs: dict[str, Callable[[], float]] = {
            "copy": lambda root=root: _copied(root, folder / "copy"),
            "cache": lambda store=store: _cached(store, spec, folder / "cache"),
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
        ratios = [f"{speed['cache'] / speed['copy']:.2f}"]
        ratios += [f"{speed[engine] / speed['decode']:.2f}" for engine in engines]
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


def _cached(store: LocalStore, spec: TableSpec, target: Path) -> float:
    """All files copied as an executor copies those of a store that is not on its machine."""
    shutil.rmtree(target, ignore_errors=True)
    manifests = [PartitionStorage(store, "lines", f"expr0={p}").read().document for p in range(PARTITIONS)]
    files = [file for manifest in manifests for file in manifest.files]

    class Elsewhere:
        get = staticmethod(store.get)

    with ThreadPoolExecutor(WORKERS) as pool:
        cache = FileCache(Elsewhere(), str(target))
        started = time.perf_counter()
        cache.release(list(pool.map(lambda file: cache.acquire(file, spec.schema), files)))
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
    pool = ThreadPoolExecutor(WORKERS)
    holder = PartitionHolder(lease, store, engine, mapper=pool.map)
    wanted = tuple(
        PartitionAssignment(partition=p, path=f"expr0={p}", epoch=1, role="target") for p in range(PARTITIONS)
    )
    holder.apply(UpdatePartitions(instance_id=lease.info.instance_id, table=spec, revision=1, partitions=wanted))
    started = time.perf_counter()
    report = holder.tick()
    seconds = time.perf_counter() - started
    assert (report.hydrated, report.failed) == (PARTITIONS, 0), report
    engine.close()
    pool.shutdown()
    return seconds


class Counting(LocalStore):
    """A local store that adds up what is written to it, by kind."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.written: Counter[str] = Counter()

    def create(self, key: str, data: bytes) -> str:
        self.written[_kind(key)] += len(data)
        return super().create(key, data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        self.written[_kind(key)] += len(data)
        return super().replace(key, data, version)


def _kind(key: str) -> str:
    return "manifests" if key.endswith("/manifest.json") else "data files"


def amplify(console: Console, options: argparse.Namespace, folder: Path, data: Path) -> None:
    """Many small writes to one partition, compacted as they come."""
    rows = min(options.rows, MAX_SMALL_ROWS)
    shutil.rmtree(folder / "amplify", ignore_errors=True)
    schema = pa.schema([("id", pa.int64()), ("line", pa.string())])
    store = Counting(str(folder / "amplify"))
    table = TableSpec(name="lines", schema=schema, spec=PartitionSpec.parse(["bucket(1, id)"], schema))
    storage = PartitionStorage(store, "lines", "expr0=0")
    storage.create()
    engine, lease, runtime = DuckDBEngine(threads=2), ExecutorLease("e1", "127.0.0.1:1"), SystemRuntime()
    lease.answered(Grant(sequence=lease.heartbeat(()).sequence, lease_ms=1e12))
    holder = PartitionHolder(lease, store, engine)
    owned = (PartitionAssignment(partition=0, path="expr0=0", epoch=1, role="owner"),)
    holder.apply(UpdatePartitions(instance_id=lease.info.instance_id, table=table, revision=1, partitions=owned))
    holder.tick()
    writes = OwnerWrites(holder, store, engine, runtime, map, lambda: "bench")
    named = LegTable(table="lines", revision=1, partitions=(0,), epochs=(1,))
    lines = pq.read_table(sorted(data.glob("*.parquet"))[0], columns=schema.names).cast(schema).slice(0, rows)
    rows = lines.num_rows
    started, merged = time.perf_counter(), 0
    for number, first in enumerate(range(0, rows, STATEMENT_ROWS)):
        for part in lines.slice(first, STATEMENT_ROWS).combine_chunks().to_batches():
            tagged = part.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(0, pa.int32()), part.num_rows))
            said = writes.write(WriteTarget(table=named, incarnation="", token=f"w{number}"), [tagged])
            assert "affected" in said["0"], said
        while (found := writes.compact()) is not None:
            merged += found.files
    seconds = time.perf_counter() - started
    manifest = storage.read().document
    lying = sum(entry.size for entry in store.list("snapshots/lines/data/"))
    engine.close()
    assert manifest.rows == rows
    shown = Table(title=f"{rows:,} rows in statements of {STATEMENT_ROWS}, {seconds:.0f} s")
    for name in (
        "files left",
        "files merged",
        "MB left",
        "data MB written",
        "manifest MB written",
        "MB lying there",
    ):
        shown.add_column(name, justify="right")
    left = manifest.bytes
    data, manifests = store.written["data files"], store.written["manifests"]
    shown.add_row(
        str(len(manifest.files)), str(merged), *(f"{n / 1e6:.1f}" for n in (left, data, manifests, lying))
    )
    shown.add_row("", "", "1.00", *(f"{n / left:.2f}" for n in (data, manifests, lying)), style="bold")
    console.print(shown)


if __name__ == "__main__":
    main()
