"""Which rows of a table came and went between two places in its history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.agents.agent import Agent, ReadSource
from ballista_py.agents.done_here import Given, in_an_engine
from ballista_py.agents.partition_search import Chunks, PartitionSearch
from ballista_py.agents.read_job import Consistency, ReadJob, ReadPartition, plan_hints, source_of
from ballista_py.errors import BallistaError, ConfigError, InvalidData
from ballista_py.partitions.columns import conformed
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.arrow.door import read_schema
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_read.messages import pb

CHANGE = "_change"
ANEW_MS = 6 * 3_600_000.0
INSERT, DELETE = "insert", "delete"


@frozen(kw_only=True)
class TablePlace:
    """A place in the history of a `table`; it can be pickled. It is kept for `lease_ms` from each `renew`.

    `schema` are the columns of the table there. Two places with the same `mark` have the same rows.
    """

    _source: ReadSource
    table: str
    read_id: str
    mark: bytes
    schema: pa.Schema
    lease_ms: int
    taken_ms: float
    _consistency: Consistency = "snapshot"

    def later(self, runtime: Runtime | None = None) -> TablePlace:
        """The place where the table is now; this one, renewed, if nothing was changed. Raises as `table_place`.

        One of several hours is given up for another one with the same rows: a place lasts for a day, however often it
        is renewed.
        """
        is_old = (runtime or SystemRuntime()).wall_ms() - self.taken_ms > ANEW_MS
        unless = b"" if is_old else self.mark
        found = _place(self._source, self.table, self.lease_ms, self._consistency, unless, runtime)
        if found is None:
            self.renew(runtime)
            return self
        return found

    def renew(self, runtime: Runtime | None = None) -> int:
        """Keep it for `lease_ms` from now on, which it returns. Raises `SnapshotGone` if it may be gone."""
        return int(_asked(self._source, "Renew", pb.Renew(read_id=self.read_id), "Renewed", runtime).lease_ms)

    def close(self, runtime: Runtime | None = None) -> None:
        """Let it go. Harmless when it is gone, and where no scheduler can be reached: its lease ends."""
        with suppress(BallistaError):
            _asked(self._source, "Close", pb.Close(read_id=self.read_id), "Closed", runtime)


def table_place(
    url: str,
    table: str,
    *,
    consistency: Consistency = "snapshot",
    lease: float | None = None,
    token: str | Secret | None = None,
    tls: Tls | None = None,
    runtime: Runtime | None = None,
) -> TablePlace:
    """The place where a table is now: what is changed from then on can be asked for, with `changes_between`.

    It keeps the files of the table for `lease` seconds (15 minutes) from each `renew`, at most a day. Arguments and
    errors are those of `read_job`.
    """
    hints = plan_hints(lease=lease)
    found = _place(source_of(url, token, tls), table, hints.lease_ms, consistency, b"", runtime)
    if found is None:
        raise InvalidData("a scheduler gave no place in the history of a table")
    return found


@frozen(kw_only=True)
class ChangedPartition:
    """What came and went in a partition of a table, for one process; it can be pickled.

    The rows have the columns of the table and `_change`: `insert` or `delete`. An update is one of each. What went and
    came again with the same values is neither.
    """

    partition: ReadPartition
    former: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return changes_schema(self.partition.schema)

    def batches(self, runtime: Runtime | None = None) -> Iterator[pa.RecordBatch]:
        """The rows. They are the same whenever they are read.

        Where files went in between, all their rows and those of the files that came are held and compared here, by
        DuckDB. Raises `MissingExtra` where that is missing, and as `ReadPartition.batches`.
        """
        runtime = runtime or SystemRuntime()
        if not self.former:
            for _, batch in self._renewed(runtime):
                yield self._said(batch, INSERT)
            return
        old: list[pa.RecordBatch] = []
        new: list[pa.RecordBatch] = []
        for at, batch in self._renewed(runtime):
            (old if at.section < self.former else new).append(batch)
        columns = self.partition.base_schema
        tables = {"was": pa.Table.from_batches(old, columns), "came": pa.Table.from_batches(new, columns)}
        for change, sql in ((DELETE, "from was except all from came"), (INSERT, "from came except all from was")):
            found = in_an_engine({name: Given(rows) for name, rows in tables.items()}, sql)
            for batch in conformed(iter(found.to_batches()), self.partition.schema):
                yield self._said(batch, change)

    def _renewed(self, runtime: Runtime) -> Chunks:
        """The rows, each batch with where it begins; the job is renewed while they are read."""
        due_ms = -1.0
        for at, batch in PartitionSearch(self.partition, runtime).placed():
            if (now_ms := runtime.monotonic_ms()) > due_ms:
                due_ms = now_ms + self.partition.renew(runtime) / 3
            yield at, batch

    def _said(self, batch: pa.RecordBatch, change: str) -> pa.RecordBatch:
        said = pa.repeat(pa.scalar(change, pa.string()), batch.num_rows)
        return pa.RecordBatch.from_arrays([*batch.columns, said], schema=self.schema)


def changes_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of changes of a table. Raises `ConfigError` for a table with a column `_change`."""
    if any(name.lower() == CHANGE for name in columns.names):
        raise ConfigError(f"the table has a column '{CHANGE}', which says of changes what they are: rename it")
    return columns.append(pa.field(CHANGE, pa.string(), nullable=False))


