"""Writing from Spark: `df.write.format("ballista")` beside `df.write.parquet` with the same number of files.

    python benches/table_write.py                # 2,000,000 rows, 8 partitions, 4 tasks
    python benches/table_write.py --rows 20_000_000 --rounds 3

Both candidates run in turn in one process tree: Spark with two cores, a scheduler, two executors. The dataframe is in
Spark's memory. What is written to the cluster is committed, loaded by its owners and can be asked for when the time
ends; Parquet files are only there. Each line has the median time, the processor seconds of the nodes and of everything
else (Spark's JVM and Python workers), and how fast it is beside Parquet.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa

from ballista_py import LocalCluster
from ballista_py.spark import BallistaDataSource
from ballista_py.spark.session import embedded_session, stop_session
from table_read import cpu_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("price", pa.float64()),
        ("day", pa.date32()),
        ("word", pa.string()),
        ("part", pa.int32()),
    ]
)
SPREAD = "(id * 2654435761) & 2147483647"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=4)
    asked = parser.parse_args()
    spark = embedded_session(master="local[2]", memory="2g", options={"spark.sql.session.timeZone": "UTC"})
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    spark.dataSource.register(BallistaDataSource)
    with tempfile.TemporaryDirectory() as folder, LocalCluster(schedulers=1, executors=2) as cluster:
        files, url = Path(folder) / "files", "ballista://" + cluster.addresses()[0]
        cluster.create_table("orders", schema=SCHEMA, partition_by=["part"])
        nodes = [psutil.Process(cluster.pid(node)) for node in cluster.node_ids]
        frame = spark.range(0, asked.rows, 1, asked.tasks).selectExpr(
            "id",
            f"({SPREAD}) % 100000 as customer",
            f"({SPREAD}) / 1000D as price",
            "date_add(date'1970-01-01', cast(id / 1000 as int)) as day",
            f"concat('word-', ({SPREAD}) & 1023) as word",
            f"cast(id % {asked.partitions} as int) as part",
        )
        frame = frame.cache()
        assert frame.count() == asked.rows

        def parquet() -> None:
            frame.write.partitionBy("part").mode("overwrite").parquet(str(files))

        def ballista() -> None:
            writer = frame.write.format("ballista").option("url", url).option("table", "orders")
            writer.mode("overwrite").save()

        candidates: dict[str, Callable[[], None]] = {
            'df.write.partitionBy("part").parquet': parquet,
            'df.write.format("ballista")': ballista,
        }
        times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in candidates}
        mine = [psutil.Process()]
        for number in range(asked.rounds + 1):
            for name, candidate in candidates.items():
                gc.collect()
                before, all_before, start = cpu_of(nodes), cpu_of(mine), time.perf_counter()
                candidate()
                seconds = time.perf_counter() - start
                servers = cpu_of(nodes) - before
                if number:  # the first round warms up
                    times[name].append((seconds, servers, cpu_of(mine) - all_before - servers))
        assert cluster.sql("select count(*) as n from orders").to_pylist() == [{"n": asked.rows}]
        count = len(list(files.rglob("*.parquet")))
        size = sum(file.stat().st_size for file in files.rglob("*.parquet")) / 1e6
        python = sys.version.split()[0]
        print(f"{asked.rows:,} rows, {count} files of {size:.0f} MB, {asked.rounds} rounds, Python {python}")
        base = statistics.median(one[0] for one in next(iter(times.values())))
        for name, found in times.items():
            seconds, servers, clients = (statistics.median(one[place] for one in found) for place in range(3))
            print(
                f"  {name:<40}{seconds * 1e3:>8.0f} ms{servers:>8.2f} s nodes{clients:>8.2f} s others"
                f"{base / seconds:>8.2f}x as fast"
            )
        shutil.rmtree(files)
    stop_session(spark)


if __name__ == "__main__":
    main()
