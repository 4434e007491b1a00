"""`connect` to a cluster and ask it: any scheduler will do, and the client finds the others by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from ballista_py.errors import (
    BallistaError,
    ConfigError,
    OwnershipError,
    SqlError,
    TransportError,
    WriteIncomplete,
)
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.scanned_table import external_table, require_alone
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import Distribution, FileFormatName
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.sql.plan_drawing import ExplainedPlan
from ballista_py.state.documents.write_tokens import RESEND_MS
from ballista_py.transport.client.client_answers import QueryResult, QueryStream, affected_rows, passes_by
from ballista_py.transport.client.cluster_calls import ClusterCalls
from ballista_py.transport.client.given import Parameters, Rows, arrow_rows
from ballista_py.transport.client.jobs import Job, JobCalls
from ballista_py.transport.client.schedulers import Schedulers, TimeLeft
from ballista_py.transport.client.session import ClientQuery, ClientSession, token_of
from ballista_py.transport.endpoints import TLS_SCHEMES, Address
from ballista_py.transport.flight.client import FlightPool, FlightStream
from ballista_py.transport.flight.commands import (
    EXPLAIN,
    IngestMode,
    create_table_command,
    execute_command,
    ingest_command,
    sql_command,
    waiting_for,
)
from ballista_py.transport.flight.errors import was_never_sent
from ballista_py.transport.security.credentials import Tls

T = TypeVar("T")
FIRST_RESEND_MS = 100.0
LONGEST_RESEND_MS = 2_000.0


def connect(
    url: str,
    *,
    token: str | Secret | None = None,
    tls: Tls | None = None,
    retry_reads: bool = False,
    runtime: Runtime | None = None,
) -> Client:
    """A client of the cluster that has a scheduler at `url`: `ballista://host:port`, or several, with commas.

    `token` says who you are to a cluster that asks for it. With `tls` every scheduler must prove that it is the
    host in its address; `ballista+tls://` alone trusts the authorities of the system.

    With `retry_reads` a query that fails because nodes die, restart or hand over is asked again, for half a minute,
    at any scheduler; otherwise it raises `SchedulerLost` or what the cluster says. Statements that may change
    something are never repeated.

    Raises `ConfigError` for something that is no address or a file that cannot be used, `Unauthenticated` for a
    token that is not valid, and `TransportError` when no scheduler can be reached.

    >>> connect("ballista://127.0.0.1:1")
    Traceback (most recent call last):
    ballista_py.errors.TransportError: no scheduler can be reached: node 127.0.0.1:1 cannot be reached
    """
    addresses = [str(Address.parse(part)) for part in url.split(",")]
    if tls is None and url.startswith(TLS_SCHEMES):
        tls = Tls()
    secret = Secret(token) if isinstance(token, str) else token
    pool = FlightPool(runtime or SystemRuntime(), tls=tls, token=secret)
    client = Client(addresses, pool, retry_reads=retry_reads, runtime=runtime)
    client.members()
    return client


class Client(ClusterCalls):
    """Asks schedulers. Use it from any number of threads, and `close` it or use it as a context manager.

    A scheduler that cannot be reached before a statement started is passed over, as is one that says to try later.
    Which schedulers there are is asked again after a failure, and every few seconds; one that is about to stop tells of
    the others, and one that went is remembered for a while, so one address does while all are restarted in turn. One of
    another cluster than the first that answered is never asked for anything.
    """

    def __init__(
        self, addresses: list[str], pool: FlightPool, *, retry_reads: bool, runtime: Runtime | None = None
    ) -> None:
        self._retry_reads = retry_reads
        self._runtime = runtime or SystemRuntime()
        self._pool = pool
        self._schedulers = Schedulers(addresses, pool, self._runtime)
        self._session = ClientSession(self._runtime)
        self._jobs = JobCalls(self._schedulers, pool, self._repeated, self._runtime)

    def sql(
        self,
        query: str,
        dialect: str | None = None,
        *,
        parameters: Parameters | None = None,
        token: str | None = None,
        atomic: bool = False,
        engine: str | None = None,
        timeout: float | None = None,
        wait: WriteWait | None = None,
    ) -> pa.Table:
        """The answer to any statement: a query, a change of a table, EXPLAIN, DESCRIBE, SHOW.

        `dialect` is the SQL it is written in: `spark`, `postgres`, or the engine's own by default. `parameters` are
        values for `?` in their order, or a dict with just the names of its `$name`.

        `engine="spark"` runs a query on Spark at the scheduler, over the files of the partitions: the way out when a
        merge would be too large. `engine="auto"` does so when the merge is estimated to exceed `max_merge_bytes`.

        A statement that changes something gives one row, `affected_rows`, or those of its RETURNING clause. It has a
        `token` (made if not given), is sent again under it when a reply is lost, and applied once: after any error,
        send it again with its token.
        An `atomic` INSERT is applied in all partitions or in none, and all of it is visible from one instant on;
        UPDATE, DELETE, MERGE and TRUNCATE are so anyway.
        `COPY table FROM 'file'` reads a Parquet or CSV file of this machine, `COPY (query) TO 'file'` writes one.

        After `timeout` seconds the statement is ended wherever it runs; the schedulers may set a shorter limit.

        A change of a table that is written through is answered once its source has it (`wait="source"`) or once the
        table shows it (`"visible"`); default: as the table was made.

        `SET dialect | engine | statement_timeout | write_wait = …` holds for this client's later statements that say
        nothing else, until `RESET`; `PREPARE q AS …`, `EXECUTE q(1, 'a')` and `DEALLOCATE q` keep texts in this client.

        Raises the `PlanningError` that says what is wrong with it (`TimeLimit`: its time is over), or `SchedulerLost`
        when the scheduler died.
        """
        asked = self._session.asked(query, dialect, engine, timeout, wait, parameters)
        return self._run(asked, token, atomic).table

    def ingest(
        self,
        table: str,
        data: Rows,
        *,
        mode: IngestMode = "append",
        token: str | None = None,
        atomic: bool = False,
        timeout: float | None = None,
        wait: WriteWait | None = None,
    ) -> int:
        """Add rows to a table; how many. They must have its columns, in order, or nothing is written.

        Rows that can be read again (a table, a batch, a dataframe) are sent again under the `token` when a reply is
        lost, and applied once; those of a reader are sent once. With `mode="replace"` they take the place of all
        rows that are there, with `"upsert"` that of the rows with their keys (see `upsert`); `"create"`,
        `"create_append"` and, if there is none, `"replace"` make the table. `atomic` rows appear everywhere or
        nowhere, whatever fails. After `timeout` seconds it ends, between two batches of `data` or at the schedulers.
        `wait` as for `sql`.

        Raises `SchemaMismatch`, `TimeLimit`, and `WriteIncomplete` naming partitions that did not apply them.
        """
        left = TimeLeft(self._runtime, self._session.time_limit(timeout))
        rows, waits = arrow_rows(data), waiting_for(self._session.write_wait(wait))
        name, made = token_of(token, self._runtime)

        def run(address: str, again: bool) -> int:
            command = ingest_command(table, mode, name, atomic, left.ms(), made)
            stream = self._pool.open_write(address, {**command, **waits, "again": again}, rows.schema)
            try:
                for batch in rows.batches():
                    left.ms()
                    stream.write(batch)
                return int(stream.finish()["affected"])
            except BaseException:
                stream.abort()
                raise

        return self._applied(run, left, rows.repeatable)

    def upsert(self, table: str, data: Rows, *, token: str | None = None, wait: WriteWait | None = None) -> int:
        """Put rows in the place of those with their primary keys, or add them; how many. No key may come twice.

        All of them at one instant, or none; `token` as for `ingest`. They may be at most a scheduler's
        `max_merge_bytes`; the rows that are there stay where they are, and owners rewrite files that hold their keys.

        Raises `SqlError` for a table without a primary key, and `SchemaMismatch`.
        """
        return self.ingest(table, data, mode="upsert", token=token, wait=wait)

    def apply_changes(
        self, table: str, changes: Rows, *, token: str | None = None, wait: WriteWait | None = None
    ) -> int:
        """Apply changes by primary key, in their order, all of them at one instant or none; how many they are.

        `changes` has the columns `op` (`insert`, `update`, `delete` or `truncate`), `old` (a struct with at least the
        primary key that the row had: of a delete, and of an update that changes the key), `new` (a struct of the
        table's columns: of an insert and an update) and, if need be, `unchanged` (a list: columns of an update that
        `new` does not give, and that stay as they are). An insert of a key that is there takes the place of its row, an
        update of one that is not comes to the table, a delete of one does nothing: so changes that are partly in the
        table already bring it to where they end. Rows whose key changes go to the partition that they belong to then.

        Applied once under the `token`, as for `ingest`: it is one for these very changes. They may be at most a
        scheduler's `max_merge_bytes`.

        Raises `SqlError` for a table without a primary key or with a source, and `SchemaMismatch` naming column or row.

        >>> gone = [{"op": "delete", "old": {"id": 7}, "new": None}]
        >>> client.apply_changes("events", pa.Table.from_pylist(gone, schema=columns))  # doctest: +SKIP
        1
        """
        return self.ingest(table, changes, mode="changes", token=token, wait=wait)

    def create_table(
        self,
        name: str,
        source: None = None,
        partition_by: PartitionBy = (),
        *,
        schema: pa.Schema | None = None,
        distribution: Distribution = "partitioned",
        colocate_with: str | None = None,
        primary_key: Sequence[str] = (),
        checks: Sequence[str] = (),
        file_format: FileFormatName = "parquet",
        refresh: Refresh | None = None,
        retention: Retention | None = None,
        write_mode: WriteMode = "read_only",
        write_wait: WriteWait = "visible",
        token: str | None = None,
        timeout: float | None = None,
        scan: Mapping[str, Any] | None = None,
    ) -> None:
        """Make an empty managed table of these columns, and return when it is served.

        Its `primary_key` columns are unique and not null, its rows fulfil the SQL conditions in `checks`, and its files
        are of `file_format`. A replicated table takes no `partition_by`. Its `retention` says which rows it forgets; a
        `refresh` is of tables with a source. Sent again under its `token` (made if not
        given) it is made once. A table with a `source` is made by `LocalCluster.create_table`, where that can be read:
        a scheduler reads nothing that a client names.

        With a `scan` alone it is a name for files that lie elsewhere and stay there, as `{"format": "delta", "path":
        …}`, below the `lake_locations` of the schedulers (`docs/guide-lake.md`).

        Raises `PartitionKeysMissing`, `UnsupportedExpression`, `ConfigError` for a name that is taken or a source,
        `SqlError` for a check that is no condition, and `TimeLimit` after `timeout` seconds.

        >>> client.create_table("events", None, ["bucket(8, id)"], schema=schema)  # doctest: +SKIP
        """
        new = NewTable(
            name=name,
            source=source,
            partition_by=partition_by,
            distribution=distribution,
            colocate_with=colocate_with,
            primary_key=primary_key,
            checks=checks,
            file_format=file_format,
            refresh=refresh,
            retention=retention,
            write_mode=write_mode,
            write_wait=write_wait,
        )
        if scan is not None:
            require_alone(
                name, (source, partition_by, schema, primary_key, checks, refresh, retention, colocate_with)
            )
            self.sql(external_table(name, scan), token=token, timeout=timeout)
            return
        new.require_no_source()
        if schema is None:
            raise ConfigError(f"table '{name}' needs a schema: the columns that it has")
        left = TimeLeft(self._runtime, self._session.time_limit(timeout))
        given, made = token_of(token, self._runtime)

        def run(address: str, again: bool) -> None:
            command = create_table_command(new, given, left.ms(), made)
            stream = self._pool.open_write(address, {**command, "again": again}, schema)
            try:
                stream.finish()
            except BaseException:
                stream.abort()
                raise

        self._applied(run, left)

    def drop_table(self, name: str) -> None:
        """End a table: no statement finds it any more, its executors unload it, its files become garbage."""
        self.sql('drop table "{}"'.format(name.replace('"', '""')))

    def _execute(self, asked: ClientQuery, token: str | None, atomic: bool) -> int:
        left, waits = TimeLeft(self._runtime, asked.timeout), waiting_for(asked.wait)
        token, made = token_of(token, self._runtime)

        def run(address: str, again: bool) -> int:
            command = execute_command(asked.query, asked.dialect, token, atomic, left.ms(), made)
            return int(self._pool.ask(address, {**command, **asked.beside, **waits, "again": again})["affected"])

        return self._applied(run, left)

    def _returned(self, asked: ClientQuery, token: str | None, atomic: bool) -> QueryResult:
        """The rows of a change with RETURNING, which is sent again under its token."""
        left = TimeLeft(self._runtime, asked.timeout)
        name, made = token_of(token, self._runtime)
        change = {"token": name, "made": made, "atomic": atomic}

        def run(address: str, again: bool) -> QueryResult:
            command = sql_command(asked.query, asked.dialect, None, left.ms(), change)
            stream = self._pool.open_stream(address, {**command, **asked.beside, "again": again})
            try:
                table = pa.Table.from_batches(stream.batches(), schema=stream.schema)
                return QueryResult(table=table, stats=stream.trailer)
            except BaseException:
                stream.cancel()
                raise

        return self._applied(run, left)

    def _applied(self, sent: Callable[[str, bool], T], left: TimeLeft, repeatable: bool = True) -> T:
        """What the statement gives, which is `sent` again, at any scheduler, while that may still complete it."""
        deadline_ms = self._runtime.monotonic_ms() + RESEND_MS
        wait_ms = FIRST_RESEND_MS
        times = 0

        def run(address: str) -> T:
            nonlocal times
            times += 1
            return sent(address, times > 1)

        while True:
            try:
                return self._schedulers.first_of(
                    run, lambda error, address: repeatable or was_never_sent(error, address)
                )
            except (
                TransportError,
                WriteIncomplete,
                OwnershipError,
            ) as error:  # owners may change in the midst of it
                if (
                    "lacking" in error.details
                    or not repeatable
                    or self._pool.closed
                    or self._runtime.monotonic_ms() > deadline_ms
                ):
                    raise
            left.ms()
            self._runtime.sleep_ms(wait_ms)
            wait_ms = min(LONGEST_RESEND_MS, 2 * wait_ms)

    def query(
        self,
        query: str,
        dialect: str | None = None,
        *,
        parameters: Parameters | None = None,
        engine: str | None = None,
        timeout: float | None = None,
    ) -> QueryResult:
        """The answer to `query`, which is any statement, as `sql` gives it, and what it took."""
        return self._run(self._session.asked(query, dialect, engine, timeout, None, parameters), None, False)

    def _run(self, asked: ClientQuery | None, token: str | None, atomic: bool) -> QueryResult:
        # A tokenizer, which `ingest` does without.
        from ballista_py.sql.parse.copies import CopyFrom, read_copy
        from ballista_py.sql.parse.kind import statement_kind
        from ballista_py.sql.parse.returning import returns_rows

        if asked is None:
            return QueryResult(table=pa.table({"Success": pa.array([], pa.bool_())}), stats={})
        copy = read_copy(asked.whole())
        if copy is not None:
            from ballista_py.transport.client.copies import load_file, write_answer

            if "parameters" in asked.beside:
                raise SqlError("COPY takes no parameters: write values into it")
            if isinstance(copy, CopyFrom):
                return affected_rows(load_file(self, copy, token, atomic, asked.timeout, asked.wait))
            return affected_rows(write_answer(self, copy, asked.dialect, asked.timeout, self._runtime))
        if returns_rows(asked.query, asked.dialect):
            return self._returned(asked, token, atomic)
        if statement_kind(asked.query, asked.dialect) == "change":
            return affected_rows(self._execute(asked, token, atomic))

        def read(stream: FlightStream) -> QueryResult:
            table = pa.Table.from_batches(stream.batches(), schema=stream.schema)
            return QueryResult(table=table, stats=stream.trailer)

        return self._start(asked, read)

    def stream(
        self,
        query: str,
        dialect: str | None = None,
        *,
        parameters: Parameters | None = None,
        timeout: float | None = None,
    ) -> QueryStream:
        """The answer to `query` batch by batch, so that it need not fit into memory."""
        asked = self._session.rows_asked(query, dialect, None, timeout, parameters)
        return self._start(asked, lambda stream: QueryStream(stream, stream.schema))

    def explain(
        self, query: str, dialect: str | None = None, *, analyze: bool = False, engine: str | None = None
    ) -> dict[str, Any]:
        """How `query` would run, JSON-ready; `["text"]` says it for people, a notebook draws it.

        With `analyze` it is run, without its rows: each leg says what it gave, and `["stats"]` what all took. With an
        `engine` it says which one would run it, and why.
        """
        asked = self._session.rows_asked(query, dialect, engine)
        command = sql_command(asked.query, asked.dialect, asked.engine)
        return ExplainedPlan(self._schedulers.call(EXPLAIN, {**command, **asked.beside, "analyze": analyze}))

    def submit(
        self,
        query: str,
        parameters: Parameters | None = None,
        *,
        dialect: str | None = None,
        engine: str | None = None,
        name: str = "",
        priority: int = 5,
        job_id: str | None = None,
    ) -> Job:
        """Queue a statement that is run whatever becomes of this client and of the scheduler that runs it.

        Once this has returned the job is done, by any scheduler: what it changes is changed once, all of it or nothing,
        and its result is whole and kept for a day (`job_result_ttl` of the schedulers). `parameters` are values for `?`
        in their order, or a dict with just the names of its `$name`. Jobs of one client go by `priority` (0 to 9, the
        highest first). The same `job_id` (a UUID; made if not given) submitted again is the same job.

        Raises `SqlError` for a statement that cannot be read, `JobRefused` for an id that another job has, `TryLater`
        when too many wait.
        """
        asked = self._session.rows_asked(query, dialect, engine)
        return self._jobs.submit(asked.whole(), parameters, asked.dialect, asked.engine, name, priority, job_id)

    def job(self, job_id: str) -> Job:
        """A job of this client, wherever it was submitted. Raises `JobMissing`."""
        return self._jobs.job(job_id)

    def jobs(self, state: str | None = None) -> list[dict[str, Any]]:
        """The jobs of this client, newest first, one JSON-ready row each; those in one `state`, if it is given."""
        return self._jobs.rows(state)

    def close(self) -> None:
        """Give up the connections."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _start(self, asked: ClientQuery, read: Callable[[FlightStream], T]) -> T:
        """What `read` makes of the answer, by the first scheduler that takes the statement."""
        from ballista_py.sql.parse.kind import only_reads

        repeatable = self._retry_reads and only_reads(asked.query, asked.dialect)
        left = TimeLeft(self._runtime, asked.timeout)

        def run(address: str) -> T:
            command = sql_command(asked.query, asked.dialect, asked.engine, left.ms())
            stream = self._pool.open_stream(address, {**command, **asked.beside})
            try:
                return read(stream)
            except BaseException:
                stream.cancel()
                raise

        if not repeatable:
            return self._schedulers.first_of(run, was_never_sent)
        return self._repeated(lambda: self._schedulers.first_of(run, lambda _error, _address: True))

    def _repeated(self, read: Callable[[], T]) -> T:
        """What `read` gives, which is repeated for `RESEND_MS` while nodes come, go and hand over."""
        deadline_ms = self._runtime.monotonic_ms() + RESEND_MS
        wait_ms = FIRST_RESEND_MS
        while True:
            try:
                return read()
            except BallistaError as error:
                if not passes_by(error) or self._pool.closed or self._runtime.monotonic_ms() > deadline_ms:
                    raise
            self._runtime.sleep_ms(wait_ms)
            wait_ms = min(LONGEST_RESEND_MS, 2 * wait_ms)
