"""Eight TPC-H queries on a local cluster, on DuckDB alone and on Spark `local[2]`, interleaved in one run.

DuckDB runs twice: over the Parquet files as they are, and over its own tables, loaded before the clock starts, as
an executor loads its partitions.

    python benches/tpch.py --scale 1 [--rounds 5] [--executors 2]

Every peer is a process of its own (`_tpch_peer.py`). Each query runs once to warm up, then once a round on each
peer in turn. Printed are the median seconds of every query, the ratios of the totals, and the peak resident
memory of each peer's whole process tree while the queries ran. All answers are compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from _peers import Peer
from ballista_py.node.demo_queries import QUERIES
from ballista_py.node.tpch_data import generate_tpch

SCRIPT = str(Path(__file__).with_name("_tpch_peer.py"))


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, default=2)
    parser.add_argument("--folder", help="where to keep the data between runs")
    options = parser.parse_args()
    console = Console(width=120)
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
            ),
            Peer("duckdb", SCRIPT, "duckdb", str(data)),
            Peer("duckdb loaded", SCRIPT, "loaded", str(data), str(folder)),
            Peer("spark local[2]", SCRIPT, "spark", str(data)),
        ]
        try:
            report(console, options, peers, measure(console, peers, options.rounds))
        finally:
            for peer in peers:
                peer.close()


def measure(console: Console, peers: list[Peer], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every query on every peer, round by round; the first round only warms up and compares answers."""
    seconds: dict[str, dict[str, list[float]]] = {name: {peer.name: [] for peer in peers} for name in QUERIES}
    for number in range(rounds + 1):
        for name, sql in QUERIES.items():
            answers = {peer.name: peer.ask(sql=sql) for peer in peers}
            wrong = [p for p, answer in answers.items() if not same(answer["rows"], answers["duckdb"]["rows"])]
            if wrong:
                raise SystemExit(f"{name}: {', '.join(wrong)} gave another answer than duckdb")
            if number:
                for peer in peers:
                    seconds[name][peer.name].append(answers[peer.name]["seconds"])
        if number == 0:
            for peer in peers:
                peer.reset_peak()
        console.print(f"round {number} of {rounds} done" if number else "warm-up done, all answers equal")
    return seconds


def same(left: list[list[Any]], right: list[list[Any]]) -> bool:
    """Whether two answers agree. Spark rounds averages of decimals, so numbers may differ by 1e-4."""
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=1e-4) if isinstance(a, float) and isinstance(b, float) else a == b
        for ours, theirs in zip(left, right, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def report(
    console: Console, options: argparse.Namespace, peers: list[Peer], seconds: dict[str, dict[str, list[float]]]
) -> None:
    """Print the medians, the totals, the ratios and the memory."""
    table = Table(title=f"TPC-H scale {options.scale:g}, median of {options.rounds} rounds, seconds")
    table.add_column("query")
    for peer in peers:
        table.add_column(peer.name, justify="right")
    table.add_column("/ duckdb", justify="right")
    table.add_column("/ loaded", justify="right")
    table.add_column("/ spark", justify="right")
    totals = [0.0] * len(peers)
    for name, by_peer in seconds.items():
        medians = [statistics.median(by_peer[peer.name]) for peer in peers]
        totals = [total + median for total, median in zip(totals, medians, strict=True)]
        table.add_row(name, *(f"{m:.3f}" for m in medians), *_ratios(medians))
    table.add_row("total", *(f"{t:.3f}" for t in totals), *_ratios(totals), style="bold")
    table.add_row(
        "peak MB", *(f"{peer.peak_bytes / 1e6:.0f}" for peer in peers), *_ratios([p.peak_bytes for p in peers])
    )
    console.print(table)


def _ratios(values: list[float]) -> list[str]:
    return [f"{values[0] / other:.2f}" for other in values[1:]]


if __name__ == "__main__":
    main()
