"""`write_job`: rows for a table from many processes, all of them there at one instant, once, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from attrs import field, frozen

from ballista_py.agents.agent import Agent, ReadSource
from ballista_py.agents.row_sending import SentRows
from ballista_py.errors import BallistaError, ConfigError, TransportError, TryLater
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.arrow.door import read_schema
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_write.messages import PACKAGE, known_of_write, pb

WriteJobMode: TypeAlias = Literal["append", "overwrite"]
Rows: TypeAlias = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatch]

PATIENCE_MS = 30_000.0
LOOK_AGAIN_MS = 200.0
LONGEST_MS = 900_000.0  # that a commit may take


@frozen(kw_only=True)
class WriteReceipt:
    """What executors have kept of one task; `WriteJob.commit` takes it. It can be pickled.

    `puts` are `Receipt` messages, as the executors gave them.
    """

    rows: int
    puts: tuple[bytes, ...]

    @property
    def write_ids(self) -> list[str]:
        """The writes that they were put for."""
        return [known_of_write("Receipt", put).write_id for put in self.puts]


@frozen(kw_only=True)
class WriteTask:
    """Puts rows for a write. It can be pickled, and used by any process that reaches the cluster, more than once.

    `schema` are the columns of the table; `is_committed` says that a write of the same token counts already, and that
    rows which are put now go nowhere.
    """

    _source: ReadSource
    write_id: str
    schema: pa.Schema
    locations: tuple[str, ...]
    ticket: bytes = field(repr=False)
    is_committed: bool = False

    def write(self, rows: Rows, *, runtime: Runtime | None = None) -> WriteReceipt | None:
        """Put rows; nobody sees them before the receipt is committed. None where the write is committed already.

        They have the columns of the table, in any order. About 64 MiB of them are gathered here and put together, and
        go to another executor where one has too much to do, or goes. What was not answered nobody keeps.

        Raises `SchemaMismatch` for rows that are not the table's, `SnapshotGone` for a write that is over, `TryLater`
        where nobody takes them for a minute, `TransportError`, and what `rows` raise.
        """
        schema, batches = _batches(rows, self.schema)
        if self.is_committed:
            for _ in batches:
                pass
            return None
        sent = SentRows(self._source, self.write_id, self.locations, self.ticket, runtime or SystemRuntime())
        puts = sent.put(schema, batches)
        kept = tuple(bytes(one.SerializeToString()) for one in puts)
        return WriteReceipt(rows=sum(one.rows for one in puts), puts=kept)


class WriteJob:
    """A write. `commit` the receipts of its tasks, or `abort` it; in a `with` an error aborts it.

    `write_token` tells the write: under the same one it is the same write, and happens once. `is_committed` says that
    it counts already; then there is nothing to put, and `commit` tells how many rows it had. `schema` are the columns
    of the table, `keys` what it is split by: rows that are sorted by these make fewer, larger files.
    """

    def __init__(self, agent: WriteAgent, table: str, mode: WriteJobMode, write_token: str, begun: Any) -> None:
        self._agent = agent
        self.table = table
        self.mode = mode
        self.write_token = write_token
        self.write_id: str = begun.write_id
        self.lease_ms: int = begun.lease_ms
        self.schema = read_schema(begun.schema)
        self.keys = tuple(begun.keys)
        self.is_committed: bool = begun.committed
        self._locations, self._ticket = tuple(begun.locations), begun.ticket

    def task(self) -> WriteTask:
        """What puts rows: pickle it, and send it to workers."""
        return WriteTask(
            source=self._agent.source,
            write_id=self.write_id,
            schema=self.schema,
            locations=self._locations,
            ticket=self._ticket,
            is_committed=self.is_committed,
        )

    def write(self, rows: Rows) -> WriteReceipt | None:
        """Put rows from here. Raises as `WriteTask.write`."""
        return self.task().write(rows)

    def renew(self) -> int:
        """Keep the rows that were put for `lease_ms` from now on, which it returns. Raises `SnapshotGone`."""
        found = self._agent.ask("RenewWrite", pb.RenewWrite(write_id=self.write_id), "WriteRenewed")
        self._locations, self._ticket = tuple(found.locations), found.ticket
        return int(found.lease_ms)

    def commit(self, receipts: Iterable[WriteReceipt | None]) -> int:
        """Make all rows of these receipts part of the table at one instant; how many they are.

        Called again it says the same, also by another process with the same token: the first commit counts, whatever
        the receipts of later ones. Rows of other receipts go nowhere.

        Raises `SnapshotGone` for a write that is over, `SchemaMismatch` if the table was altered since the write began
        and for a primary key that is taken, `SqlError` if it was dropped; nothing was written then. After
        `TransportError` that is not known: commit again.
        """
        return commit_receipts(self._agent, self.table, self.mode, self.write_token, receipts)

    def abort(self) -> None:
        """Let the rows go, unless they are committed. Harmless at any time."""
        self._agent.abort([self.write_id] if self.write_id else [])

    def close(self) -> None:
        """Give up the connections; the write goes on until it is committed, or its lease is over."""
        self._agent.close()

    def __enter__(self) -> WriteJob:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        if kind is not None:
            self.abort()
        self.close()

    def __repr__(self) -> str:
        return f"<WriteJob {self.write_token}: {self.mode} to {self.table}>"


class WriteAgent:
    """Asks Coordinators about writes. Safe to share between threads."""

    def __init__(self, source: ReadSource, runtime: Runtime) -> None:
        self.source = source
        self._runtime = runtime
        self._agent = Agent(source, runtime)

    def ask(self, name: str, message: Any, answer: str) -> Any:
        """The answer to a message, of any scheduler; each may be asked again. Waits a while for one that answers."""
        until_ms = self._runtime.monotonic_ms() + PATIENCE_MS
        while True:
            try:
                said = self._agent.ask_bytes(f"{PACKAGE}.{name}", message, timeout_ms=LONGEST_MS)
                return known_of_write(answer, said)
            except TransportError as error:
                if type(error) not in (TransportError, TryLater) or self._runtime.monotonic_ms() > until_ms:
                    raise
            self._runtime.sleep_ms(LOOK_AGAIN_MS)

    def begin(self, table: str, mode: WriteJobMode, write_token: str, lease_ms: int = 0) -> WriteJob:
        """Begin a write. Raises as `write_job`."""
        message = pb.BeginWrite(table=table, mode=mode_of(mode), token=write_token, lease_ms=lease_ms)
        return WriteJob(self, table, mode, write_token, self.ask("BeginWrite", message, "WriteBegun"))

    def abort(self, write_ids: Sequence[str]) -> None:
        """Let rows go. Harmless where no scheduler can be reached: the lease ends."""
        try:
            self._agent.ask_bytes(f"{PACKAGE}.AbortWrite", pb.AbortWrite(write_ids=write_ids))
        except BallistaError:
            return

    def close(self) -> None:
        """Give up the connections."""
        self._agent.close()


def write_job(
    url: str,
    table: str,
    *,
    mode: WriteJobMode = "append",
    write_token: str | None = None,
    lease: float | None = None,
    token: str | Secret | None = None,
    tls: Tls | None = None,
    runtime: Runtime | None = None,
) -> WriteJob:
    """Begin a write to a `table`, which must be there: `append` rows, or `overwrite` all that are in it.

    Tasks put rows at executors, from wherever they run; `commit` makes them part of the table at one instant, all of
    them, with partitions for values that are new. Before that nobody sees them, and without it they go, `lease` seconds
    (an hour) after the last sign of life, at most a day.

    A write happens once under its `write_token` (default: a new one): choose one that a job which is started again
    chooses again, such as its name and date. `url`, `token` (who you are) and `tls` as for `connect`.

    Raises `ConfigError` for an argument that cannot be, `SqlError` for a table that is not there or not to be written,
    and for a token that another statement has, `MissingExtra` without protobuf, and as `connect`.
    """
    runtime = runtime or SystemRuntime()
    lease_ms = _lease_ms(lease)
    mode_of(mode)
    agent = WriteAgent(source_of(url, token, tls), runtime)
    try:
        return agent.begin(table, mode, write_token or runtime.new_id(), lease_ms)
    except BaseException:
        agent.close()
        raise


def commit_receipts(
    agent: WriteAgent, table: str, mode: WriteJobMode, write_token: str, receipts: Iterable[WriteReceipt | None]
) -> int:
    """See `WriteJob.commit`; the receipts may be of several writes that were begun under the token."""
    named = [known_of_write("Receipt", put) for one in receipts if one is not None for put in one.puts]
    message = pb.CommitWrite(table=table, mode=mode_of(mode), token=write_token, receipts=named)
    return int(agent.ask("CommitWrite", message, "WriteCommitted").rows)


def mode_of(mode: WriteJobMode) -> int:
    """The mode as it travels. Raises `ConfigError`."""
    if mode not in _MODES:
        raise ConfigError(f"mode is {' or '.join(_MODES)}, not {mode!r}")
    return _MODES[mode]


def source_of(url: str, token: str | Secret | None, tls: Tls | None) -> ReadSource:
    """How a cluster is reached."""
    return ReadSource(url=url, token=Secret(token) if isinstance(token, str) else token, tls=tls)


def _lease_ms(lease: float | None) -> int:
    if lease is None:
        return 0
    if not isinstance(lease, int | float) or not 1e-3 <= lease <= 1e9:
        raise ConfigError(f"lease is for how many seconds rows are kept, not {lease!r}")
    return int(lease * 1e3)


def _batches(rows: Rows, table: pa.Schema) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The rows with their columns in the order of the table's, where they have those and no others."""
    if isinstance(rows, pa.Table):
        rows = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    batches = iter(rows)
    first = None
    if isinstance(rows, pa.RecordBatchReader):
        schema = rows.schema
    else:
        first = next(batches, None)
        schema = table if first is None else first.schema
    found = batches if first is None else chain((first,), batches)
    if schema.names == table.names or sorted(schema.names) != sorted(table.names):
        return schema, found
    ordered = pa.schema([schema.field(name) for name in table.names])
    return ordered, (batch.select(table.names) for batch in found)


_MODES: dict[WriteJobMode, int] = {"append": pb.MODE_APPEND, "overwrite": pb.MODE_OVERWRITE}

__all__ = ["WriteJob", "WriteReceipt", "WriteTask", "write_job"]
