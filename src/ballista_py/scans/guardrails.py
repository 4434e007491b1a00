"""Where a scan runs, and which files executors can read at all; decided when the statement is planned, and pure.

`explain` shows what was decided, in the words of `reason`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from ballista_py.errors import Unsupported
from ballista_py.one_line import one_line
from ballista_py.scans.task import FileSlice, ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker, usable

LEAST_TASKS = 2
LEAST_BYTES = 4 << 20  # below which the way to an executor and back costs more than reading
FORMATS = ("parquet",)
SHARED_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
_SHOWN_CHARS = 256


@frozen
class AtScheduler:
    """The scheduler reads the files itself, in one engine."""

    reason: str


@frozen
class OnExecutors:
    """The tasks are given to these executors, by id."""

    workers: tuple[str, ...]
    reason: str


def where_to_scan(
    tasks: Sequence[ScanTask],
    workers: Iterable[ScanWorker],
    *,
    least_tasks: int = LEAST_TASKS,
    least_bytes: int = LEAST_BYTES,
) -> AtScheduler | OnExecutors:
    """Where the tasks of a scan run: at the executors, unless there are none, or what is read is not worth the way.

    >>> where_to_scan([], [])
    AtScheduler(reason='no executor runs')
    """
    known = tuple(workers)
    chosen = tuple(worker.id for worker in usable(known))
    if not known:
        return AtScheduler("no executor runs")
    if not chosen:
        return AtScheduler(f"at each of the {len(known)} executors a task has failed, and none was heard of since")
    size = sum(task.cost for task in tasks)
    if len(tasks) < least_tasks:
        return AtScheduler(f"{len(tasks)} of the tasks there are: fewer than {least_tasks} do not pay")
    if size < least_bytes:
        return AtScheduler(f"{size:,} bytes are to be read: less than {least_bytes:,} do not pay")
    return OnExecutors(chosen, f"{len(tasks)} tasks of {size:,} bytes over {len(chosen)} executors")


def require_supported(
    table: str, files: Iterable[FileSlice], *, is_shared: bool = False, formats: Sequence[str] = FORMATS
) -> None:
    """Raise `Unsupported`, naming a file and the way out, unless every executor can read all files and their deletes.

    Files without a scheme, and those of `file://`, are on a disk: only whoever declares the table knows whether every
    executor has that folder at the same place (`is_shared`).

    >>> require_supported("trips", [FileSlice(path="s3://b/trips/a.orc", size=1, format="orc")])
    Traceback (most recent call last):
    ballista_py.errors.Unsupported: table 'trips' cannot be scanned: 's3://b/trips/a.orc' is of the format 'orc', \
and executors read parquet; write the table as Parquet, or take it in as a source
    """
    for file in files:
        if file.format not in formats:
            raise _refused(
                table,
                file.path,
                f"is of the format '{file.format}', and executors read {', '.join(formats)}; write the table "
                "as Parquet, or take it in as a source",
            )
        for path in filter(None, (file.path, *(deletes.path for deletes in file.deletes))):
            _require_reached(table, path, is_shared)


def _require_reached(table: str, path: str, is_shared: bool) -> None:
    scheme, split, _ = path.partition("://")
    if split and scheme.lower() in SHARED_SCHEMES:
        return
    if split and scheme.lower() != "file":
        schemes = ", ".join(f"{known}://" for known in SHARED_SCHEMES)
        raise _refused(table, path, f"is where executors read nothing; put the files where they do: {schemes}")
    if not is_shared:
        raise _refused(
            table,
            path,
            "is on a disk of one machine; put the files on an object store, or declare the table with shared: true if "
            "every node has that folder at the same place",
        )


def _refused(table: str, path: str, why: str) -> Unsupported:
    return Unsupported(f"table '{table}' cannot be scanned: '{one_line(path, _SHOWN_CHARS)}' {why}", table=table)
