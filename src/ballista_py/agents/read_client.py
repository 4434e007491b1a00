"""`ReadClient`: a worker that reads its share of a read job, under the rules of grants."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Protocol

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.agents.done_here import done_here
from ballista_py.agents.shared_read import SharedRead, SharedReadHandle
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    InvalidData,
    SnapshotGone,
    TransportError,
    TryLater,
    Unauthenticated,
)
from ballista_py.partitions.columns import conformed
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.threads import spawn
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.spawn import Spawn
from ballista_py.transport.table_read.grant_messages import (
    AGENT_ACTION,
    MAX_NAME_CHARS,
    AgentWord,
    AskForWork,
    ClientWord,
    agent_word,
    client_bytes,
)
from ballista_py.transport.table_read.granted_reader import GrantExchange, Heard
from ballista_py.transport.table_read.tokens.consuming import (
    Action,
    DropExchange,
    GrantConsumer,
    OpenAt,
    ReadTimes,
    TakeRows,
    Unreachable,
)
from ballista_py.transport.table_read.tokens.exchange import ReadAccepted, ReadChunk, ReadCredit
from ballista_py.transport.table_read.tokens.messages import (
    GaveUp,
    NoMoreWork,
    ReadDone,
    ReaderId,
    ReadGrant,
    SnapshotLost,
    WaitForWork,
)

AGENT_ANSWER_MS = 5_000.0
PATIENCE_MS = 120_000.0  # without a row, and without a word of the Agent
TICK_MS = 200.0
AGENT_AGAIN_MS = 500.0
HELD_BYTES = 32 << 20  # of rows that are not processed yet, where some can be without the others
TIMES = ReadTimes(open_ms=5_000.0, stall_ms=20_000.0)
TIMES_OF_WHOLE = evolve(TIMES, stall_ms=PATIENCE_MS)  # its first row comes when all of it was worked on


class GrantSink(Protocol):
    """Where a worker puts the rows of one grant after the other. `begin` comes first, one of the two last ones last.

    What `take` was given counts only once the Agent has `counted` it, and may be thrown away until then. A worker may
    die just after that: `keep` is called before, when all rows are there. Whoever makes them outlive the process there,
    under the name of the token, has every row of the job in what lies under `SharedRead.counted_tokens`.
    """

    def begin(self, token: str) -> None:
        """Rows under a new grant follow, whose token this is."""
        ...

    def take(self, rows: pa.RecordBatch) -> None:
        """Some rows."""
        ...

    def keep(self) -> None:
        """These were all."""
        ...

    def counted(self) -> None:
        """The rows since `begin` are the job's."""
        ...

    def thrown_away(self) -> None:
        """Somebody else reads them."""
        ...


@define
class _Gathered:
    """Keeps the rows of a grant in memory."""

    schema: pa.Schema
    token: str = ""
    rows: list[pa.RecordBatch] = field(factory=list)
    is_counted: bool = False

    def begin(self, token: str) -> None:
        self.token, self.rows, self.is_counted = token, [], False

    def take(self, rows: pa.RecordBatch) -> None:
        self.rows.append(rows)

    def keep(self) -> None:
        return

    def counted(self) -> None:
        self.is_counted = True

    def thrown_away(self) -> None:
        self.rows = []


@define
class _RowsOfGrant:
    """Rows on their way into the sink: those that no Server has processed are processed here."""

    handle: SharedReadHandle
    sink: GrantSink
    in_parts: bool
    _waiting: list[pa.RecordBatch] = field(init=False, factory=list)

    def take(self, rows: tuple[pa.RecordBatch, ...], applies_plan: bool) -> None:
        """Rows as they came; with `applies_plan` the plan is still to be done over them."""
        handle = self.handle
        given = handle.base_schema if applies_plan else handle.schema
        waits = applies_plan and not handle.passes_rows
        for batch in rows:
            if batch.schema.types != given.types:
                raise InvalidData("a node gave other columns than the read job has")
            shown = pa.RecordBatch.from_arrays(batch.columns, schema=given if waits else handle.schema)
            if waits:
                self._waiting.append(shown)
            elif shown.num_rows:
                self.sink.take(shown)
        if self.in_parts and sum(batch.nbytes for batch in self._waiting) > HELD_BYTES:
            self.finish()

    def finish(self, *, whole: bool = False) -> None:
        """Process what waits; `whole` says that rows of none are to be processed, too."""
        waiting, self._waiting = self._waiting, []
        if not waiting and not whole:
            return
        rows = pa.RecordBatchReader.from_batches(self.handle.base_schema, waiting)
        found = done_here(self.handle.plan, self.handle.relation, rows)
        for batch in conformed(iter(found.to_batches()), self.handle.schema):
            if batch.num_rows:
                self.sink.take(batch)


