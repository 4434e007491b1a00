"""What an answer of Spark costs the process that passes it on: milliseconds for a small one, memory for a large one.

    python benches/spark_answers.py --rows 130_000_000     # about 2 GB: two columns of eight bytes

The memory is the peak of this process with its Spark and Spark's Python, looked at ten times a second; that of Spark
alone is bounded by its heap (2 GB).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from ballista_py.errors import BallistaError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.answers import AnswerFolder
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.session import embedded_session, stop_session
from ballista_py.spark.statements import SparkStatements, TablePart
from ballista_py.state.stores.store import open_store

SMALL = ("select 1 as id", "select count(*) as id from numbers", "select id from numbers limit 10")
COLUMNS = pa.schema([("id", pa.int64()), ("value", pa.int64())])
SOURCE_ROWS = 1_000_000


class Peak:
    """The most memory that this process and its children had at once since `start`."""

    def __init__(self) -> None:
        self.whole = self.own = 0
        self._process = psutil.Process()
        threading.Thread(target=self._look, daemon=True).start()

    def start(self) -> None:
        self.whole = self.own = 0

    def _look(self) -> None:
        while True:
            own, total = self._process.memory_info().rss, 0
            for child in self._process.children(recursive=True):
                try:
                    total += child.memory_info().rss
                except psutil.Error:  # ended meanwhile
                    continue
            self.own, self.whole = max(self.own, own), max(self.whole, own + total)
            time.sleep(0.1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--runs", type=int, default=20)
    given = options.parse_args()
    peak, spark = Peak(), embedded_session()
    with tempfile.TemporaryDirectory(prefix="ballista-bench-") as folder:
        store, source = open_store(f"file://{folder}/state"), f"{folder}/numbers.parquet"
        pq.write_table(pa.table({"id": range(SOURCE_ROWS)}), source)
        pipeline = SparkPipeline(spark, store)
        schema = pipeline.describe("numbers", source)
        spec = PartitionSpec.parse(["bucket(8, id)"], schema)
        table = TableSpec(name="numbers", schema=schema, spec=spec, source={"path": source})
        pmap = PartitionMap.build("numbers", spec, list(pipeline.materialize(table).partitions))
        part = TablePart(table=table, map=pmap, partitions=range(len(pmap)))
        statements = SparkStatements(spark, store, answers=AnswerFolder(str(Path(folder) / "answers")))
        one = pa.schema([("id", pa.int64())])
        for sql in SMALL:
            took_ms = []
            for _ in range(given.runs + 3):
                began = time.perf_counter()
                list(statements.run(sql, [part], one).batches())
                took_ms.append((time.perf_counter() - began) * 1e3)
            print(f"{sql:40} p50 {statistics.median(took_ms[3:]):7.0f} ms, least {min(took_ms):.0f} ms")
        times = max(1, given.rows // SOURCE_ROWS)
        large = f"select a.id, a.id * b.id as value from numbers a, (select id from numbers where id < {times}) b"
        peak.start()
        began, rows, size = time.perf_counter(), 0, 0
        try:
            for batch in statements.run(large, [part], COLUMNS).batches():
                rows += batch.num_rows
                size += batch.nbytes
            said = f"{rows:,} rows, {size / 1e6:,.0f} MB"
        except BallistaError as error:
            said = str(error)
        took_s = time.perf_counter() - began
        print(f"{said}: {took_s:.1f} s, peak {peak.whole / 1e6:,.0f} MB, {peak.own / 1e6:,.0f} MB without Spark")
    stop_session(spark)


if __name__ == "__main__":
    main()
