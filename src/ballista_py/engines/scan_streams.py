"""Tasks of scanned tables as streams that an engine reads: lazily, batch by batch, until they are stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from ballista_py.errors import InvalidData
from ballista_py.scans.task import ScanTask

if TYPE_CHECKING:
    from ballista_py.storage.lake.opening import LakeOpener


class ScanStreams:
    """The rows of each table's tasks, one task after the other, as relations of the tables' names.

    Nothing is opened before the first batch is asked for, and no more of a file is held than its reader holds.
    Raises `InvalidData` for tasks of one table that give other columns than its first.
    """

    def __init__(self, scans: Mapping[str, Sequence[ScanTask]]) -> None:
        self._stopped = False
        for name, tasks in scans.items():
            if not tasks or any(task.schema != tasks[0].schema for task in tasks):
                raise InvalidData(f"the tasks of '{name}' are none, or give different columns")
        self._scans = scans

    def stop(self) -> None:
        """End reading soon. From any thread, more than once."""
        self._stopped = True

    def readers(self) -> dict[str, pa.RecordBatchReader]:
        """One reader for each table, to be read once."""
        return {
            name: pa.RecordBatchReader.from_batches(tasks[0].schema, self._rows(tasks))
            for name, tasks in self._scans.items()
        }

    def _rows(self, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
        from ballista_py.storage.lake.reading import task_rows  # with the libraries of formats

        for task in tasks:
            yield from task_rows(task, _opener(), cancelled=lambda: self._stopped)


@cache
def _opener() -> LakeOpener:
    """The one of this process: it remembers what footers say."""
    from ballista_py.storage.lake.opening import LakeOpener

    return LakeOpener()