class TableChanges:
    """What lies between two places. Renew it while anybody reads its `partitions`, and `close` it, or use `with`."""

    def __init__(self, job: ReadJob, former: tuple[int, ...]) -> None:
        self._job = job
        self.schema = changes_schema(job.schema)
        self.partitions = tuple(
            ChangedPartition(partition=one, former=went) for one, went in zip(job.partitions, former, strict=True)
        )

    def renew(self) -> int:
        """Keep the files for so many milliseconds from now on. Raises `SnapshotGone` if they may be gone."""
        return self._job.renew()

    def read(self) -> pa.Table:
        """All changes. Raises as `ChangedPartition.batches`."""
        batches = []
        for partition in self.partitions:
            self.renew()
            batches += list(partition.batches())
        return pa.Table.from_batches(batches, schema=self.schema)

    def close(self) -> None:
        """Let the files go; the two places stay."""
        self._job.close()

    def __enter__(self) -> TableChanges:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def changes_between(
    since: TablePlace | None, until: TablePlace, *, lease: float | None = None, runtime: Runtime | None = None
) -> TableChanges:
    """What came and went between two places of a table; since the begin, without the former one.

    Each statement that was over at the later place and not at the former one is in it whole. Raises `SnapshotGone` for
    a place that is over, `Unsupported` for a table that was altered or made again in between, and as `read_job`.
    """
    runtime = runtime or SystemRuntime()
    changes_schema(until.schema)
    plan = pb.Plan(client=pb.ClientInfo(name="ballista_py"), hints=plan_hints(lease=lease))
    plan.between.CopyFrom(pb.Between(since="" if since is None else since.read_id, until=until.read_id))
    agent = Agent(until._source, runtime)
    try:
        slices = agent.ask("Plan", plan, "Slices")
        former = tuple(part.former for one in slices.slices for part in one.partitions)
        return TableChanges(ReadJob(until._source, agent, slices, runtime), former)
    except BaseException:
        agent.close()
        raise


def _place(
    source: ReadSource, table: str, lease_ms: int, consistency: Consistency, unless: bytes, runtime: Runtime | None
) -> TablePlace | None:
    plan = pb.Plan(client=pb.ClientInfo(name="ballista_py"), hints=pb.Hints(lease_ms=lease_ms))
    plan.place.CopyFrom(pb.Place(table=table, unless=unless))
    if consistency not in ("snapshot", "decided"):
        raise ConfigError(f"consistency is snapshot or decided, not {consistency!r}")
    plan.consistency = pb.CONSISTENCY_SNAPSHOT if consistency == "snapshot" else pb.CONSISTENCY_DECIDED
    found = _asked(source, "Plan", plan, "Slices", runtime)
    if not found.read_id:
        return None
    return TablePlace(
        source=source,
        table=table,
        read_id=found.read_id,
        mark=found.mark,
        schema=read_schema(found.schema),
        lease_ms=found.lease_ms,
        taken_ms=(runtime or SystemRuntime()).wall_ms(),
        consistency=consistency,
    )


def _asked(source: ReadSource, name: str, message: Any, answer: str, runtime: Runtime | None) -> Any:
    agent = Agent(source, runtime or SystemRuntime())
    try:
        return agent.ask(name, message, answer)
    finally:
        agent.close()
