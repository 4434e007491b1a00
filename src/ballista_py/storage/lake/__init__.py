"""Snapshots of tables in a lake, and the reading of their files: a stand-in for plain Parquet folders."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.errors import SourceError
from ballista_py.scans.task import FileSlice, ScanCondition, ScanTask


@frozen
class LakeSnapshot:
    id: str
    schema: pa.Schema
    rows: int | None
    bytes: int | None
    found: tuple[FileSlice, ...]

    def files(self, filter: Sequence[ScanCondition] = (), columns: Sequence[str] | None = None) -> tuple[FileSlice, ...]:
        return self.found


@frozen
class LakeTable:
    path: str

    def snapshot(self, version: str | None = None, timestamp: str | None = None) -> LakeSnapshot:
        paths = sorted(glob.glob(os.path.join(self.path, "**", "*.parquet"), recursive=True))
        if not paths:
            raise SourceError(f"there are no Parquet files below '{self.path}'")
        found = []
        rows = 0
        for path in paths:
            meta = pq.read_metadata(path)
            rows += meta.num_rows
            found.append(FileSlice(path=path, size=os.path.getsize(path), rows=meta.num_rows))
        said = repr([(one.path, one.size, os.stat(one.path).st_mtime_ns) for one in found])
        schema = pq.read_schema(paths[0]).remove_metadata()
        return LakeSnapshot(sha256(said.encode()).hexdigest()[:16], schema, rows, sum(f.size for f in found), tuple(found))


def open_table(scan: Mapping[str, Any], credentials: Any = None) -> LakeTable:
    return LakeTable(scan["path"])


def task_rows(
    task: ScanTask, store: Any = None, credentials: Any = None, cancelled: Callable[[], bool] = lambda: False
) -> Iterator[pa.RecordBatch]:
    for one in task.files:
        with pq.ParquetFile(one.path) as file:
            for batch in file.iter_batches(columns=list(task.columns), row_groups=one.row_groups):
                yield pa.RecordBatch.from_arrays([batch.column(n) for n in task.columns], schema=task.schema)
