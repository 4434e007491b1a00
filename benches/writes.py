"""What writes cost: ingest beside the engine's own insert and file writers, latency of single rows, amplification.

    python benches/writes.py [--rows 1000000] [--rounds 5] [--singles 200] [--statements 200]
        [--flush-rows 20000] [--partitions 1000]

First one owner takes rows of many partitions, in this process: its CPU with the files of a flush loaded into the engine
together, and one by one.

Every candidate is a process of its own (`_writes_peer.py`) and makes the same rows durable, in turn: `ballista_py`
through one scheduler and two executors onto a folder, DuckDB into its own database file (checkpointed), pyarrow into
one Parquet file (fsync), deltalake by an append, Spark `local[2]` by `df.write.parquet`, where they are installed.
Between two candidates is a pause, so that what one does afterwards is not measured with another. Memory is the peak of
each candidate's process tree. Single rows are written onto a folder and onto moto's S3 server, each on one cluster.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from _measure import claim
from _peers import Peer
from _writes_flush import flush
from _writes_peer import rows
from ballista_py import LocalCluster

SCRIPT = str(Path(__file__).with_name("_writes_peer.py"))
PEERS = {"ballista_py": None, "duckdb": None, "parquet": None, "deltalake": "deltalake", "spark": "pyspark"}
PAUSE_S = 1.0


def ingest(count: int, rounds: int, folder: Path) -> None:
    """Seconds and memory of one large ingest, ours and the peers'."""
    peers: dict[str, Peer] = {}
    for name, needed in PEERS.items():
        if needed is not None and importlib.util.find_spec(needed) is None:
            print(f"{name} is not installed: left out")
            continue
        (folder / name).mkdir()
        peers[name] = Peer(name, SCRIPT, name, str(count), str(folder / name))
    times: dict[str, list[float]] = {name: [] for name in peers}
    peaks: dict[str, list[int]] = {name: [] for name in peers}
    for number in range(rounds + 1):
        for name, peer in peers.items():
            peer.reset_peak()
            seconds = float(peer.ask()["seconds"])
            time.sleep(PAUSE_S)
            if number:  # the first one warms up
                times[name].append(seconds)
                peaks[name].append(peer.peak_bytes)
    for peer in peers.values():
        peer.close()
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"\ningest of {count:,} rows, {rows(count).nbytes / 1e6:.0f} MB")
    for name, seconds in medians.items():
        peak = statistics.median(peaks[name]) / 1e6
        print(f"  {name:<14}{seconds * 1e3:>9.0f} ms {count / seconds / 1e6:>7.2f} M rows/s {peak:>7.0f} MB")
    best = min(seconds for name, seconds in medians.items() if name != "ballista_py")
    ratio = best / medians["ballista_py"]
    claim(">= 0.8x of the fastest that is durable", ratio >= 0.8, f"{ratio:.2f}x")
    ratio = medians["duckdb"] / medians["ballista_py"]
    print(f"  of DuckDB's own insert: {ratio:.2f}x")


@contextmanager
def s3_location() -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of a moto server, as a state location, and the environment in which nodes find it."""
    import boto3

    command = [sys.executable, str(Path(__file__).with_name("_moto_server.py"))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        names = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **names).create_bucket(Bucket="bench")
        yield (
            "s3://bench/state",
            {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "k",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
        )
    finally:
        server.kill()


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


def latencies(location: str, count: int, statements: int, state: Path | None) -> None:
    """Single rows, and with a folder the amplification, on a cluster over `location`."""
    schema = rows(1).schema
    with LocalCluster(schedulers=1, executors=2, state_location=location) as cluster:
        for name in ("small", "many"):
            cluster.create_table(name, schema=schema, partition_by=["bucket(4, id)"])
        print(f"\none row a statement, on {location.partition(':')[0]}")
        singles(cluster, count)
        if state is not None:
            amplification(cluster, state, statements)


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--singles", type=int, default=200)
    parser.add_argument("--statements", type=int, default=200)
    parser.add_argument("--flush-rows", type=int, default=20_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ballista-writes-"))
    state = folder / "state"
    try:
        flush(options.flush_rows, options.partitions, options.rounds)
        ingest(options.rows, options.rounds, folder)
        latencies(state.as_uri(), options.singles, options.statements, state)
        with s3_location() as (location, environment):
            os.environ.update(environment)
            latencies(location, options.singles, options.statements, None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
