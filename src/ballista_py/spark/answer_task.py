"""What a task of Spark does with its part of an answer: it writes the rows to a file, as they come.

This runs in Spark's Python, which gets the functions themselves: it needs pyarrow and pyspark, and not this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

RECEIPT = "part int, file string, rows long"
NO_SPACE = "ballista-answer-without-space"
NOT_WRITTEN = "ballista-answer-not-written"
LOOK_BYTES = 16 << 20


def keeper(
    folder: str, max_bytes: int, kept_in: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that writes a task's rows to a file of `folder` and gives one `RECEIPT`.

    A file bears the number of its attempt: of several attempts at one part the one counts whose receipt arrives. The
    folder is not made here, so that nothing comes back of an answer that was given up. Raises `RuntimeError` with
    `NO_SPACE` once all answers in the folders of `kept_in` take more than `max_bytes` (looked at when a file is begun
    and every `LOOK_BYTES` of it) or the disk is full, and with `NOT_WRITTEN` for a file that cannot be written for
    another reason.
    """

    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        part = task.partitionId()
        name = f"{part:06}-{task.taskAttemptId()}.arrow"
        rows = write(batches, os.path.join(folder, name), max_bytes, kept_in)
        yield pa.RecordBatch.from_pydict(
            {"part": pa.array([part], pa.int32()), "file": [name], "rows": pa.array([rows], pa.int64())}
        )

    return keep


def write(batches: Iterable[pa.RecordBatch], path: str, max_bytes: int, kept_in: str) -> int:
    """Write the rows as an Arrow stream and say how many; there is no file of none. Raises as `keeper` says."""
    import errno

    rows = 0
    try:
        file: pa.NativeFile | None = None
        writer: pa.RecordBatchStreamWriter | None = None
        try:
            next_look = 0  # at the first rows, too: an answer may have many files and each be small
            for batch in batches:
                if not batch.num_rows:
                    continue
                if file is None or writer is None:
                    file = pa.OSFile(path, "wb")
                    writer = pa.ipc.new_stream(file, batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
                if file.tell() >= next_look:
                    next_look = file.tell() + LOOK_BYTES
                    if bytes_below(kept_in) > max_bytes:
                        raise RuntimeError(f"{NO_SPACE}: more than {max_bytes:,} bytes")
            if writer is not None:
                writer.close()
        finally:
            if file is not None:
                file.close()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        why = os.strerror(error.errno) if error.errno else "it failed"
        raise RuntimeError(f"{NO_SPACE if full else NOT_WRITTEN}: {why}") from None
    return rows


def bytes_below(kept_in: str) -> int:
    """How many bytes the files in the folders of `kept_in` have, whoever removes some meanwhile."""
    total = 0
    for folder in _entries(kept_in):
        for file in _entries(folder.path):
            try:
                total += file.stat().st_size
            except OSError:  # read and removed
                continue
    return total


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:  # given up
        return []
