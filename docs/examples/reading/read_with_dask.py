"""A table as a Dask dataframe: each partition of a read job is one of the dataframe's, fetched where it is worked on.

python examples/read_with_dask.py ballista://scheduler:50051 orders
"""

from __future__ import annotations

import sys
from typing import Any

import dask.dataframe as dd

from ballista_py import ReadJob, ReadPartition, read_job


def fetched(partition: ReadPartition) -> Any:
    """The rows of a partition, in the process of the Dask worker that asks for them."""
    return partition.to_table().to_pandas()


def as_dask(job: ReadJob) -> dd.DataFrame:
    """All rows of a job. It has to be renewed, and not closed, as long as anybody computes with them."""
    return dd.from_map(fetched, job.partitions, meta=job.schema.empty_table().to_pandas())


def main(url: str, table: str) -> None:
    """Print how many rows there are, and the sum of each column of numbers."""
    with read_job(url, table=table) as job:
        frame = as_dask(job)
        print(len(frame))
        sums = frame.select_dtypes("number").sum().compute(scheduler="processes")
        print(sums.to_dict())


if __name__ == "__main__":
    main(*sys.argv[1:])
