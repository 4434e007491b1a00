"""One peer of benches/tpch.py over the same Parquet files: `load`, `cluster`, `duckdb`, `loaded`, `polars`, `spark`
or `sail`."""

from __future__ import annotations

import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from _peers import serve
from ballista_py.node.demo.tpch_data import TABLES, create_tpch_tables


def main() -> None:
    """Prepare the peer named on the command line and serve its queries."""
    kind, data, *rest = sys.argv[1:]
    peers = {
        "load": load,
        "cluster": cluster,
        "duckdb": duckdb_alone,
        "loaded": duckdb_loaded,
        "polars": polars_alone,
        "spark": spark_alone,
        "sail": sail_alone,
    }
    peers[kind](Path(data), *rest)


def load(data: Path, state: str, executors: str) -> None:
    """Partition the tables once, so that the JVM of the pipeline is not counted with the cluster."""
    from ballista_py import LocalCluster

    if not (Path(state) / "cluster.json").exists():
        with LocalCluster(schedulers=1, executors=int(executors), state_location=Path(state).as_uri()) as local:
            create_tpch_tables(local, data)
    serve(lambda command: {})


def cluster(_data: Path, state: str, executors: str, memory_limit: str) -> None:
    """The cluster over the state that `load` left."""
    from ballista_py import LocalCluster

    location = Path(state).as_uri()
    limits = {"memory-limit": memory_limit} if memory_limit else None
    with LocalCluster(
        schedulers=1, executors=int(executors), state_location=location, node_options=limits
    ) as local:
        local.wait_until_loaded()
        client = local.client()
        serve(lambda command: _with_stats(client, command["sql"]))


def _with_stats(client: Any, sql: str) -> dict[str, Any]:
    """As `timed`, with the bytes that legs shipped."""
    kept: dict[str, Any] = {}

    def run() -> pa.Table:
        kept["result"] = client.query(sql)
        return kept["result"].table

    answer = timed(run)
    return {**answer, "shipped": kept["result"].stats["shipped_bytes"]}


def duckdb_alone(data: Path) -> None:
    """DuckDB with two threads over views of the files."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    for table in TABLES:
        connection.execute(f"create view {table} as select * from '{data / table}.parquet'")
    serve(lambda command: timed(lambda: connection.sql(command["sql"]).to_arrow_table()))


def duckdb_loaded(data: Path, folder: str) -> None:
    """DuckDB with two threads over tables of its own in a database file."""
    import duckdb

    with tempfile.TemporaryDirectory(dir=folder) as place:
        connection = duckdb.connect(f"{place}/loaded.duckdb", config={"threads": 2})
        for table in TABLES:
            connection.execute(f"create table {table} as select * from '{data / table}.parquet'")
        serve(lambda command: timed(lambda: connection.sql(command["sql"]).to_arrow_table()))


def polars_alone(data: Path) -> None:
    """Polars with two threads over lazy scans of the files (`POLARS_MAX_THREADS` is set by the bench)."""
    import polars as pl

    context = pl.SQLContext({table: pl.scan_parquet(data / f"{table}.parquet") for table in TABLES})
    serve(lambda command: timed(lambda: context.execute(command["sql"]).collect().to_arrow()))


def sail_alone(data: Path) -> None:
    """Sail, a Spark Connect server without a JVM, in this process."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    try:
        for table in TABLES:
            spark.read.parquet(str(data / f"{table}.parquet")).createOrReplaceTempView(table)
    except Exception as error:  # pysail 0.7 does not take the sessions of the PySpark 4.3 client
        reason = f"Sail does not take part: {error}"[:300]
        serve(lambda command: {"seconds": None, "rows": None, "failed": reason})
        return
    serve(lambda command: timed(lambda: spark.sql(command["sql"]).toArrow()))


def spark_alone(data: Path) -> None:
    """Spark with two threads over temporary views of the files."""
    from ballista_py.spark.session import embedded_session

    spark = embedded_session(master="local[2]")
    for table in TABLES:
        spark.read.parquet(str(data / f"{table}.parquet")).createOrReplaceTempView(table)
    serve(lambda command: timed(lambda: spark.sql(command["sql"]).toArrow()))


def timed(run: Any) -> dict[str, Any]:
    """Run the query; its seconds and its rows, as texts and numbers only, sorted."""
    started = time.perf_counter()
    try:
        table: pa.Table = run()
    except Exception as error:
        return {"seconds": None, "rows": None, "failed": f"{type(error).__name__}: {error}"[:300]}
    seconds = time.perf_counter() - started
    rows = [[_plain(value) for value in row.values()] for row in table.to_pylist()]
    return {"seconds": seconds, "rows": sorted(rows, key=str)}


def _plain(value: Any) -> str | float | None:
    return float(value) if isinstance(value, int | float | Decimal) else None if value is None else str(value)


if __name__ == "__main__":
    main()
