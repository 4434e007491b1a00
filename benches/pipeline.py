"""The Spark pipeline against `df.write.partitionBy` on the same rows, interleaved in one run.

    python benches/pipeline.py [--scale 1] [--rounds 5] [--buckets 16]

TPC-H lineitem is split by `bucket(N, l_orderkey)`. The peers, each a process with an embedded Spark of its own:

- `materialize`: our pipeline, to a folder; files, statistics, checksums and manifests, all durable;
- `partitionBy`: what Spark does by itself, one file per task and value;
- `shuffled partitionBy`: the same after `repartition(key)`, one file per value.

Printed are the median seconds after one round of warm-up, the ratios, files, bytes and the peak resident memory of
each peer's whole process tree.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from _measure import claim
from _peers import Peer, serve
from ballista_py.node.demo.tpch_data import generate_tpch

PEERS = ("materialize", "partitionBy", "shuffled partitionBy")


def main() -> None:
    """Run the benchmark and print its table."""
    if sys.argv[1:2] == ["--peer"]:
        peer(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--folder", help="where to keep the data between runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as scratch:
        data = generate_tpch(Path(options.folder or scratch) / f"tpch-{options.scale:g}", options.scale)
        source = str(data / "lineitem.parquet")
        peers = [
            Peer(name, __file__, "--peer", name, source, str(Path(scratch) / name), str(options.buckets))
            for name in PEERS
        ]
        try:
            rounds = [{peer.name: peer.ask() for peer in peers} for _ in range(options.rounds + 1)]
            report(Console(width=120), options, peers, rounds[1:])
        finally:
            for one in peers:
                one.close()


def report(
    console: Console, options: argparse.Namespace, peers: list[Peer], rounds: list[dict[str, dict[str, Any]]]
) -> None:
    """Print one line per peer."""
    median = {peer.name: statistics.median(answers[peer.name]["seconds"] for answers in rounds) for peer in peers}
    table = Table(
        title=f"lineitem at scale {options.scale:g}, bucket({options.buckets}, l_orderkey), "
        f"median of {options.rounds} rounds"
    )
    for heading in ("", "seconds", "/ partitionBy", "/ shuffled", "files", "MB written", "peak MB, whole tree"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in peers:
        last = rounds[-1][one.name]
        table.add_row(
            one.name,
            f"{median[one.name]:.2f}",
            f"{median[one.name] / median['partitionBy']:.2f}",
            f"{median[one.name] / median['shuffled partitionBy']:.2f}",
            str(last["files"]),
            f"{last['bytes'] / 1e6:.0f}",
            f"{one.peak_bytes / 1e6:.0f}",
        )
    console.print(table)
    ratio = median["materialize"] / median["partitionBy"]
    claim("materialize takes at most 1.3x partitionBy", ratio <= 1.3, f"{ratio:.2f}x")


def peer(name: str, source: str, folder: str, buckets: str) -> None:
    """One peer: writes the table anew for each command."""
    from ballista_py.spark.session import embedded_session

    work = {"materialize": materialize, "partitionBy": partition_by, "shuffled partitionBy": partition_by}[name]
    spark = embedded_session()

    def answer(_command: dict[str, Any]) -> dict[str, Any]:
        return work(spark, source, Path(folder), int(buckets), name.startswith("shuffled"))

    serve(answer)


def materialize(spark: Any, source: str, folder: Path, buckets: int, _shuffled: bool) -> dict[str, Any]:
    """Our pipeline, to a fresh state location."""
    from ballista_py.partitions.spec import PartitionSpec
    from ballista_py.partitions.table import TableSpec
    from ballista_py.spark.pipeline import SparkPipeline
    from ballista_py.state.stores.store import open_store

    shutil.rmtree(folder, ignore_errors=True)
    pipeline = SparkPipeline(
        spark,
        open_store(folder.as_uri()),
        spawn=lambda target: threading.Thread(target=target, daemon=True).start(),
    )
    schema = pipeline.describe("lineitem", source)
    spec = PartitionSpec.parse([f"bucket({buckets}, l_orderkey)"], schema)
    table = TableSpec(name="lineitem", schema=schema, spec=spec, source={"path": source})
    written = pipeline.materialize(table, progress=lambda _done, _total: None)
    return {"files": sum(part.files for part in written.partitions.values()), "bytes": written.bytes}


def partition_by(spark: Any, source: str, folder: Path, buckets: int, shuffled: bool) -> dict[str, Any]:
    """Spark by itself."""
    rows = spark.read.parquet(source)
    keyed = rows.selectExpr("*", f"cast(pmod(xxhash64(l_orderkey), {buckets}) as int) as k")
    (keyed.repartition("k") if shuffled else keyed).write.mode("overwrite").partitionBy("k").parquet(str(folder))
    files = list(folder.rglob("*.parquet"))
    return {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}


if __name__ == "__main__":
    main()
