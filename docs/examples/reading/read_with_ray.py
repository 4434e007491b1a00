"""A table as a Ray dataset: each partition of a read job is a read task, which runs where Ray has room for it.

python examples/read_with_ray.py ballista://scheduler:50051 orders
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import ray
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from ballista_py import ReadJob, ReadPartition, read_job


class BallistaDatasource(Datasource):
    """All rows of a job. It has to be renewed, and not closed, as long as anybody reads them."""

    def __init__(self, job: ReadJob) -> None:
        super().__init__()
        self._partitions = job.partitions

    def estimate_inmemory_data_size(self) -> int | None:
        return sum(partition.data_bytes for partition in self._partitions)

    def get_read_tasks(self, parallelism: int, *_limits: Any, **_more: Any) -> list[ReadTask]:
        return [task_of(partition) for partition in self._partitions]


def task_of(partition: ReadPartition) -> ReadTask:
    """What reads a partition; how many rows a filter leaves of it nobody knows before."""
    told = BlockMetadata(num_rows=None, size_bytes=partition.data_bytes, input_files=None, exec_stats=None)
    return ReadTask(lambda: blocks(partition), told, schema=partition.schema)


def blocks(partition: ReadPartition) -> Iterator[pa.Table]:
    """The rows of a partition, as they come."""
    for batch in partition.batches():
        yield pa.Table.from_batches([batch])


def main(url: str, table: str) -> None:
    """Print how many rows there are, and the first one."""
    ray.init(include_dashboard=False, log_to_driver=False)
    with read_job(url, table=table) as job:
        rows = ray.data.read_datasource(BallistaDatasource(job))
        print(rows.count())
        print(rows.take(1))


if __name__ == "__main__":
    main(*sys.argv[1:])