class ReadClient:
    """A worker: reads rows of a shared read until there are none left. One thread uses it, and one more reads for it.

    `agent` is the handle that `SharedRead.serve` gave, or the `SharedRead` itself, in its process. A worker that is
    started again under the same `name` has its rows of before given up at once.

    Raises `ConfigError` for a name that is none.
    """

    def __init__(
        self,
        agent: SharedReadHandle | SharedRead,
        *,
        name: str | None = None,
        runtime: Runtime | None = None,
        patience: float = PATIENCE_MS / 1e3,
    ) -> None:
        self._runtime = runtime or SystemRuntime()
        if name is not None and not 0 < len(name) <= MAX_NAME_CHARS:
            raise ConfigError(f"the name of a worker has 1 to {MAX_NAME_CHARS} characters")
        self.id = ReaderId(name or self._runtime.new_id(), self._runtime.new_id())
        self._handle = agent if isinstance(agent, SharedReadHandle) else agent.here
        self._link: _Link = _Port(agent, self._runtime) if isinstance(agent, SharedReadHandle) else _Here(agent)
        self._servers = self._handle._source.pool(self._runtime, of_nodes=True)
        self._patience_ms = patience * 1e3
        self._spawn: Spawn = spawn
        self._heard_ms = self._runtime.monotonic_ms()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._handle.schema

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """The rows that count, grant by grant, each with its token. Those of all workers together are all of the job.

        All rows of a grant are in memory. What was counted is not read again: if this process dies before it has used
        a table, its rows are missing. Who cannot have that uses `read`. Raises as `read`.
        """
        sink = _Gathered(self.schema)
        for _ in self._grants(sink):
            if sink.is_counted:
                yield sink.token, pa.Table.from_batches(sink.rows, schema=self.schema)

    def read(self, sink: GrantSink) -> int:
        """Read into a sink until the job has ended; returns how many grants counted.

        Raises `SnapshotGone` once the job is over, `TryLater` where nobody gives the rows of a partition for two
        minutes, `TransportError` when the Agent says nothing for so long, what Servers and the plan raise, and what the
        sink raises: its rows are given up.
        """
        return sum(self._grants(sink))

    def close(self) -> None:
        """Give up the connections."""
        self._servers.close()
        self._link.close()

    def __enter__(self) -> ReadClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _grants(self, sink: GrantSink) -> Iterator[bool]:
        """Whether what was read counts, grant by grant."""
        while True:
            work = self._say(AskForWork(self.id))
            if isinstance(work, NoMoreWork):
                return
            if isinstance(work, ReadGrant):
                reading = _Reading(self, work, sink)
                yield reading.run()
            else:
                wait_ms = work.retry_after_ms if isinstance(work, WaitForWork) else AGENT_AGAIN_MS
                self._runtime.sleep_ms(min(wait_ms, AGENT_ANSWER_MS))

    def _say(self, word: ClientWord) -> AgentWord:
        """The Agent's answer; None if there is none now. Raises `TransportError` when there was none for too long."""
        try:
            found = self._link.say(word)
        except (SnapshotGone, Unauthenticated):
            raise
        except TransportError as error:
            if self._runtime.monotonic_ms() - self._heard_ms > self._patience_ms:
                raise TransportError(f"the Agent of the read job does not answer: {error}") from None
            return None
        self._heard_ms = self._runtime.monotonic_ms()
        return found


