"""Where a scan runs, and what is refused before anything is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import Unsupported
from ballista_py.scans.guardrails import AtScheduler, OnExecutors, require_supported, where_to_scan
from ballista_py.scans.task import DeletionVector, FileSlice, PositionDeletes, ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker

MB = 1 << 20


def tasks_of(*sizes):
    return [
        ScanTask(
            fragment_id="f",
            number=number,
            files=(FileSlice(path=f"s3://b/{number}", size=size),),
            columns=(),
            schema=pa.schema([]),
        )
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "workers", "where"),
    [
        ([MB] * 8, [], AtScheduler("no executor runs")),
        (
            [MB] * 8,
            [ScanWorker(id="a", health="removed")],
            AtScheduler("at each of the 1 executors a task has failed, and none was heard of since"),
        ),
        ([64 * MB], [ScanWorker(id="a")], AtScheduler("1 of the tasks there are: fewer than 2 do not pay")),
        (
            [MB, MB],
            [ScanWorker(id="a")],
            AtScheduler("2,097,152 bytes are to be read: less than 4,194,304 do not pay"),
        ),
        (
            [2 * MB, 2 * MB],
            [ScanWorker(id="b"), ScanWorker(id="a"), ScanWorker(id="c", health="degraded")],
            OnExecutors(("a", "b"), "2 tasks of 4,194,304 bytes over 2 executors"),
        ),
        (
            [2 * MB, 2 * MB],
            [ScanWorker(id="c", health="degraded"), ScanWorker(id="a", health="removed")],
            OnExecutors(("c",), "2 tasks of 4,194,304 bytes over 1 executors"),
        ),
    ],
)
def test_a_scan_runs_at_executors_unless_there_are_none_or_it_would_not_pay(sizes, workers, where):
    assert where_to_scan(tasks_of(*sizes), workers) == where


@pytest.mark.parametrize(
    ("file", "named"),
    [
        (FileSlice(path="s3://b/x.orc", size=1, format="orc"), "'s3://b/x.orc' is of the format 'orc'"),
        (FileSlice(path="/data/x.parquet", size=1), "'/data/x.parquet' is on a disk.*shared: true"),
        (FileSlice(path="file:///data/x.parquet", size=1), "'file:///data/x.parquet' is on a disk"),
        (FileSlice(path="memory://x", size=1), "'memory://x' is where executors read nothing.*s3://"),
        (FileSlice(path="ftp://x\x1b[31m", size=1), "'ftp://x' is where"),
        (
            FileSlice(path="s3://b/x", size=1, deletes=(PositionDeletes(path="/d.parquet", size=1),)),
            "'/d.parquet' is on",
        ),
        (
            FileSlice(path="s3://b/x", size=1, deletes=(DeletionVector(kind="delta", path="/d.bin"),)),
            "'/d.bin' is on a disk",
        ),
    ],
)
def test_what_executors_cannot_read_is_refused_by_its_name_with_the_way_out(file, named):
    good = FileSlice(path="s3://b/good", size=1)
    with pytest.raises(Unsupported, match=f"table 'trips' cannot be scanned: {named}"):
        require_supported("trips", [good, file])


def test_what_every_executor_reaches_is_taken():
    require_supported(
        "trips",
        [
            FileSlice(path="S3A://b/x", size=1, deletes=(DeletionVector(kind="delta", inline=b"x"),)),
            FileSlice(path="abfss://c@a.dfs.core.windows.net/x", size=1),
        ],
    )
    local = [FileSlice(path="/shared/x.parquet", size=1), FileSlice(path="file:///shared/y.parquet", size=1)]
    require_supported("trips", local, is_shared=True)
    with pytest.raises(Unsupported, match="read nothing"):
        require_supported("trips", [FileSlice(path="ftp://x", size=1)], is_shared=True)
