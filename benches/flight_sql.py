"""Flight SQL: what a standard driver gets of a cluster beside our own client.

    python benches/flight_sql.py [--rows 4000000] [--rounds 5] [--lookups 200]

`stream`: all rows of a table, by our client through a scheduler, by the ADBC driver (which reads from the executors),
and by the driver from both executors at once as partitions. `ingest`: the same rows written. `lookup`: one row by
its key, by our client and by the driver, the statement prepared once and its parameter bound each time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import numpy as np
import pyarrow as pa

from ballista_py import LocalCluster


def main() -> None:
    """Start a cluster, fill a table, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lookups", type=int, default=200)
    options = parser.parse_args()
    data = table(options.rows)
    with LocalCluster(schedulers=1, executors=2) as cluster:
        cluster.sql(
            "create table numbers (id bigint not null, x double, y double) partitioned by (bucket(16, id))"
        )
        cluster.wait_until_loaded()
        with (
            cluster.client() as client,
            flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection,
        ):
            written(client, connection, data)
            streamed(client, cluster.flight_sql_url(), connection, data, options.rounds)
            looked_up(client, connection, options.lookups)


def table(rows: int) -> pa.Table:
    """Three columns of eight bytes."""
    ids = np.arange(rows)
    return pa.table({"id": ids, "x": ids * 0.5, "y": np.sqrt(ids)})


def written(client: Any, connection: Any, data: pa.Table) -> None:
    """Write the rows twice over, so that the table has them once in the end."""
    with connection.cursor() as cursor:
        report("ingest, our client", [timed(lambda: client.ingest("numbers", data, mode="replace"))], data.nbytes)
        report(
            "ingest, ADBC",
            [timed(lambda: cursor.adbc_ingest("numbers", data.to_reader(65_536), mode="replace"))],
            data.nbytes,
        )


def streamed(client: Any, url: str, connection: Any, data: pa.Table, rounds: int) -> None:
    """Read all rows in each way, the ways in turn."""

    def by_driver() -> int:
        with connection.cursor() as cursor:
            cursor.execute("select * from numbers")
            return int(cursor.fetch_arrow_table().num_rows)

    def part(partition: bytes) -> int:
        with flightsql.connect(url, autocommit=True) as own, own.cursor() as cursor:
            cursor.adbc_read_partition(partition)
            return int(cursor.fetch_arrow_table().num_rows)

    def by_parts() -> int:
        with connection.cursor() as cursor, ThreadPoolExecutor() as pool:
            return sum(pool.map(part, cursor.adbc_execute_partitions("select * from numbers")[0]))

    ways: dict[str, Callable[[], int]] = {
        "stream, our client": lambda: int(client.sql("select * from numbers").num_rows),
        "stream, ADBC": by_driver,
        "stream, ADBC partitions": by_parts,
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rows: list[int] = []
            taken[name].append(timed(lambda way=way, rows=rows: rows.append(way())))  # type: ignore[misc]
            assert rows == [data.num_rows], (name, rows)
    for name, seconds in taken.items():
        report(name, seconds, data.nbytes)


def looked_up(client: Any, connection: Any, lookups: int) -> None:
    """One row by its key, again and again."""
    ours = [timed(lambda n=n: client.sql(f"select x from numbers where id = {n}")) for n in range(lookups)]
    theirs = []
    with connection.cursor() as cursor:
        for number in range(lookups):

            def look(number: int = number) -> None:
                cursor.execute("select x from numbers where id = ?", (number,))
                cursor.fetchall()

            theirs.append(timed(look))
    report("lookup, our client", ours)
    report("lookup, ADBC", theirs)


def timed(work: Callable[[], Any]) -> float:
    """Seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def report(name: str, seconds: list[float], size: int | None = None) -> None:
    """One line: the median, the largest, and the rate if there is a size."""
    rate = "" if size is None else f"  {size / median(seconds) / 1e9:6.2f} GB/s"
    print(f"{name:<28}{median(seconds) * 1e3:9.1f} ms  max {max(seconds) * 1e3:9.1f} ms{rate}", flush=True)


if __name__ == "__main__":
    main()
