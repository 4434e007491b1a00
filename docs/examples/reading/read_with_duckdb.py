"""A table in DuckDB and pyarrow: a reader of record batches for each partition, many at once.

python examples/read_with_duckdb.py ballista://scheduler:50051 orders
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from ballista_py import ReadJob, ReadPartition, read_job

AT_ONCE = 4


def loaded(job: ReadJob, table: str, engine: duckdb.DuckDBPyConnection) -> int:
    """Make a table of DuckDB of all rows of a job, `AT_ONCE` partitions at a time; how many rows it has."""
    engine.register("none", job.schema.empty_table())
    engine.execute(f'create table "{table}" as from none')

    def load(partition: ReadPartition) -> int:
        with engine.cursor() as own:  # a connection of this thread
            own.register("rows_of_partition", partition.to_reader())
            (count,) = own.execute(f'insert into "{table}" from rows_of_partition').fetchone()
            return int(count)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return sum(threads.map(load, job.partitions))


def written(job: ReadJob, folder: str) -> None:
    """Write all rows of a job to Parquet files with pyarrow, in no more memory than a few batches take."""

    def batches() -> Iterator[pa.RecordBatch]:
        for partition in job.partitions:
            yield from partition.to_reader()

    rows = pa.RecordBatchReader.from_batches(job.schema, batches())
    ds.write_dataset(rows, folder, format="parquet")


def main(url: str, table: str, folder: str) -> None:
    """Load a table and print how many rows it has; write it to a folder."""
    with read_job(url, table=table) as job, duckdb.connect() as engine:
        print(loaded(job, table, engine))
        print(engine.sql(f'from "{table}" limit 1').fetchall())
        written(job, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
