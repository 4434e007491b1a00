"""Spark writes tables of a cluster: each task puts its rows at an executor, and the driver has all of them committed.

Tasks that fail, are repeated, or run twice leave rows that nobody names; a driver that dies before the commit leaves
nothing that is seen, after it everything. A stream commits each of its batches under the id of the query and the number
of the batch, so that one which is repeated after a restart changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ballista_py.agents.write_job import (
    WriteAgent,
    WriteJobMode,
    WriteReceipt,
    WriteTask,
    commit_receipts,
    source_of,
    write_job,
)
from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.credentials import Tls

try:
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
except ImportError as error:
    raise MissingExtra.of("pyspark", "spark") from error

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # of the stream that a task is of
_OF_READS = (
    "query", "columns", "filter", "push", "encodings", "changes", "startingfrom", "consistency", "maxpartitions",
    "targetbytes",
)  # fmt: skip


class PutRows(WriterCommitMessage):
    """What became of a task: the receipt of its rows, if the write was not committed already; of a stream its query."""

    def __init__(self, receipt: WriteReceipt | None, query_id: str = "") -> None:
        self.receipt = receipt
        self.query_id = query_id


class BallistaWriter(DataSourceArrowWriter):
    """Writes a dataframe, once under its token."""

    def __init__(self, asked: Mapping[str, str], mode: WriteJobMode, token: str, task: WriteTask) -> None:
        self.asked = asked
        self.mode = mode
        self.token = token
        self.task = task

    @classmethod
    def begun(cls, asked: Mapping[str, str], *, overwrite: bool) -> BallistaWriter:
        """Begin the write. Raises as `write_job`, and `ConfigError` for options that are none of a write."""
        mode = _mode(overwrite)
        job = write_job(
            asked["url"],
            _table(asked),
            mode=mode,
            write_token=asked.get("writetoken"),
            lease=_lease(asked),
            token=asked.get("token"),
            tls=_tls(asked),
        )
        try:
            return cls(asked, mode, job.write_token, job.task())
        finally:
            job.close()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PutRows:
        """Put the rows of one task, on a worker."""
        return PutRows(self.task.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks part of the table."""
        agent = _agent(self.asked)
        try:
            commit_receipts(agent, _table(self.asked), self.mode, self.token, _receipts(messages))
        finally:
            agent.close()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the rows go."""
        agent = _agent(self.asked)
        try:
            agent.abort([self.task.write_id] if self.task.write_id else [])
        finally:
            agent.close()


class BallistaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream. Each task begins a write: a stream may be still for longer than a lease."""

    def __init__(self, asked: Mapping[str, str], *, overwrite: bool) -> None:
        if "writetoken" in asked:
            raise ConfigError("a stream has a token for each of its batches: leave the option 'writetoken' out")
        _table(asked)
        self.asked = asked
        self.mode = _mode(overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PutRows:
        """Put the rows of one task, on a worker."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
        if not query_id or not batch_id:
            raise ConfigError("this Spark does not tell its tasks which stream they are of: use foreachBatch")
        agent = _agent(self.asked)
        try:
            lease_ms = int((_lease(self.asked) or 0) * 1e3)
            job = agent.begin(_table(self.asked), self.mode, _token(query_id, int(batch_id)), lease_ms)
            try:
                return PutRows(job.write(iterator), query_id)
            except BaseException:
                job.abort()
                raise
        finally:
            agent.close()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of the batch part of the table, once."""
        told = {one.query_id for one in messages if isinstance(one, PutRows)}
        if not told:
            return  # a batch without tasks has no rows
        (query_id,) = told
        agent = _agent(self.asked)
        try:
            token = _token(query_id, batchId)
            commit_receipts(agent, _table(self.asked), self.mode, token, _receipts(messages))
        finally:
            agent.close()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Let the rows of the batch go."""
        agent = _agent(self.asked)
        try:
            agent.abort(sorted({write_id for one in _receipts(messages) for write_id in one.write_ids}))
        finally:
            agent.close()


def _receipts(messages: Sequence[WriterCommitMessage | None]) -> list[WriteReceipt]:
    return [one.receipt for one in messages if isinstance(one, PutRows) and one.receipt is not None]


def _token(query_id: str, batch_id: int) -> str:
    return f"spark stream {query_id} {batch_id}"


def _mode(overwrite: bool) -> WriteJobMode:
    return "overwrite" if overwrite else "append"


def _table(asked: Mapping[str, str]) -> str:
    """The table that is written. Raises `ConfigError` without one, and for options that say what is read."""
    wrong = [name for name in _OF_READS if name in asked]
    if wrong:
        raise ConfigError(f"the option '{wrong[0]}' is for reading: a write takes the option 'table'")
    return asked["table"]


def _agent(asked: Mapping[str, str]) -> WriteAgent:
    return WriteAgent(source_of(asked["url"], asked.get("token"), _tls(asked)), SystemRuntime())


def _tls(asked: Mapping[str, str]) -> Tls | None:
    return Tls(ca_file=asked["tlsca"]) if "tlsca" in asked else None


def _lease(asked: Mapping[str, str]) -> float | None:
    text = asked.get("lease")
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"the option 'lease' is a number from 1 on, not '{text}'")
    return float(text)
