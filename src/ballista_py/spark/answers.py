"""Answers of Spark on their way to whoever asked: kept on disk, read once and in order, and gone as they are read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar
from weakref import finalize

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import ConfigError, SqlError, TransportError, TryLater
from ballista_py.runtime import Runtime, SystemRuntime

MAX_ANSWER_BYTES = 32 << 30

T = TypeVar("T")


@frozen(order=True)
class Receipt:
    """What a task says of its part of an answer: the file has that many rows; it does not exist for none."""

    part: int
    file: str
    rows: int


@define(eq=False)
class Answer:
    """The rows of one statement. Read `batches` once; `close` may come from any thread at any time."""

    schema: pa.Schema
    _rows: Iterator[pa.RecordBatch]
    _drop: Callable[[], None]
    _closed: bool = field(init=False, default=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, under the names and types of `schema`; what was read is no longer kept.

        Raises `SqlError` for values that are not of these types, `TransportError` once it is closed and `TryLater` when
        what was kept is not there as it was.
        """
        try:
            for batch in self._rows:
                if self._closed:
                    break
                yield conformed(batch, self.schema)
        except (OSError, pa.ArrowException, TryLater) as error:
            if not self._closed:
                raise TryLater(f"a part of Spark's answer was lost ({_reason(error)}): send it again") from None
        finally:
            self._drop()
        if self._closed:
            raise TransportError("The query was cancelled")

    def close(self) -> None:
        """Give up what was not read. Harmless after the end."""
        self._closed = True
        self._drop()


def answer_of(table: pa.Table, schema: pa.Schema) -> Answer:
    """The answer whose rows are these, in memory."""
    held = deque(table.to_batches())

    def rows() -> Iterator[pa.RecordBatch]:
        with suppress(IndexError):  # also when it is cleared meanwhile
            while True:
                yield held.popleft()

    return Answer(schema, rows(), held.clear)


def conformed(rows: pa.RecordBatch, output: pa.Schema) -> pa.RecordBatch:
    """The rows under the names and types that a single node would give. Raises `SqlError` where they do not fit."""
    try:
        columns = [column.cast(kind) for column, kind in zip(rows.columns, output.types, strict=True)]
    except pa.ArrowException as error:
        raise SqlError(f"a value of Spark's answer is not of the type that a single node gives: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=output)


class AnswerFolder:
    """The disk space of answers: a folder each, at most about `max_bytes` together. Safe to share between threads.

    What an earlier process left in `path` is removed. Without a `path` a temporary folder is made for the first answer.
    Raises `ConfigError` for a folder that cannot be used.
    """

    def __init__(
        self, path: str | None = None, *, max_bytes: int = MAX_ANSWER_BYTES, runtime: Runtime | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self._path = path
        self._runtime = runtime or SystemRuntime()
        self._lock = self._runtime.lock()
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            _made(lambda: os.makedirs(path, exist_ok=True))

    def new(self) -> AnswerFiles:
        """The place of one answer. Raises `ConfigError` where none can be made."""
        with self._lock:
            if self._path is None:
                self._path = _made(lambda: tempfile.mkdtemp(prefix="ballista-answers-"))
                finalize(self, shutil.rmtree, self._path, ignore_errors=True)
            home = self._path
        files = AnswerFiles(home, os.path.join(home, self._runtime.new_id()))
        _made(lambda: os.makedirs(files.folder))
        return files

    def close(self) -> None:
        """Remove every answer."""
        with self._lock:
            if self._path is not None:
                shutil.rmtree(self._path, ignore_errors=True)


@frozen
class AnswerFiles:
    """The folder of one answer, inside `home`."""

    home: str
    folder: str

    def answer(self, receipts: Sequence[Receipt], schema: pa.Schema) -> Answer:
        """What the files of these receipts hold, in the order of the parts. Files without one are removed."""
        kept = deque(receipt for receipt in sorted(receipts) if receipt.rows)
        named = {receipt.file for receipt in kept}
        for file in os.listdir(self.folder):
            if file not in named:  # of an attempt that does not count
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.folder, file))
        return Answer(schema, self._rows(kept), self.drop)

    def drop(self) -> None:
        """Remove everything, though tasks may be writing still: they find no place any more. Harmless twice."""
        gone = f"{self.folder}-gone"
        with suppress(OSError):
            os.rename(self.folder, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _rows(self, kept: deque[Receipt]) -> Iterator[pa.RecordBatch]:
        while kept:
            receipt = kept.popleft()
            path, rows = os.path.join(self.folder, receipt.file), 0
            with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as stream:
                os.unlink(
                    path
                )  # what is open can be read on, and nothing is left whatever happens to this process
                for batch in stream:
                    rows += batch.num_rows
                    yield batch
            if rows != receipt.rows:
                raise TryLater(f"{rows} of {receipt.rows} rows")


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except OSError as error:
        raise ConfigError(f"the folder for answers of Spark cannot be used: {error.strerror}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # its own words name the file
    return (str(error) or type(error).__name__).splitlines()[0]
