"""The 22 TPC-H queries on a local cluster, on DuckDB, Polars and Spark `local[2]` alone, interleaved in one run.

Sail takes part where `pysail` is installed. A peer that cannot run a query, or answers it otherwise than DuckDB, has
a dash there, and the totals over the queries that it and the cluster both answered are compared.

DuckDB runs twice: over the Parquet files as they are, and over its own tables, loaded before the clock starts, as
an executor loads its partitions.

    python benches/tpch.py --scale 1 [--rounds 5] [--executors 2] [--memory-limit 160MB]

`--memory-limit` is what each executor's engine may take; without it executors share the machine, as users find it.

Every peer is a process of its own (`_tpch_peer.py`). Each query runs once to warm up, then once a round on each
peer in turn. Printed are the median seconds of every query, the ratios of the totals, and the peak resident
memory of each peer's whole process tree while the queries ran, beside it the peak of its proportional memory, in which
code that several processes share counts once. All answers are compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from _peers import Peer
from ballista_py.node.demo.tpch_data import generate_tpch
from ballista_py.node.demo.tpch_queries import QUERIES

SCRIPT = str(Path(__file__).with_name("_tpch_peer.py"))


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--memory-limit", default="", help="of each executor's engine")
    parser.add_argument("--folder", help="where to keep the data between runs")
    options = parser.parse_args()
    console = Console(width=140)
    os.environ["POLARS_MAX_THREADS"] = "2"
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as scratch:
        folder = Path(options.folder or scratch)
        data = generate_tpch(folder / f"tpch-{options.scale:g}", options.scale)
        load = Peer(
            "load", SCRIPT, "load", str(data), str(folder / f"state-{options.scale:g}"), str(options.executors)
        )
        load.close()
        peers = [
            Peer(
                "ballista_py",
                SCRIPT,
                "cluster",
                str(data),
                str(folder / f"state-{options.scale:g}"),
                str(options.executors),
                options.memory_limit,
            ),
            Peer("duckdb", SCRIPT, "duckdb", str(data)),
            Peer("duckdb loaded", SCRIPT, "loaded", str(data), str(folder)),
            Peer("polars", SCRIPT, "polars", str(data)),
            Peer("spark local[2]", SCRIPT, "spark", str(data)),
        ]
        if importlib.util.find_spec("pysail") is not None:
            peers.append(Peer("sail", SCRIPT, "sail", str(data)))
        try:
            report(console, options, peers, measure(console, peers, options.rounds))
        finally:
            for peer in peers:
                peer.close()


Seconds = dict[str, dict[str, list[float]]]


def measure(console: Console, peers: list[Peer], rounds: int) -> tuple[Seconds, dict[str, int]]:
    """Seconds of every query on every peer that answers it as DuckDB does, round by round, and the bytes shipped.

    The first round only warms up and compares answers.
    """
    seconds: Seconds = {name: {peer.name: [] for peer in peers} for name in QUERIES}
    shipped: dict[str, int] = {}
    left_out: set[tuple[str, str]] = set()
    for number in range(rounds + 1):
        for name, sql in QUERIES.items():
            asked = [peer for peer in peers if (name, peer.name) not in left_out]
            answers = {peer.name: peer.ask(sql=sql) for peer in asked}
            for peer, answer in answers.items():
                if answer["rows"] is None or not same(answer["rows"], answers["duckdb"]["rows"]):
                    if peer == "ballista_py":
                        raise SystemExit(f"{name}: {answer.get('failed', 'another answer than duckdb')}")
                    left_out.add((name, peer))
                    console.print(f"{name} on {peer}: {answer.get('failed', 'another answer than duckdb')}")
                elif number:
                    seconds[name][peer].append(answer["seconds"])
            shipped[name] = answers["ballista_py"]["shipped"]
        if number == 0:
            for peer in peers:
                peer.reset_peak()
        console.print(f"round {number} of {rounds} done" if number else "warm-up done, answers compared")
    return seconds, shipped


def same(left: list[list[Any]], right: list[list[Any]]) -> bool:
    """Whether two answers agree. Spark rounds averages of decimals, so numbers may differ by 1e-4."""
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=1e-4) if isinstance(a, float) and isinstance(b, float) else a == b
        for ours, theirs in zip(left, right, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def report(
    console: Console,
    options: argparse.Namespace,
    peers: list[Peer],
    measured: tuple[Seconds, dict[str, int]],
) -> None:
    """Print the medians, the totals, the ratios, the bytes shipped and the memory."""
    seconds, shipped = measured
    table = Table(title=f"TPC-H scale {options.scale:g}, median of {options.rounds} rounds, seconds")
    for column in (
        "query",
        *(peer.name for peer in peers),
        *(f"/ {peer.name}" for peer in peers[1:]),
        "shipped kB",
    ):
        table.add_column(column, justify="left" if column == "query" else "right")
    sums = {peer.name: [0.0, 0.0] for peer in peers[1:]}
    total = 0.0
    for name, by_peer in seconds.items():
        medians = [statistics.median(found) if (found := by_peer[peer.name]) else None for peer in peers]
        ours = medians[0]
        assert ours is not None
        total += ours
        for peer, theirs in zip(peers[1:], medians[1:], strict=True):
            if theirs is not None:
                sums[peer.name][0] += ours
                sums[peer.name][1] += theirs
        ratios = [f"{ours / theirs:.2f}" if theirs else "-" for theirs in medians[1:]]
        shown = [f"{median:.3f}" if median else "-" for median in medians]
        table.add_row(name, *shown, *ratios, f"{shipped[name] / 1e3:,.0f}")
    totals = [f"{total:.3f}", *(f"{theirs:.3f}" for _, theirs in sums.values())]
    ratios = [f"{ours / theirs:.2f}" if theirs else "-" for ours, theirs in sums.values()]
    table.add_row("total", *totals, *ratios, f"{sum(shipped.values()) / 1e3:,.0f}", style="bold")
    for title, peaks in (
        ("peak MB", [peer.peak_bytes for peer in peers]),
        ("peak PSS MB", [peer.peak_pss_bytes for peer in peers]),
    ):
        against = [f"{peaks[0] / peak:.2f}" if peak else "-" for peak in peaks[1:]]
        table.add_row(title, *(f"{peak / 1e6:.0f}" for peak in peaks), *against, "")
    console.print(table)


if __name__ == "__main__":
    main()
