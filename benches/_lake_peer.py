"""One peer of benches/lake.py over the same lake: `fill`, `cluster`, `duckdb`, `spark`, `planned` or `pyiceberg`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from _peers import serve
from _tpch_peer import timed
from ballista_py.node.demo.tpch_data import TABLES

ROW_GROUP = 122_880  # as DuckDB writes them
FILES = 8  # of each large table
LARGE_ROWS = 200_000


def main() -> None:
    """Prepare the peer named on the command line and serve its queries."""
    kind, *rest = sys.argv[1:]
    peers: dict[str, Callable[..., None]] = {
        "fill": fill, "cluster": cluster, "duckdb": duckdb_alone, "spark": spark_alone, "planned": planned,
        "pyiceberg": pyiceberg_alone,
    }  # fmt: skip
    peers[kind](*rest)


def fill(data: str, lake: str) -> None:
    """Write each table as a folder of Parquet files and as an Iceberg table, unless they are there."""
    done = Path(lake) / "done"
    if not done.exists():
        for table in TABLES:
            rows = pq.read_table(Path(data) / f"{table}.parquet")
            _as_parquet(rows, Path(lake) / "parquet" / table)
            _as_iceberg(rows, Path(lake) / "iceberg", table)
        done.touch()
    serve(lambda command: {})


def _pieces(rows: pa.Table) -> list[pa.Table]:
    files = FILES if rows.num_rows >= LARGE_ROWS else 1
    each = -(-rows.num_rows // files)
    return [rows.slice(start, each) for start in range(0, rows.num_rows, each)]


def _as_parquet(rows: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, piece in enumerate(_pieces(rows)):
        pq.write_table(piece, folder / f"p{number}.parquet", compression="zstd", row_group_size=ROW_GROUP)


def catalog_of(folder: Path) -> Any:
    """The catalog of the Iceberg tables in a folder."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True, exist_ok=True)
    return SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())


def _as_iceberg(rows: pa.Table, folder: Path, name: str) -> None:
    catalog = catalog_of(folder)
    catalog.create_namespace_if_not_exists("tpch")
    properties = {"write.parquet.row-group-limit": str(ROW_GROUP)}
    table = catalog.create_table(f"tpch.{name}", schema=rows.schema, properties=properties)
    for piece in _pieces(rows):
        table.append(piece)


def iceberg_files(folder: Path, name: str) -> list[str]:
    """The data files of an Iceberg table."""
    found = catalog_of(folder).load_table(f"tpch.{name}").scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in found]


def scan_of(lake: Path, kind: str, table: str) -> dict[str, Any]:
    """What a scanned table of the bench is declared by."""
    if kind == "parquet":
        return {"format": "parquet", "path": str(lake / "parquet" / table)}
    found = catalog_of(lake / "iceberg").load_table(f"tpch.{table}")
    return {"format": "iceberg", "path": found.metadata_location.removeprefix("file://")}


def cluster(lake: str, kind: str, executors: str, memory_limit: str, quarter: str = "") -> None:
    """A cluster over the lake, with one table a folder; with `quarter` its last executor runs a quarter of the time."""
    from ballista_py import LocalCluster

    options = {"lake-locations": lake, **({"memory-limit": memory_limit} if memory_limit else {})}
    with (
        LocalCluster(schedulers=1, executors=int(executors), node_options=options) as local,
        local.client() as client,
    ):
        for table in TABLES:
            client.create_table(table, scan=scan_of(Path(lake), kind, table))
        if quarter:
            _slow(local.pid(f"executor-{executors}"))
        serve(lambda command: _with_stats(client, command["sql"]))


def _with_stats(client: Any, sql: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}

    def run() -> pa.Table:
        kept["result"] = client.query(sql)
        return kept["result"].table

    answer = timed(run)
    return {**answer, "shipped": kept["result"].stats.get("shipped_bytes", 0) if "result" in kept else 0}


def _slow(pid: int) -> None:
    """Let a process and its children run for 25 of each 100 ms."""
    import os
    import signal
    import threading

    import psutil

    def stutter() -> None:
        root = psutil.Process(pid)
        while root.is_running():
            members = [root, *root.children(recursive=True)]
            for number, seconds in ((signal.SIGSTOP, 0.075), (signal.SIGCONT, 0.025)):
                for one in members:
                    try:
                        os.kill(one.pid, number)
                    except ProcessLookupError:
                        continue
                time.sleep(seconds)

    threading.Thread(target=stutter, daemon=True).start()


def duckdb_alone(lake: str, kind: str, memory_limit: str) -> None:
    """DuckDB with two threads over views of the same files."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2, **({"memory_limit": memory_limit} if memory_limit else {})})
    for table in TABLES:
        files = (
            [str(file) for file in sorted((Path(lake) / "parquet" / table).iterdir())]
            if kind == "parquet"
            else iceberg_files(Path(lake) / "iceberg", table)
        )
        connection.execute(f"create view {table} as select * from read_parquet({files})")
    serve(lambda command: timed(lambda: connection.sql(command["sql"]).to_arrow_table()))


def spark_alone(lake: str, kind: str) -> None:
    """Spark with two threads over temporary views of the same files."""
    from ballista_py.spark.session import embedded_session

    spark = embedded_session(master="local[2]")
    for table in TABLES:
        folder = Path(lake) / "parquet" / table
        files = [str(folder)] if kind == "parquet" else iceberg_files(Path(lake) / "iceberg", table)
        spark.read.parquet(*files).createOrReplaceTempView(table)
    serve(lambda command: timed(lambda: spark.sql(command["sql"]).toArrow()))


def planned(metadata: str) -> None:
    """Plans the files of an Iceberg table as a scheduler does."""
    from ballista_py.storage.lake.opening import open_table

    table = open_table({"format": "iceberg", "path": metadata})

    def plan(_command: dict[str, Any]) -> dict[str, Any]:
        started, used = time.perf_counter(), time.process_time()
        snapshot = table.snapshot()
        files = snapshot.files((), tuple(snapshot.schema.names))
        return {
            "seconds": time.perf_counter() - started, "cpu": time.process_time() - used, "files": len(files),
        }  # fmt: skip

    serve(plan)


def pyiceberg_alone(metadata: str) -> None:
    """Plans them as pyiceberg does."""
    from pyiceberg.table import StaticTable

    def plan(_command: dict[str, Any]) -> dict[str, Any]:
        started, used = time.perf_counter(), time.process_time()
        files = list(StaticTable.from_metadata(f"file://{metadata}").scan().plan_files())
        return {
            "seconds": time.perf_counter() - started, "cpu": time.process_time() - used, "files": len(files),
        }  # fmt: skip

    serve(plan)


if __name__ == "__main__":
    main()
