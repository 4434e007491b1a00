"""Reading in parallel: Spark through `format("ballista")` beside Spark on the same Parquet files, Python beside ADBC.

    python benches/table_read.py                # 2,000,000 rows
    python benches/table_read.py --rows 20_000_000 --rounds 3

All candidates run in turn in one process tree: Spark with two cores, a scheduler, two executors. Each line has the
median time, the processor seconds of a round of the nodes (Servers) and of everything else (Clients: Spark's JVM and
Python workers, or this process), and the ratio to the first line of its block.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ballista_py import LocalCluster, read_job
from ballista_py.spark import BallistaDataSource
from ballista_py.spark.session import embedded_session, stop_session

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("price", pa.float64()),
        ("day", pa.date32()),
        ("word", pa.string()),
    ]
)


def rows_of(start: int, count: int) -> pa.Table:
    numbers = pa.array(range(start, start + count), pa.int64())
    spread = pc.bit_wise_and(pc.multiply(numbers, 2_654_435_761), (1 << 31) - 1)
    return pa.table(
        {
            "id": numbers,
            "customer": pc.subtract(spread, pc.multiply(pc.divide(spread, 100_000), 100_000)),
            "price": pc.divide(pc.cast(spread, pa.float64()), 1_000.0),
            "day": pc.cast(pc.cast(pc.divide(numbers, 1_000), pa.int32()), pa.date32()),
            "word": pc.binary_join_element_wise("word", pc.cast(pc.bit_wise_and(spread, 1_023), pa.string()), "-"),
        },
        schema=SCHEMA,
    )


def cpu_of(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        for one in (process, *_children(process)):
            try:
                times = one.cpu_times()
            except psutil.Error:  # ended meanwhile
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def measured(
    title: str, nodes: list[psutil.Process], candidates: Mapping[str, Callable[[], Any]], rounds: int
) -> None:
    """Run each in turn, and print what it took; all must give the same."""
    mine = [psutil.Process()]
    answers = {name: candidate() for name, candidate in candidates.items()}
    assert len(set(map(repr, answers.values()))) == 1, f"not all of {list(answers)} give the same"
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            gc.collect()
            before, all_before, start = cpu_of(nodes), cpu_of(mine), time.perf_counter()
            candidate()
            seconds = time.perf_counter() - start
            servers, everything = cpu_of(nodes) - before, cpu_of(mine) - all_before
            times[name].append((seconds, servers, everything - servers))
    print(f"\n{title}")
    base = statistics.median(one[0] for one in next(iter(times.values())))
    for name, found in times.items():
        seconds, servers, clients = (statistics.median(one[place] for one in found) for place in range(3))
        print(
            f"  {name:<44}{seconds * 1e3:>10.0f} ms{servers:>8.2f} s servers{clients:>8.2f} s clients"
            f"{seconds / base:>8.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    spark = embedded_session(master="local[2]", memory="2g", options={"spark.sql.session.timeZone": "UTC"})
    spark.dataSource.register(BallistaDataSource)
    with tempfile.TemporaryDirectory() as folder, LocalCluster(schedulers=1, executors=2) as cluster:
        files = Path(folder)
        cluster.create_table("orders", schema=SCHEMA, partition_by=["bucket(8, id)"])
        step = 500_000
        for number, start in enumerate(range(0, asked.rows, step)):
            rows = rows_of(start, min(step, asked.rows - start))
            cluster.ingest("orders", rows)
            pq.write_table(rows, files / f"{number}.parquet", compression="zstd")
        cluster.wait_until_loaded("orders")
        url = "ballista://" + cluster.addresses()[0]
        nodes = [psutil.Process(cluster.pid(node)) for node in cluster.node_ids]
        size = sum(file.stat().st_size for file in files.iterdir()) / 1e6
        print(
            f"{asked.rows:,} rows, {size:.0f} MB of Parquet, {asked.rounds} rounds, Python {sys.version.split()[0]}"
        )

        def on_files() -> Any:
            return spark.read.parquet(str(files))

        def ballista(**options: str) -> Any:
            return spark.read.format("ballista").option("url", url).options(**options).load()

        def summed(frame: Any) -> Any:
            (row,) = frame.selectExpr("count(*)", "sum(id)", "max(word)", "max(day)", "sum(customer)").collect()
            return tuple(row)

        measured(
            "full scan in Spark: all five columns",
            nodes,
            {
                "Spark on the files": lambda: summed(on_files()),
                "format('ballista'), push=full": lambda: summed(ballista(table="orders")),
                "format('ballista'), encodings=parquet": lambda: summed(
                    ballista(table="orders", encodings="parquet")
                ),
                "format('ballista'), encodings=arrow": lambda: summed(ballista(table="orders", encodings="arrow")),
                "format('ballista'), push=none": lambda: summed(ballista(table="orders", push="none")),
            },
            asked.rounds,
        )
        few = "customer = 77"
        measured(
            "a filter that lets 1 of 100,000 rows through, in Spark",
            nodes,
            {
                "Spark on the files": lambda: summed(on_files().where(few)),
                "format('ballista'), filter=…": lambda: summed(ballista(table="orders", filter=few)),
            },
            asked.rounds,
        )

        def grouped(frame: Any) -> Any:
            return sorted((word, int(count), int(total)) for word, count, total in frame.collect())

        on_words = "select word, count(*) as n, sum(customer) as s from orders group by word"

        def grouped_on_files() -> Any:
            on_files().createOrReplaceTempView("orders")
            return grouped(spark.sql(on_words))

        measured(
            "1,024 groups, in Spark",
            nodes,
            {
                "Spark on the files": grouped_on_files,
                "format('ballista'), query=…": lambda: grouped(ballista(query=on_words)),
            },
            asked.rounds,
        )

        def by_adbc() -> int:
            url = cluster.flight_sql_url()
            with flightsql.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("select * from orders")
                return int(cursor.fetch_arrow_table().num_rows)

        def by_job(process: bool) -> int:
            with read_job(url, table="orders") as job:
                return sum(batch.num_rows for one in job.partitions for batch in one.batches(process=process))

        measured(
            "all rows to one Python process, one thread",
            nodes,
            {
                "ADBC, one statement": by_adbc,
                "read_job, processed": lambda: by_job(True),
                "read_job, columns as they lie": lambda: by_job(False),
            },
            asked.rounds,
        )
    stop_session(spark)


if __name__ == "__main__":
    main()
