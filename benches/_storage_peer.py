"""One peer of the scans of benches/storage.py, over the same folder of Parquet files."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from _peers import serve


def main() -> None:
    """Prepare the peer named on the command line and serve its queries."""
    kind, data, state, executors = sys.argv[1:]
    peers = {
        "load": load,
        "vortex-files": vortex_files,
        "cluster": cluster,
        "cluster-polars": cluster,
        "duckdb": duckdb_alone,
        "vortex": vortex_alone,
        "spark": spark_alone,
    }
    peers[kind](kind, Path(data), state, int(executors))


def load(_kind: str, data: Path, state: str, executors: int) -> None:
    """Partition the table once for both clusters, so that the JVM of the pipeline is not counted with them."""
    from ballista_py import LocalCluster

    if not Path(state, "cluster.json").exists():
        with LocalCluster(1, executors, Path(state).as_uri()) as local:
            local.create_table("lines", source=f"{data}/*.parquet", partition_by=["bucket(16, id)"])
        shutil.copytree(state, f"{state}-polars")
    serve(lambda command: {})


def vortex_files(_kind: str, data: Path, _state: str, _executors: int) -> None:
    """The same rows as Vortex files."""
    import vortex

    for path in sorted(data.glob("*.parquet")):
        if not path.with_suffix(".vortex").exists():
            vortex.io.write(pq.read_table(path), str(path.with_suffix(".vortex")))
    serve(lambda command: {})


def cluster(kind: str, _data: Path, state: str, executors: int) -> None:
    """A cluster over the state that `load` left."""
    from ballista_py import LocalCluster

    polars = kind == "cluster-polars"
    where = Path(state + ("-polars" if polars else "")).as_uri()
    with LocalCluster(1, executors, where, engine="polars" if polars else "duckdb") as local:
        local.wait_until_loaded()
        client = local.client()
        serve(lambda command: timed(lambda: client.sql(command["sql"])))


def duckdb_alone(_kind: str, data: Path, _state: str, _executors: int) -> None:
    """DuckDB with two threads over the Parquet files."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    connection.execute(f"create view lines as select * from '{data}/*.parquet'")
    serve(lambda command: timed(lambda: connection.sql(command["sql"]).to_arrow_table()))


def vortex_alone(_kind: str, data: Path, _state: str, _executors: int) -> None:
    """DuckDB with two threads over the Vortex files, read anew for every query."""
    import duckdb
    import vortex

    connection = duckdb.connect(config={"threads": 2})
    paths = [str(path) for path in sorted(data.glob("*.vortex"))]
    schema = pa.schema([("id", pa.int64()), ("line", pa.string_view())])

    def run(sql: str) -> pa.Table:
        batches = (
            batch.select(schema.names).cast(schema)
            for path in paths
            for batch in vortex.open(path).to_arrow(schema.names)
        )
        connection.register("lines", pa.RecordBatchReader.from_batches(schema, batches))
        return connection.sql(sql).to_arrow_table()

    serve(lambda command: timed(lambda: run(command["sql"])))


def spark_alone(_kind: str, data: Path, _state: str, _executors: int) -> None:
    """Spark with two threads over the Parquet files."""
    from ballista_py.spark.session import embedded_session

    spark = embedded_session(master="local[2]")
    spark.read.parquet(str(data / "*.parquet")).createOrReplaceTempView("lines")
    serve(lambda command: timed(lambda: spark.sql(command["sql"]).toArrow()))


def timed(run: Any) -> dict[str, Any]:
    """Run the query; its seconds and its rows."""
    started = time.perf_counter()
    table: pa.Table = run()
    return {"seconds": time.perf_counter() - started, "rows": [list(row.values()) for row in table.to_pylist()]}


if __name__ == "__main__":
    main()
