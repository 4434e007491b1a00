"""The rows of a scan task, from the files that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from ballista_py.scans.task import ScanTask
from ballista_py.storage.lake.opening import CredentialsNow, LakeOpener


def task_rows(
    task: ScanTask,
    opener: LakeOpener,
    credentials: CredentialsNow | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task in exactly its schema, without those that its deletes take away.

    `credentials` is asked before each file is opened (None: those of the task); `cancelled` between batches: then it
    ends with `JobCancelled`. Row groups that the filter excludes are left out, all others are given whole.

    Raises `SnapshotGone` for a file that was changed or removed, `SchemaMismatch` for values that do not fit,
    `DocumentUnreadable` for a file that is spoilt, `Unsupported` for one of a kind that is not read here and
    `StoreUnavailable` where the store does not answer. What was given before an error is right.
    """
    raise NotImplementedError
