"""Statements a second on a local cluster: one without work and a point lookup, by 1, 8 and 32 clients."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq

from ballista_py import LocalCluster

ROWS = 100_000


def run(seconds: float) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(schedulers=1, executors=2) as cluster:
        path = Path(folder) / "events.parquet"
        pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64()), "x": [0.5] * ROWS}), path)
        cluster.create_table("events", str(path), ["bucket(16, id)"])
        print(f"\nstatements on 1 scheduler and 2 executors of this machine, {seconds:g} s each")
        for text in ("select 1 as one", "select x from events where id = {id}"):
            for clients in (1, 8, 32):
                took = _ask(cluster, text, clients, seconds)
                quantiles = statistics.quantiles(took, n=100)
                print(
                    f"  {text.split(' where')[0]:<24}{clients:>4} clients{len(took) / seconds:>9.0f} /s"
                    f"   p50 {quantiles[49] * 1e3:>7.1f} ms   p99 {quantiles[98] * 1e3:>7.1f} ms"
                )


def _ask(cluster: LocalCluster, text: str, clients: int, seconds: float) -> list[float]:
    took: list[float] = []
    until = time.monotonic() + seconds

    def ask(number: int) -> None:
        with cluster.client() as client:
            while time.monotonic() < until:
                number = (number * 7919 + 1) % ROWS
                started = time.perf_counter()
                client.sql(text.format(id=number))
                took.append(time.perf_counter() - started)

    threads = [Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took
