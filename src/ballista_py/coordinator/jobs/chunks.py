"""The result of a job as files: written as its rows come, named by its document at the end, read one by one.

A chunk is an Arrow IPC stream, lz4, of about 16 MB of rows. It is made once under a key that nobody else makes, and
never changed; its digest stands in the document, so that another file in its place is told from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import pyarrow as pa
from attrs import define, field

from ballista_py.coordinator.jobs.limits import CHUNK_BYTES
from ballista_py.errors import (
    DocumentUnreadable,
    JobResultTooLarge,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
)
from ballista_py.runtime import Runtime
from ballista_py.state.documents.jobs import MAX_CHUNKS, JobChunk, JobDocument, chunk_key
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.arrow.door import read_rows
from ballista_py.transport.arrow.frames import answer_portions
from ballista_py.work import pause

MAX_CHUNK_BYTES = 1 << 30  # a row may be as large as a row may be
PUT_TRIES = 8
PUT_WAIT_MS = 250.0
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4")


@define
class ChunkWriter:
    """The chunks of one run of one attempt: those of the job `name` under keys with `files`, a fresh id.

    `max_bytes` is of the whole result, as it lies there.
    """

    store: ConditionalStore
    runtime: Runtime
    name: str
    attempt: int
    files: str
    schema: pa.Schema
    max_bytes: int
    chunk_bytes: int = CHUNK_BYTES
    done: list[JobChunk] = field(init=False, factory=list)
    _waiting: list[pa.RecordBatch] = field(init=False, factory=list)
    _waiting_bytes: int = field(init=False, default=0)

    @property
    def rows(self) -> int:
        """How many rows lie there."""
        return sum(chunk.rows for chunk in self.done)

    @property
    def size_bytes(self) -> int:
        """How many bytes lie there."""
        return sum(chunk.bytes for chunk in self.done)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows, and write what is enough for a chunk.

        Raises `JobResultTooLarge`, and what the store raises after `PUT_TRIES`.
        """
        for portion in answer_portions(batch, self.chunk_bytes):
            if self._waiting and self._waiting_bytes + portion.nbytes > self.chunk_bytes:
                self.flush()
            self._waiting.append(portion)
            self._waiting_bytes += portion.nbytes

    def flush(self) -> None:
        """Write what waits, if there is any. Raises as `add` does."""
        if not self._waiting:
            return
        data = _encoded(self.schema, self._waiting)
        rows = sum(batch.num_rows for batch in self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if len(self.done) >= MAX_CHUNKS or self.size_bytes + len(data) > self.max_bytes:
            raise JobResultTooLarge(
                f"the result has more than {self.max_bytes:,} bytes (max_job_result_bytes) or {MAX_CHUNKS:,} chunks: "
                "ask for less, or write it into a table",
                limit=self.max_bytes,
            )
        self._put(chunk_key(self.name, self.attempt, self.files, len(self.done)), data)
        self.done.append(JobChunk(rows=rows, bytes=len(data), digest=_digest(data)))

    def _put(self, key: str, data: bytes) -> None:
        """Make the file. A file that is there is this very one: a reply to it was lost."""
        for tries in range(1, PUT_TRIES + 1):
            try:
                self.store.create(key, data)
                return
            except ObjectExists:
                return
            except (StoreUnavailable, OutcomeUnknown) as error:
                if tries == PUT_TRIES:
                    raise
                pause(self.runtime, PUT_WAIT_MS * tries, error)


def read_chunk(store: ConditionalStore, job: JobDocument, number: int) -> pa.Table:
    """The rows of a chunk that the document names.

    Raises `DocumentUnreadable` for a file that is not the one that was written, `ObjectMissing` for one that is gone,
    and what the store raises.
    """
    key, told = job.chunk_keys()[number], job.chunks[number]
    try:
        data = store.get(key, MAX_CHUNK_BYTES).data
    except ObjectMissing:
        raise ObjectMissing(f"chunk {number} of job '{job.job_id}' is gone", key=key) from None
    if len(data) != told.bytes or _digest(data) != told.digest:
        raise DocumentUnreadable(
            f"object '{key}' is not the chunk that was written there: submit the job again", key=key
        )
    return read_rows(data, MAX_CHUNK_BYTES, compressed=True)


def batches_of(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of several chunks, batch by batch."""
    for table in tables:
        yield from table.to_batches()


def _encoded(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_WRITE) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
