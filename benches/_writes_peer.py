"""One peer of benches/writes.py: makes the same rows durable each time it is asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from _peers import serve


def rows(number: int, first: int = 0) -> pa.Table:
    """Rows like those of an event log: a key, a time, a category, a number, a text."""
    rng = np.random.default_rng(first)
    ids = np.arange(first, first + number)
    return pa.table(
        {
            "id": ids,
            "at": pa.array(1_700_000_000_000_000 + ids * 1_000, pa.timestamp("us")),
            "kind": pa.array(rng.integers(0, 50, number)).cast(pa.string()),
            "size": rng.random(number),
            "text": pa.array([f"event {n} of the log" for n in rng.integers(0, 1_000_000, number).tolist()]),
        }
    )


def main() -> None:
    """Serve as the peer named on the command line."""
    kind, number, folder = sys.argv[1:]
    peers = {
        "ballista_py": cluster,
        "duckdb": duckdb_insert,
        "parquet": parquet,
        "deltalake": delta,
        "spark": spark,
    }
    peers[kind](rows(int(number)), Path(folder))


def answer(insert: Callable[[], object]) -> None:
    """Insert the rows at each command."""
    serve(lambda _command: insert() and None)


def cluster(data: pa.Table, folder: Path) -> None:
    """One scheduler, two executors, the state in a folder."""
    from ballista_py import LocalCluster

    with LocalCluster(schedulers=1, executors=2, state_location=(folder / "state").as_uri()) as local:
        local.create_table("events", schema=data.schema, partition_by=["bucket(4, id)"])
        with local.client() as client:
            answer(lambda: client.ingest("events", data))


def duckdb_insert(data: pa.Table, folder: Path) -> None:
    """DuckDB's own insert into one table of a database file, checkpointed."""
    import duckdb

    with duckdb.connect(str(folder / "events.db"), config={"threads": 2}) as connection:
        connection.register("data", data)
        connection.execute("create table events as select * from data limit 0")

        def insert() -> None:
            connection.execute("insert into events select * from data")
            connection.execute("checkpoint")

        answer(insert)


def parquet(data: pa.Table, folder: Path) -> None:
    """One file, on the disk when the call returns; nobody is told of it."""
    numbers = count()

    def insert() -> None:
        path = folder / f"{next(numbers)}.parquet"
        pq.write_table(data, path, compression="zstd")
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    answer(insert)


def delta(data: pa.Table, folder: Path) -> None:
    """An append to a Delta table."""
    from deltalake import write_deltalake

    answer(lambda: write_deltalake(str(folder / "delta"), data, mode="append"))


def spark(data: pa.Table, folder: Path) -> None:
    """`df.write.parquet` on Spark local[2], the rows in its memory."""
    from ballista_py.spark.session import embedded_session, stop_session

    session = embedded_session()
    source = folder / "source.parquet"
    pq.write_table(data, source)
    frame = session.read.parquet(str(source)).repartition(2).cache()
    frame.count()
    numbers = count()
    try:
        answer(lambda: frame.write.parquet(str(folder / f"out{next(numbers)}")))
    finally:
        stop_session(session)


if __name__ == "__main__":
    main()
