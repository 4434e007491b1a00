"""What it costs to check rows from the wire: an ingest into a cluster with the check and without it.

    python benches/wire.py [--rows 2000000] [--rounds 5]

A scheduler and two executors are real processes on this machine; those of the second cluster have the door taken out
(`check_batch` hands every batch on unseen). The same rows of eight columns (numbers, times, decimals, texts) are
ingested into both, in turn. CPU seconds are those of all nodes of a cluster. The check alone is timed as well, over
the batches as they come.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from _measure import claim, interleaved
from ballista_py import LocalCluster
from ballista_py.transport.arrow.door import check_batch
from ballista_py.transport.client.given import BATCH_ROWS

AIM = 0.05
_TABLE = """
create table orders (id bigint, customer bigint, price double, discount decimal(12, 2), at timestamp, day date,
                     status varchar, note varchar) partitioned by (bucket(8, id))
"""
_OPEN = """
import os
import ballista_py.transport.arrow.door as door  # early in both, so that both have the same allocators
if os.environ.get("BALLISTA_BENCH_OPEN_DOOR"):
    door.check_batch = lambda batch, max_bytes=0: batch
"""


def rows(count: int) -> pa.Table:
    """Eight columns as tables of orders have them."""
    chance = np.random.default_rng(1)
    numbers = np.arange(count)
    return pa.table({
        "id": numbers,
        "customer": chance.integers(0, 100_000, count),
        "price": chance.random(count) * 1e4,
        "discount": pa.array(chance.integers(0, 100, count).astype(np.int32)).cast(pa.decimal128(12, 2)),
        "at": pa.array(numbers * 1_000_000, pa.timestamp("us")),
        "day": pa.array((numbers // 10_000).astype(np.int32), pa.date32()),
        "status": pa.array(["open", "paid", "sent"] * (count // 3 + 1))[:count],
        "note": pa.array([f"order {number} of a customer" for number in range(count)]),
    })  # fmt: skip


def cpu_seconds(cluster: LocalCluster) -> float:
    """CPU seconds that all nodes have used so far."""
    ticks = 0
    for node in cluster.node_ids:
        fields = Path(f"/proc/{cluster.pid(node)}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def ingest(data: pa.Table, rounds: int) -> None:
    """Seconds and CPU seconds of one ingest, with the door and without."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "sitecustomize.py").write_text(_OPEN)
        os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        clusters = {}
        for name in ("checked", "unchecked"):
            if name == "unchecked":
                os.environ["BALLISTA_BENCH_OPEN_DOOR"] = "1"
            clusters[name] = stack.enter_context(LocalCluster(schedulers=1, executors=2))
        took: dict[str, list[float]] = {name: [] for name in clusters}
        used: dict[str, list[float]] = {name: [] for name in clusters}
        for number in range(rounds + 1):
            for name, cluster in clusters.items():
                cluster.sql(_TABLE)
                with cluster.client() as client:
                    before, start = cpu_seconds(cluster), time.perf_counter()
                    client.ingest("orders", data)
                    seconds = time.perf_counter() - start
                    cpu = cpu_seconds(cluster) - before
                cluster.sql("drop table orders")
                if number:  # the first one warms up
                    took[name].append(seconds)
                    used[name].append(cpu)
    for name in took:
        median_cpu = statistics.median(used[name])
        print(f"  {name:<12}{statistics.median(took[name]):>8.2f} s{median_cpu:>8.2f} CPU s")
    extra = statistics.median(used["checked"]) / statistics.median(used["unchecked"]) - 1
    claim(f"at most {AIM:.0%} of an ingest's CPU", extra <= AIM, f"{extra:.1%}")


def check_alone(data: pa.Table, rounds: int) -> None:
    """The check itself, by batches as they travel."""
    batches = data.to_batches(BATCH_ROWS)
    found = interleaved({"check": lambda: [check_batch(batch) for batch in batches]}, rounds)["check"]
    print(f"\ncheck alone: {found * 1e3:.0f} ms for {data.num_rows:,} rows, {data.nbytes / found / 1e9:.1f} GB/s")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = rows(options.rows)
    print(f"{options.rows:,} rows, {data.nbytes / 1e6:.0f} MB")
    check_alone(data, options.rounds)
    print("\none ingest into a cluster of one scheduler and two executors")
    ingest(data, options.rounds)


if __name__ == "__main__":
    main()
