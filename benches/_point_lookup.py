"""A point lookup through a cluster beside its two unavoidable parts: a bare Flight `do_get`, a bare DuckDB lookup.

Run as a program it is the bare Flight server: it prints its port and answers every ticket with the same row.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq

from _measure import claim
from ballista_py import LocalCluster

ROWS = 1_000_000
TEXT = "select x, name from events where id = {id}"


class Bare(flight.FlightServerBase):
    """Nothing but Arrow Flight."""

    def do_get(self, context: object, ticket: object) -> flight.RecordBatchStream:
        return flight.RecordBatchStream(pa.table({"x": [0.5], "name": ["one"]}))


def events() -> pa.Table:
    ids = pa.array(range(ROWS), pa.int64())
    return pa.table(
        {"id": ids, "x": pa.array([n / 2 for n in range(ROWS)]), "name": [f"n{n}" for n in range(ROWS)]}
    )


def run(lookups: int) -> None:
    """Measure in turn and print; ids are never asked for twice."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as server,
        LocalCluster(schedulers=1, executors=2) as cluster,
        duckdb.connect() as single,
    ):
        try:
            assert server.stdout is not None
            bare = flight.connect(f"grpc://127.0.0.1:{int(server.stdout.readline())}")
            path = Path(folder) / "events.parquet"
            pq.write_table(events(), path)
            cluster.create_table("events", str(path), ["bucket(16, id)"])
            single.execute("set threads = 1")
            single.execute(f"create table events as from '{path}'")
            with cluster.client() as client:
                _show(
                    _in_turn(
                        {
                            "cluster": lambda number: client.sql(TEXT.format(id=number)),
                            "bare do_get": lambda _number: bare.do_get(flight.Ticket(b"")).read_all(),
                            "bare DuckDB": lambda number: single.execute(TEXT.format(id=number)).fetchall(),
                        },
                        lookups,
                    )
                )
        finally:
            server.kill()


def _in_turn(asked: dict[str, Callable[[int], object]], lookups: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in asked}
    numbers = random.Random(1).sample(range(ROWS), lookups)
    for place, number in enumerate(numbers):
        for name, ask in asked.items():
            started = time.perf_counter()
            ask(number)
            if place >= lookups // 10:  # the first tenth warms up
                took[name].append(time.perf_counter() - started)
    return took


def _show(took: dict[str, list[float]]) -> None:
    medians = {}
    print(f"\na point lookup among {ROWS:,} rows, one client, {len(took['cluster'])} lookups in turn")
    for name, found in took.items():
        quantiles = statistics.quantiles(found, n=100)
        medians[name] = quantiles[49]
        print(f"  {name:<14} p50 {quantiles[49] * 1e3:>7.2f} ms   p99 {quantiles[98] * 1e3:>7.2f} ms")
    times = medians["cluster"] / (medians["bare do_get"] + medians["bare DuckDB"])
    claim(
        "a point lookup's p50 is at most 4x a bare do_get plus a bare DuckDB lookup", times <= 4, f"{times:.2f}x"
    )


if __name__ == "__main__":
    bare_server = Bare("grpc://127.0.0.1:0")
    print(bare_server.port, flush=True)
    bare_server.serve()
