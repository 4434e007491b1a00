"""`read_job`: a table or a query, cut into partitions that anybody reads in parallel, all of one instant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
from attrs import field, frozen

from ballista_py.agents.agent import Agent, ReadSource
from ballista_py.agents.done_here import done_here
from ballista_py.agents.partition_search import PartitionSearch, preferred
from ballista_py.errors import BallistaError, ConfigError, InvalidData
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.arrow.door import read_schema
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.pieces import ENCODINGS

if TYPE_CHECKING:
    from ballista_py.agents.shared_read import SharedRead

Consistency: TypeAlias = Literal["snapshot", "decided"]


@frozen(kw_only=True)
class ReadPartition:
    """A part of a read job. It can be pickled, and read by any process that reaches the cluster, more than once.

    `rows` and `data_bytes` are those of its data files, before any filter. `schema` are the columns of the rows that it
    gives: what `plan`, over what it calls `relation`, makes of columns `base_schema` of all rows; if it `passes_rows`,
    these rows themselves. Rows that are not processed come in one of the `encodings`. It can be read as long as the
    job is renewed. Where it is `never_processed` by Servers, who give columns alone, whoever reads does the plan.
    """

    _source: ReadSource
    read_id: str
    number: int
    rows: int
    data_bytes: int
    schema: pa.Schema
    base_schema: pa.Schema
    plan: str
    relation: str
    passes_rows: bool
    locations: tuple[str, ...]
    ticket: bytes = field(repr=False)
    encodings: tuple[str, ...] | None = None
    never_processed: bool = False
    section_rows: tuple[int, ...] = field(default=(), repr=False)  # of each data file, where places lie amid them
    priorities: tuple[int, ...] = field(default=(), repr=False)  # of the locations, the least first

    def batches(self, *, process: bool = True, runtime: Runtime | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, as they come. When the iteration ends without an error they were complete.

        Servers that went, moved or have too much to do are passed over. One that goes amid the rows is an error, unless
        nobody has to `process` them there: then they are read on elsewhere, and what the plan says is done here, by
        DuckDB. So it is, too, where no Server has time to process, and DuckDB is here. Rows that nobody processes come
        as data files lie on disk, where that can be, and are decoded here.

        Raises `SnapshotGone` once the job is over, `TryLater` where nobody gives the rows for a minute,
        `TransportError` for a Server that went, and what Servers raise. Read again, a partition gives the same rows.
        """
        search = PartitionSearch(self, runtime or SystemRuntime())
        return search.processed() if process else search.processed_here()

    def renew(self, runtime: Runtime | None = None) -> int:
        """Keep the files of the job on; for how many milliseconds. Raises `SnapshotGone` if they may be gone."""
        agent = Agent(self._source, runtime or SystemRuntime())
        try:
            return int(agent.ask("Renew", pb.Renew(read_id=self.read_id), "Renewed").lease_ms)
        finally:
            agent.close()

    def to_table(self) -> pa.Table:
        """All rows. Raises as `batches`."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as pyarrow, DuckDB and polars read them. Raises as `batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


def _section_rows(part: Any) -> tuple[int, ...]:
    """The rows of each section; nothing where they are not said."""
    said = tuple(part.section_rows) or ((part.rows,) if part.sections == 1 else ())
    return said if len(said) == part.sections and sum(said) == part.rows else ()


def rows_of(
    partitions: Sequence[ReadPartition], *, process: bool = True, runtime: Runtime | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of partitions of one read job, one after the other; it is renewed while they are read.

    Raises as `ReadPartition.batches`.
    """
    runtime = runtime or SystemRuntime()
    due_ms = -1.0
    for partition in partitions:
        for batch in partition.batches(process=process, runtime=runtime):
            now_ms = runtime.monotonic_ms()
            if now_ms > due_ms:
                due_ms = now_ms + partition.renew(runtime) / 3
            yield batch


