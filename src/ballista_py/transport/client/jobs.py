"""Jobs in the hands of a client: submitted, waited for, read chunk by chunk, whatever becomes of a scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from attrs import define

from ballista_py.errors import (
    JobCancelled,
    JobRefused,
    RetriesExhausted,
    StoreError,
    TimeLimit,
    TryLater,
    from_wire,
)
from ballista_py.runtime import Runtime
from ballista_py.transport.client.given import Parameters, parameters_text
from ballista_py.transport.client.schedulers import Schedulers
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import (
    CANCEL_JOB,
    CLOSE_JOB,
    JOB,
    JOBS,
    SUBMIT_JOB,
    job_rows_command,
)

T = TypeVar("T")
OPEN = ("PENDING", "RUNNING")
ASK_MS = 5_000.0  # a scheduler waits so long for news before it answers
SHOW_MS = 1_000.0  # and so long for somebody who looks on


class Job:
    """A job that was submitted. Safe to share between threads; nothing of it is lost when this object is.

    `job_id` is all that is needed to find it again: `Client.job`.
    """

    def __init__(self, calls: JobCalls, row: Mapping[str, Any]) -> None:
        self.job_id: str = str(row["job_id"])
        self._calls = calls
        self._row = dict(row)

    def __repr__(self) -> str:
        return f"Job({self.job_id!r}, {self._row['state']})"

    def status(self) -> dict[str, Any]:
        """How it stands now, JSON-ready: `state`, `rows` and `bytes` so far, `attempt`, `error`, …"""
        self._row = self._calls.ask(JOB, {"job_id": self.job_id})
        return dict(self._row)

    def wait(self, timeout: float | None = None, *, progress: bool = False) -> dict[str, Any]:
        """Its status, once it has ended, however it did. `progress` shows on standard error how far it is.

        Raises `TimeLimit` after `timeout` seconds; the job goes on.
        """
        until_ms = None if timeout is None else self._calls.runtime.monotonic_ms() + 1e3 * timeout
        shown = _Shown(sys.stderr) if progress else None
        try:
            while True:
                left_ms = ASK_MS if until_ms is None else until_ms - self._calls.runtime.monotonic_ms()
                longest_ms = ASK_MS if shown is None else SHOW_MS
                wait_ms = max(0.0, min(longest_ms, left_ms))
                self._row = self._calls.ask(JOB, {"job_id": self.job_id, "wait_ms": wait_ms})
                if shown is not None:
                    shown.show(self._row)
                if self._row["state"] not in OPEN:
                    return dict(self._row)
                if left_ms <= 0:
                    raise TimeLimit(
                        f"job '{self.job_id}' is {self._row['state']} after {timeout:g} s: it goes on, wait again or "
                        "cancel it"
                    )
        finally:
            if shown is not None:
                shown.over()

    def result(self, timeout: float | None = None) -> pa.Table:
        """All of its rows, once there are; for a change what `Client.sql` gives.

        Raises the error by which it failed, `JobCancelled`, `JobRefused` for one that is closed, and `TimeLimit` after
        `timeout` seconds without an end.
        """
        tables = list(self._chunks(timeout))
        if not tables:
            return self._calls.rows_of(self.job_id, None)
        return pa.concat_tables(tables)

    def stream(self, timeout: float | None = None) -> Iterator[pa.RecordBatch]:
        """Its rows, batch by batch, so that they need not fit into memory; raises as `result`.

        A chunk that a scheduler did not give whole is asked for again, so each row comes once.
        """
        for table in self._chunks(timeout):
            yield from table.to_batches()

    def _chunks(self, timeout: float | None) -> Iterator[pa.Table]:
        row = self.wait(timeout)
        if row["state"] == "FAILED":
            raise from_wire(row["error"] or {})
        if row["state"] == "CANCELLED":
            raise JobCancelled(f"job '{self.job_id}' was cancelled: it has no result")
        if row["state"] != "SUCCEEDED":
            raise JobRefused(f"job '{self.job_id}' is {row['state']}: its result was given up, submit it again")
        for number in range(row["chunks"]):
            yield self._calls.rows_of(self.job_id, number)

    def cancel(self) -> dict[str, Any]:
        """Let it be done no further; its status. One that has ended stays as it is."""
        self._row = self._calls.ask(CANCEL_JOB, {"job_id": self.job_id})
        return dict(self._row)

    def close(self) -> dict[str, Any]:
        """Give its result up before its time; its status. Raises `JobRefused` while it is still to be done."""
        self._row = self._calls.ask(CLOSE_JOB, {"job_id": self.job_id})
        return dict(self._row)


@define
class JobCalls:
    """What a client asks schedulers about jobs: each question may be asked again, at any of them."""

    schedulers: Schedulers
    pool: FlightPool
    repeated: Callable[[Callable[[], Any]], Any]
    runtime: Runtime

    def submit(
        self,
        query: str,
        parameters: Parameters | None,
        dialect: str | None,
        engine: str | None,
        name: str,
        priority: int,
        job_id: str | None,
    ) -> Job:
        """See `Client.submit`."""
        body = {
            "query": query,
            "dialect": dialect,
            "engine": engine,
            "name": name,
            "priority": priority,
            "job_id": job_id or self.runtime.new_id(),
            "parameters": parameters_text(parameters),
        }
        return Job(self, self.ask(SUBMIT_JOB, body))

    def job(self, job_id: str) -> Job:
        """See `Client.job`."""
        return Job(self, self.ask(JOB, {"job_id": job_id}))

    def rows(self, state: str | None) -> list[dict[str, Any]]:
        """See `Client.jobs`."""
        found = self.repeated(lambda: self._asked(JOBS, {"state": state}))
        return list(found["rows"])

    def ask(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The job, after a question about it that may be asked twice."""
        found = self.repeated(lambda: self._asked(action, body))
        return dict(found["job"])

    def _asked(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply. What a store in trouble left open is asked for again: a job is submitted under its id."""
        try:
            return self.schedulers.call(action, body)
        except (StoreError, RetriesExhausted) as error:
            raise TryLater(error.message) from error

    def rows_of(self, job_id: str, chunk: int | None) -> pa.Table:
        """The rows of a chunk, whole; of the result, without a number."""

        def read(address: str) -> pa.Table:
            stream = self.pool.open_stream(address, job_rows_command(job_id, chunk))
            try:
                return pa.Table.from_batches(stream.batches(), schema=stream.schema)
            except BaseException:
                stream.cancel()
                raise

        found: pa.Table = self.repeated(
            lambda: self.schedulers.first_of(read, lambda _error, _address: True),
        )
        return found


class _Shown:
    """One line that says how far a job is: written over on a terminal, once a change elsewhere."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_terminal = bool(getattr(stream, "isatty", lambda: False)())
        self._last = ""

    def show(self, row: Mapping[str, Any]) -> None:
        """Say how it stands."""
        text = f"job {row['job_id'][:8]}: {row['state'].lower()}"
        if row["attempt"] > 1:
            text += f", attempt {row['attempt']}"
        if row["rows"]:
            text += f", {row['rows']:,} row{'' if row['rows'] == 1 else 's'}, {row['bytes'] / 1e6:,.1f} MB"
        if text == self._last:
            return
        self._last = text
        self._stream.write(f"\r\x1b[2K{text}" if self._is_terminal else f"{text}\n")
        self._stream.flush()

    def over(self) -> None:
        """Nothing more is shown."""
        if self._is_terminal and self._last:
            self._stream.write("\n")
            self._stream.flush()