class _Reading:
    """One grant, from its beginning to what the Agent says of it."""

    def __init__(self, client: ReadClient, grant: ReadGrant, sink: GrantSink) -> None:
        self._client = client
        self._runtime = client._runtime
        self._sink = sink
        times = TIMES_OF_WHOLE if grant.sections is None else TIMES
        wants_plan = not client._handle.passes_rows
        self._consumer = GrantConsumer(grant, client.id, self._runtime, wants_plan=wants_plan, times=times)
        self._rows = _RowsOfGrant(client._handle, sink, in_parts=grant.sections is not None)
        self._exchange: GrantExchange | None = None
        self._chunk: Heard | None = None
        self._is_kept = False
        self._can_process = find_spec("duckdb") is not None
        self._is_unprocessed = False  # of the last attempt
        self._error: BallistaError | None = None
        self._until_ms = self._runtime.monotonic_ms() + client._patience_ms

    def run(self) -> bool:
        """Whether the rows count."""
        consumer = self._consumer
        self._sink.begin(consumer.grant.token)
        try:
            self._carry_out(consumer.start())
            while consumer.phase != "over":
                self._step()
        except BaseException:
            self._give_up()
            raise
        if consumer.outcome is not None and consumer.outcome.counts:
            self._sink.counted()
            return True
        self._sink.thrown_away()
        return False

    def _step(self) -> None:
        """Take what was heard, or wait a moment for it."""
        consumer, exchange = self._consumer, self._exchange
        if exchange is None:
            self._runtime.sleep_ms(TICK_MS / 4)
        else:
            self._chunk = exchange.next(TICK_MS)
            if self._chunk is not None:
                self._hear(self._chunk)
        self._carry_out(consumer.tick())
        if self._runtime.monotonic_ms() > self._until_ms and consumer.phase != "ending":
            why = self._error or "nobody has it"
            raise TryLater(f"nobody gives partition {consumer.grant.partition} of the read job: {why}")

    def _hear(self, heard: Heard) -> None:
        if heard.error is not None:
            self._error_once(heard)
            return
        assert heard.event is not None
        if isinstance(heard.event, ReadAccepted):
            self._is_unprocessed = not heard.event.applies_plan
        before = self._consumer.position
        self._carry_out(self._consumer.on(heard.event))
        if isinstance(heard.event, ReadChunk) and self._consumer.position != before:
            self._until_ms = self._runtime.monotonic_ms() + self._client._patience_ms

    def _error_once(self, heard: Heard) -> None:
        """An old ticket is no error: a new one is asked for. All else would be said everywhere."""
        assert heard.error is not None
        if not isinstance(heard.error, Unauthenticated) or isinstance(self._error, Unauthenticated):
            raise heard.error
        self._error = heard.error
        self._carry_out(self._consumer.on(Unreachable(heard.attempt)))

    def _carry_out(self, actions: tuple[Action, ...]) -> None:
        pending = list(actions)
        while pending:
            action = pending.pop(0)
            match action:
                case OpenAt():
                    self._drop()
                    self._exchange = self._opened(action)
                case ReadCredit():
                    if self._exchange is not None and self._exchange.attempt == action.attempt:
                        self._exchange.credit(action)
                case TakeRows():
                    assert self._chunk is not None
                    self._rows.take(self._chunk.rows, action.applies_plan)
                case DropExchange():
                    if self._exchange is not None and self._exchange.attempt == action.attempt:
                        self._drop()
                case _:
                    pending += self._told(action)

    def _told(self, word: ClientWord) -> list[Action]:
        """Say something to the Agent; what follows from its answer."""
        if isinstance(word, ReadDone) and not self._is_kept:
            self._rows.finish(whole=self._is_unprocessed and self._consumer.grant.sections is None)
            self._sink.keep()
            self._is_kept = True
        answer = self._client._say(word)
        if isinstance(word, SnapshotLost):
            raise SnapshotGone("the read job is over, because it was closed or not renewed in time: read again")
        if answer is None or isinstance(answer, ReadGrant | WaitForWork | NoMoreWork):
            return []
        return list(self._consumer.on(answer))

    def _opened(self, action: OpenAt) -> GrantExchange:
        return GrantExchange(
            self._client._servers,
            action,
            self._runtime,
            self._client._spawn,
            counts=self._consumer.grant.sections is None,
            can_process=self._can_process,
            encodings=self._client._handle.encodings,
        )

    def _drop(self) -> None:
        if self._exchange is not None:
            self._exchange.drop()
            self._exchange = None

    def _give_up(self) -> None:
        """Say so, that others need not wait for it."""
        self._drop()
        grant = self._consumer.grant
        try:
            self._client._link.say(GaveUp(token=grant.token, client=self._client.id))
        except BallistaError:  # it is found out by the silence
            return


class _Link(Protocol):
    def say(self, word: ClientWord) -> AgentWord: ...
    def close(self) -> None: ...


@define
class _Here:
    """An Agent in this process."""

    agent: SharedRead

    def say(self, word: ClientWord) -> AgentWord:
        return self.agent.say(word)

    def close(self) -> None:
        return


class _Port:
    """An Agent at its port."""

    def __init__(self, handle: SharedReadHandle, runtime: Runtime) -> None:
        self._address = handle.address
        self._pool = FlightPool(runtime, tls=handle.tls, token=Secret(handle.secret))

    def say(self, word: ClientWord) -> AgentWord:
        answer = self._pool.call_bytes(self._address, AGENT_ACTION, client_bytes(word), AGENT_ANSWER_MS)
        return agent_word(answer, "" if isinstance(word, AskForWork) else word.token)

    def close(self) -> None:
        self._pool.close()


__all__ = ["GrantSink", "ReadClient"]
