"""What writes cost: ingest beside the engine's own insert and file writers, latency of single rows, amplification.

    python benches/writes.py [--rows 1000000] [--rounds 3] [--singles 200] [--statements 200]

Every candidate makes the same rows durable: `ballista_py` through one scheduler and two executors onto a folder,
DuckDB into its own database file (checkpointed), pyarrow into one Parquet file (fsync), deltalake by an append, Spark
`local[2]` by `df.write.parquet`, where they are installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from _measure import claim, interleaved, show
from ballista_py import LocalCluster

BATCH_ROWS = 65_536


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows like those of an event log: a key, a time, a category, a number, a text."""
    rng = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    return pa.table(
        {
            "id": ids,
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000, pa.timestamp("us")),
            "kind": pa.array(rng.integers(0, 50, count)).cast(pa.string()),
            "size": rng.random(count),
            "text": pa.array([f"event {n} of the log" for n in rng.integers(0, 1_000_000, count).tolist()]),
        }
    )


def ingest(cluster: LocalCluster, data: pa.Table, rounds: int, folder: Path) -> None:
    """Rows a second of one large ingest beside the peers."""
    numbers = iter(range(1_000_000))

    def ours() -> None:
        with cluster.client() as client:
            client.ingest("events", data)

    def duck() -> None:
        with duckdb.connect(str(folder / f"duck{next(numbers)}.db"), config={"threads": 2}) as connection:
            connection.register("data", data)
            connection.execute("create table events as select * from data")
            connection.execute("checkpoint")

    def parquet() -> None:
        path = folder / f"one{next(numbers)}.parquet"
        pq.write_table(data, path, compression="zstd")
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    candidates: dict[str, Callable[[], Any]] = {"ballista_py": ours, "duckdb": duck, "parquet": parquet}
    try:
        from deltalake import write_deltalake

        candidates["deltalake"] = lambda: write_deltalake(str(folder / "delta"), data, mode="append")
    except ImportError:
        print("deltalake is not installed: left out")
    stop = _with_spark(candidates, data, folder, numbers)
    medians = interleaved(candidates, rounds)
    stop()
    show(f"ingest of {data.num_rows:,} rows, {data.nbytes / 1e6:.0f} MB", medians, data.num_rows, "ballista_py")
    best = min(seconds for name, seconds in medians.items() if name != "ballista_py")
    ratio = best / medians["ballista_py"]
    claim(">= 0.8x of the fastest that is durable", ratio >= 0.8, f"{ratio:.2f}x")


def _with_spark(candidates: dict[str, Callable[[], Any]], data: pa.Table, folder: Path, numbers: Any) -> Any:
    try:
        from ballista_py.spark.session import embedded_session, stop_session

        session = embedded_session()
    except Exception as error:
        print(f"Spark is left out: {error}")
        return lambda: None
    source = folder / "source.parquet"
    pq.write_table(data, source)
    frame = session.read.parquet(str(source)).cache()
    frame.count()
    candidates["spark local"] = lambda: frame.write.parquet(str(folder / f"spark{next(numbers)}"))
    return lambda: stop_session(session)


def singles(cluster: LocalCluster, count: int) -> None:
    """Latency of statements of one row each, one after the other."""
    with cluster.client() as client:
        for name, run in {
            "ingest of one row": lambda n: client.ingest("small", rows(1, n)),
            "insert values": lambda n: client.sql(
                f"insert into small values ({n}, timestamp '2026-01-01', 'k', 0.5, 'text')"
            ),
            "update of one row": lambda n: client.sql(f"update small set size = {n} where id = {n}"),
            "atomic insert": lambda n: client.sql(
                f"insert into small values ({n}, timestamp '2026-01-01', 'k', 0.5, 'text')", atomic=True
            ),
        }.items():
            times = []
            for n in range(count):
                start = time.perf_counter()
                run(n)
                times.append((time.perf_counter() - start) * 1e3)
            times.sort()
            p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
            print(f"  {name:<24} p50 {statistics.median(times):8.2f} ms   p99 {p99:8.2f} ms")


def amplification(cluster: LocalCluster, state: Path, statements: int) -> None:
    """Bytes on the store for each byte of rows, after many small writes and their compaction."""
    data = rows(100)
    with cluster.client() as client:
        for n in range(statements):
            client.ingest("many", data, token=f"many-{n}")
        held = client.sql("select count(*) as n from many").to_pylist()[0]["n"]
    time.sleep(5)
    (folder,) = [path for path in (state / "snapshots").iterdir() if path.name.startswith("many")]
    files = list(folder.rglob("*.parquet"))
    written = sum(path.stat().st_size for path in files)
    once = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables([data] * statements), once, compression="zstd")
    plain = once.getvalue().size
    print(
        f"\n{statements} statements of 100 rows: {held:,} rows, {len(files)} files, {written / 1e6:.2f} MB written"
    )
    print(f"  written per byte of one file with all rows: {written / plain:.1f} (files are kept until collected)")


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--singles", type=int, default=200)
    parser.add_argument("--statements", type=int, default=200)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ballista-writes-"))
    state = folder / "state"
    try:
        data = rows(options.rows)
        with LocalCluster(schedulers=1, executors=2, state_location=state.as_uri()) as cluster:
            for name in ("events", "small", "many"):
                cluster.create_table(name, schema=data.schema, partition_by=["bucket(4, id)"])
            ingest(cluster, data, options.rounds, folder)
            print("\none row a statement, on a folder")
            singles(cluster, options.singles)
            amplification(cluster, state, options.statements)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