class ReadJob:
    """A read job. Renew it at least every `lease_ms / 3` while anybody reads, and `close` it, or use it in a `with`.

    `schema` are the columns of its answer. If there is a `remainder`, SQL over all rows of all partitions together
    (called `relation` in it), these rows are not the answer yet: `read` does the rest, or do it yourself. `substrait`
    is the same as a plan, if the job was begun by one.
    """

    def __init__(
        self,
        source: ReadSource,
        agent: Agent,
        slices: Any,
        runtime: Runtime,
        encodings: tuple[str, ...] | None = None,
    ) -> None:
        self._agent = agent
        self._runtime = runtime
        self.source = source
        self.read_id: str = slices.read_id
        self.lease_ms: int = slices.lease_ms
        self.schema = read_schema(slices.schema)
        if len(slices.slices) != 1:
            raise InvalidData(f"a scheduler gave {len(slices.slices)} slices, of which this client reads one")
        (one,) = slices.slices
        self.given = read_schema(one.schema)
        self.remainder: str | None = one.remainder.sql if one.HasField("remainder") else None
        self.relation: str = one.remainder.relation if one.HasField("remainder") else ""
        self.substrait: bytes = one.remainder.substrait if one.HasField("remainder") else b""
        self.partitions = tuple(
            ReadPartition(
                source=source,
                read_id=self.read_id,
                number=part.number,
                rows=part.rows,
                data_bytes=part.bytes,
                schema=self.given if self.remainder is not None else self.schema,
                base_schema=read_schema(one.base_schema),
                plan=one.plan,
                relation=one.relation,
                passes_rows=one.passes_rows,
                locations=tuple(location.uri for location, _ in preferred(part.locations)),
                ticket=part.ticket,
                encodings=encodings,
                never_processed=bool(part.locations)
                and all(one.hints.behaviour == pb.BEHAVIOUR_ALWAYS_REFUSE for one in part.locations),
                section_rows=_section_rows(part) if one.row_by_row else (),
                priorities=tuple(rank for _, rank in preferred(part.locations)),
            )
            for part in one.partitions
        )

    def renew(self) -> int:
        """Keep the files for `lease_ms` from now on, which it returns. Raises `SnapshotGone` if they may be gone."""
        return int(self._agent.ask("Renew", pb.Renew(read_id=self.read_id), "Renewed").lease_ms)

    def close(self) -> None:
        """Let the files go. Harmless when they are gone, and where no scheduler can be reached: the lease ends."""
        with suppress(BallistaError):
            self._agent.ask("Close", pb.Close(read_id=self.read_id), "Closed")
        self._agent.close()

    def share(self, *, dead_after: float = 12.0) -> SharedRead:
        """Let worker processes read it together, each row in one of them: see `SharedRead`.

        A worker that is silent for `dead_after` seconds has its rows read by another one. Raises `ConfigError` for less
        than five.
        """
        from ballista_py.agents.shared_read import SharedRead

        return SharedRead(self, self._agent, self._runtime, dead_after=dead_after)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of all partitions, one after the other, before the remainder. The job is renewed meanwhile."""
        return rows_of(self.partitions, runtime=self._runtime)

    def read(self) -> pa.Table:
        """The whole answer, here: all partitions one after the other, and the remainder over them.

        Raises as `ReadPartition.batches`, and `MissingExtra` where there is a remainder and no DuckDB to do it.
        """
        if self.remainder is None:
            return pa.Table.from_batches(self.rows(), schema=self.schema)
        return self.finish(pa.RecordBatchReader.from_batches(self.given, self.rows()))

    def finish(self, rows: pa.RecordBatchReader | pa.Table) -> pa.Table:
        """The answer, of the rows of all partitions. Raises `MissingExtra` where DuckDB is missing."""
        if self.remainder is None:
            return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows, schema=rows.schema)
        found = done_here(self.remainder, self.relation, rows)
        return found.rename_columns(self.schema.names).cast(self.schema)

    def __enter__(self) -> ReadJob:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        rows = sum(partition.rows for partition in self.partitions)
        rest = "" if self.remainder is None else ", with a remainder"
        return f"<ReadJob {self.read_id}: {len(self.partitions)} partitions over {rows:,} rows{rest}>"


def read_job(
    url: str,
    query: str | bytes | None = None,
    *,
    table: str | None = None,
    columns: Sequence[str] = (),
    filter: str = "",  # noqa: A002
    dialect: str | None = None,
    max_partitions: int | None = None,
    target_bytes: int | None = None,
    consistency: Consistency = "snapshot",
    lease: float | None = None,
    encodings: Sequence[str] | None = None,
    token: str | Secret | None = None,
    tls: Tls | None = None,
    runtime: Runtime | None = None,
) -> ReadJob:
    """Begin a read job: of a `query` over one table, or of a `table`, its `columns` (all) and rows (`filter`, in SQL).

    A query is SQL, or a plan of Substrait (bytes) that another engine has made; what is left of that is one, too
    (`ReadJob.substrait`).

    All partitions show one instant of the table, however long they are read, and whatever is changed meanwhile: the job
    keeps the files, for `lease` seconds (15 minutes) from each `renew`, at most a day. The rows come from the
    executors, and pass no scheduler. With `consistency="decided"` statements over several partitions are seen in all or
    none, and others as each partition stands when it is looked at: for tables that are never still.

    `encodings` are the forms in which rows that nobody processes may come, the one liked best first: `parquet` and
    `vortex` (files as they lie on disk, decoded here), `arrow`, `arrow+lz4`, `arrow+zstd`; (): record batches. Unless
    it is said, files come as they lie on disk, but from Servers of the same machine.

    `max_partitions` and `target_bytes` of data files (64 MiB) say how finely the job is cut. `url`, `token` and `tls`
    as for `connect`.

    Raises `ConfigError` for an argument that cannot be, `SqlError`, `Unsupported` for a query that is not over one
    table, `TryLater` for a table that is never still, `MissingExtra` without protobuf, and as `connect`.
    """
    plan = _plan(query, table, columns, filter, dialect)
    plan.hints.CopyFrom(plan_hints(max_partitions=max_partitions, target_bytes=target_bytes, lease=lease))
    if consistency not in _CONSISTENCIES:
        raise ConfigError(f"consistency is {' or '.join(_CONSISTENCIES)}, not {consistency!r}")
    plan.consistency = _CONSISTENCIES[consistency]
    taken = _encodings(encodings)
    runtime = runtime or SystemRuntime()
    source = source_of(url, token, tls)
    agent = Agent(source, runtime)
    try:
        return ReadJob(source, agent, agent.ask("Plan", plan, "Slices"), runtime, taken)
    except BaseException:
        agent.close()
        raise


def schema_of_read(
    url: str,
    query: str | None = None,
    *,
    table: str | None = None,
    columns: Sequence[str] = (),
    filter: str = "",  # noqa: A002
    token: str | Secret | None = None,
    tls: Tls | None = None,
) -> pa.Schema:
    """The columns that a read job would give, as of now; nothing is begun. Raises as `read_job`."""
    plan = _plan(query, table, columns, filter, None)
    plan.schema_only = True
    agent = Agent(source_of(url, token, tls), SystemRuntime())
    try:
        return read_schema(agent.ask("Plan", plan, "Slices").schema)
    finally:
        agent.close()


def _plan(
    query: str | bytes | None, table: str | None, columns: Sequence[str], condition: str, dialect: str | None
) -> Any:
    if (query is None) == (table is None):
        raise ConfigError("a read job is of a query or of a table: give one of them")
    if query is not None and (columns or condition):
        raise ConfigError("columns and filter are for a table: write them into the query")
    plan = pb.Plan(client=pb.ClientInfo(name="ballista_py"), dialect=dialect or "")
    if isinstance(query, bytes):
        plan.substrait = query
    elif query is not None:
        plan.sql = query
    else:
        plan.scan.CopyFrom(pb.Scan(table=table, columns=columns, filter=condition))
    return plan


def plan_hints(
    *, max_partitions: int | None = None, target_bytes: int | None = None, lease: float | None = None
) -> Any:
    """The `Hints` of a plan. Raises `ConfigError` for what cannot be."""
    return pb.Hints(
        max_partitions=_from_one_on("max_partitions", max_partitions, 1 << 31),
        target_bytes=_from_one_on("target_bytes", target_bytes, 1 << 62),
        lease_ms=_lease_ms(lease),
    )


def _from_one_on(name: str, value: int | None, most: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name} is a number from 1 on, not {value!r}")
    return value


def _encodings(named: Sequence[str] | None) -> tuple[str, ...] | None:
    if named is None:
        return None
    wrong = named if isinstance(named, str) else next((one for one in named if one not in ENCODINGS), None)
    if wrong is not None:
        raise ConfigError(f"encodings are a list of {', '.join(sorted(ENCODINGS))}, not {wrong!r}")
    return tuple(named)


def _lease_ms(lease: float | None) -> int:
    if lease is None:
        return 0
    if not isinstance(lease, int | float) or not 1e-3 <= lease <= 1e9:
        raise ConfigError(f"lease is for how many seconds files are kept, not {lease!r}")
    return int(lease * 1e3)


def source_of(url: str, token: str | Secret | None, tls: Tls | None) -> ReadSource:
    """How the cluster is reached."""
    return ReadSource(url=url, token=Secret(token) if isinstance(token, str) else token, tls=tls)


_CONSISTENCIES = {"snapshot": pb.CONSISTENCY_SNAPSHOT, "decided": pb.CONSISTENCY_DECIDED}

__all__ = ["ReadJob", "ReadPartition", "read_job", "rows_of", "schema_of_read"]
