"""Tables that are scanned where they lie, beside DuckDB and Spark over the same files, interleaved in one run.

    python benches/lake.py tpch [--format parquet|iceberg] [--scale 1] [--rounds 3] [--memory-limit 100MB]
    python benches/lake.py planning [--files 100000] [--rounds 5]
    python benches/lake.py straggler [--scale 1] [--rounds 5]

`tpch` prints what benches/tpch.py prints: seconds of every query, ratios of the totals, peaks of memory of each
process tree; answers are compared with DuckDB's. `planning` lists the files of an Iceberg table beside pyiceberg's own
`plan_files`. `straggler` scans lineitem on two executors, of which one runs a quarter of the time in the second
cluster: both clusters are asked in turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from _peers import Peer
from ballista_py.node.demo.tpch_data import generate_tpch
from tpch import measure, report

SCRIPT = str(Path(__file__).with_name("_lake_peer.py"))
SCANS = (
    "select l_returnflag, count(*) as n, sum(l_quantity) as q, avg(l_extendedprice) as p from lineitem group by 1",
    "select count(distinct l_partkey) as n from lineitem where l_shipdate > date '1995-01-01'",
)


def main() -> None:
    """Run one of the benchmarks and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tpch", "planning", "straggler"))
    parser.add_argument("--format", choices=("parquet", "iceberg"), default="parquet")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--memory-limit", default="", help="of each executor's engine, and of DuckDB")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folder", help="where to keep the data between runs")
    options = parser.parse_args()
    console = Console(width=140)
    os.environ["POLARS_MAX_THREADS"] = "2"
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as scratch:
        folder = Path(options.folder or scratch)
        {"tpch": tpch, "planning": planning, "straggler": straggler}[options.what](console, options, folder)


def filled(options: argparse.Namespace, folder: Path) -> str:
    """The folder of the lake, filled in a process of its own."""
    data = generate_tpch(folder / f"tpch-{options.scale:g}", options.scale)
    lake = str(folder / f"lake-{options.scale:g}")
    Peer("fill", SCRIPT, "fill", str(data), lake).close()
    return lake


def tpch(console: Console, options: argparse.Namespace, folder: Path) -> None:
    """The 22 queries over the lake."""
    lake = filled(options, folder)
    console.print(f"{options.format}, in place")
    limit = options.memory_limit
    peers = [
        Peer("ballista_py", SCRIPT, "cluster", lake, options.format, str(options.executors), limit),
        Peer("duckdb", SCRIPT, "duckdb", lake, options.format, limit),
        Peer("spark local[2]", SCRIPT, "spark", lake, options.format),
    ]
    if importlib.util.find_spec("pysail") is not None:
        console.print("pysail is installed: benches/tpch.py has it over the same data")
    try:
        report(console, options, peers, measure(console, peers, options.rounds))
    finally:
        for peer in peers:
            peer.close()


def planning(console: Console, options: argparse.Namespace, folder: Path) -> None:
    """The files of a table of many."""
    metadata = _many_files(folder / f"many-{options.files}", options.files)
    peers = [Peer("ballista_py", SCRIPT, "planned", metadata), Peer("pyiceberg", SCRIPT, "pyiceberg", metadata)]
    try:
        took: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
        for number in range(options.rounds + 1):
            for peer in peers:
                answer = peer.ask()
                if number:
                    took[peer.name].append(answer)
        assert len({one["files"] for found in took.values() for one in found}) == 1, took
        table = Table(title=f"files of an Iceberg table of {options.files:,}, median of {options.rounds}")
        for column in ("", "seconds", "CPU seconds", "peak MB", "ratio"):
            table.add_column(column, justify="right" if column else "left")
        base = statistics.median(one["seconds"] for one in took["pyiceberg"])
        for peer in peers:
            seconds = statistics.median(one["seconds"] for one in took[peer.name])
            cpu = statistics.median(one["cpu"] for one in took[peer.name])
            table.add_row(
                peer.name, f"{seconds:.2f}", f"{cpu:.2f}", f"{peer.peak_bytes / 1e6:.0f}", f"{seconds / base:.2f}"
            )
        console.print(table)
    finally:
        for peer in peers:
            peer.close()


def _many_files(folder: Path, files: int) -> str:
    """The metadata of an Iceberg table of so many files, of which only one is there: planning opens none."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    from _lake_peer import catalog_of

    catalog = catalog_of(folder)
    catalog.create_namespace_if_not_exists("many")
    if catalog.table_exists("many.t"):
        return str(catalog.load_table("many.t").metadata_location.removeprefix("file://"))
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    table = catalog.create_table("many.t", schema=schema)
    with table.transaction() as changed, changed.update_snapshot().fast_append() as appended:
        for number in range(files):
            appended.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"{folder.as_uri()}/data/{number}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=_nothing(),
                    record_count=1_000,
                    file_size_in_bytes=64_000,
                    column_sizes={1: 8_000, 2: 50_000},
                    value_counts={1: 1_000, 2: 1_000},
                    null_value_counts={1: 0, 2: 0},
                    nan_value_counts={},
                    lower_bounds={1: (number * 1_000).to_bytes(8, "little")},
                    upper_bounds={1: (number * 1_000 + 999).to_bytes(8, "little")},
                    split_offsets=[4],
                    spec_id=0,
                )
            )
    return str(catalog.load_table("many.t").metadata_location.removeprefix("file://"))


def _nothing() -> Any:
    from pyiceberg.typedef import Record

    return Record()


def straggler(console: Console, options: argparse.Namespace, folder: Path) -> None:
    """A scan with one executor at a quarter of the speed, and one with none."""
    lake = filled(options, folder)
    arguments = ("cluster", lake, "parquet", "2", options.memory_limit)
    even, slow = Peer("even", SCRIPT, *arguments), Peer("one at a quarter", SCRIPT, *arguments, "quarter")
    try:
        took: dict[tuple[str, str], list[float]] = {}
        for number in range(options.rounds + 1):
            for sql in SCANS:
                for peer in (even, slow):
                    answer = peer.ask(sql=sql)
                    if answer["rows"] is None:
                        raise SystemExit(f"{peer.name}: {answer['failed']}")
                    if number:
                        took.setdefault((sql, peer.name), []).append(answer["seconds"])
        table = Table(title=f"lineitem scale {options.scale:g}, median of {options.rounds} rounds, seconds")
        for column in ("query", even.name, slow.name, "ratio"):
            table.add_column(column, justify="left" if column == "query" else "right")
        for sql in SCANS:
            both = [statistics.median(took[sql, peer.name]) for peer in (even, slow)]
            table.add_row(sql[:70], *(f"{one:.3f}" for one in both), f"{both[1] / both[0]:.2f}")
        console.print(table)
    finally:
        for peer in (even, slow):
            peer.close()


if __name__ == "__main__":
    main()
