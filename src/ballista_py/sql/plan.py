"""The values that say how one query runs: fragments over partitions, the legs that cover them, the merge."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from attrs import Factory, field, frozen

from ballista_py.errors import Unsupported
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.scans.task import ScanTask
from ballista_py.sql.estimate.statistics import TEXT_BYTES, Numbers, Spread, TableSizes, fixed_bytes

BROADCAST_BYTES = 32 << 20
WORTH_BYTES = 1 << 20
MAX_KNOWN = 4_096


@frozen(kw_only=True)
class BroadcastLimits:
    """When a small relation may be sent to the legs of a large one instead of bringing the large one to the merge.

    `max_bytes` is what all broadcasts of one block are estimated to weigh at most, and what a single one may really
    weigh; `worth_bytes` is the estimated saving from which on the extra round trip is worth it.
    """

    max_bytes: int = BROADCAST_BYTES
    worth_bytes: int = WORTH_BYTES


@frozen(kw_only=True)
class Catalog:
    """What the planner knows of the tables at one instant. `maps` holds the committed map of every table.

    `sizes` are for estimates; where a table has none, the weights of its map are taken for rows. Without `broadcasts`
    nothing is broadcast. `left_out` says of tables that exist and can be used by no statement, why. `barriers` are
    queries that give what the client sees of a table of that name, of which he does not see all (`sql.barriers`). One
    `of_client` is what one client sees. `scanned` are the tables that are snapshots of files in a lake: no executor
    has a part of them, and what is read of one is in the value here.
    """

    tables: Mapping[str, TableSpec]
    maps: Mapping[str, PartitionMap]
    broadcasts: BroadcastLimits | None = None
    sizes: Mapping[str, TableSizes] = Factory(dict)
    left_out: Mapping[str, str] = Factory(dict)
    barriers: Mapping[str, str] = Factory(dict)
    of_client: bool = False
    scanned: Mapping[str, Any] = Factory(dict)
    known: dict[Any, Any] = field(factory=dict, eq=False, repr=False, init=False)  # what follows from the rest

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of every table."""
        found: Mapping[str, pa.Schema] = self.once("schemas", "", self._schemas)
        return found

    def _schemas(self) -> Mapping[str, pa.Schema]:
        return {name: table.schema for name, table in self.tables.items()}

    def rows(self, table: str) -> Numbers:
        """The estimated rows of each partition of a table."""
        found = self.sizes.get(table)
        return self.maps[table].weights if found is None else found.rows

    def total_rows(self, table: str) -> float:
        """The estimated rows of a table."""
        return float(self.once("rows", table, lambda: self.rows(table).sum()))

    def spread(self, table: str, column: str) -> Spread | None:
        """How the values of a column lie, if anybody said."""
        found = self.sizes.get(table)
        return None if found is None else found.spreads.get(column)

    def column_bytes(self, table: str) -> Mapping[str, float]:
        """The estimated bytes of one value of each column of a table."""
        found: Mapping[str, float] = self.once("bytes", table, lambda: self._column_bytes(table))
        return found

    def _column_bytes(self, table: str) -> Mapping[str, float]:
        schema, sizes = self.tables[table].schema, self.sizes.get(table)
        loose = float(TEXT_BYTES) if sizes is None else sizes.text_bytes(schema)
        return {column.name: fixed_bytes(column.type) or loose for column in schema}

    def once(self, what: str, of: Any, make: Callable[[], Any]) -> Any:
        """What follows from the catalog alone, made at most once a thread and kept with it, within limits."""
        found = self.known.get((what, of))
        if found is None:
            found = make()
            if len(self.known) < MAX_KNOWN:
                self.known[what, of] = found
        return found


@frozen(kw_only=True)
class FragmentTable:
    """The part of one table that a fragment reads.

    `partitions` are the ids that its legs must cover between them, each in exactly one leg; for a replicated
    table (`whole`) every leg reads all of it, and `partitions` is its one partition.
    """

    table: str
    partitions: tuple[int, ...]
    total: int
    whole: bool = False
    pruned_by: str = ""


@frozen(kw_only=True)
class Fragment:
    """SQL in the engine's dialect that runs over partitions where they are; `name` is its relation at the merge.

    Base tables appear in `sql` under their own (unqualified) names. When several partitioned tables appear, they
    are of one co-location group, and partitions of equal value belong together (`legs_of` puts them in one leg).
    `uses` are the broadcasts that `sql` reads beside its tables. `reused` says that the merge reads the relation more
    than once, so that a stream must be kept first; `merged` is False for one that only broadcasts read.
    `estimated_bytes` is what its legs are guessed to give together. A fragment
    may have no legs (everything was pruned): its relation is then empty, with the columns that `sql` has over
    empty tables.
    """

    name: str
    sql: str
    tables: tuple[FragmentTable, ...]
    reused: bool = False
    uses: tuple[str, ...] = ()
    merged: bool = True
    estimated_bytes: int = 0


@frozen(kw_only=True)
class Broadcast:
    """A small relation that is computed first and then sent along with legs.

    `sql` reads `fragments` and the broadcasts before it by their names; `estimated_bytes` made the planner choose it.
    A `plain` one is all that the legs of its one fragment give, as they give it: nothing is left to compute.
    """

    name: str
    sql: str
    fragments: tuple[str, ...]
    uses: tuple[str, ...] = ()
    estimated_bytes: int = 0
    plain: bool = False


@frozen(kw_only=True)
class QueryPlan:
    """One query: fragments, then `merge_sql` over their names.

    `merge_sql` is None when the batches of the only fragment already are the answer: those of several legs in any
    order, those of a single leg in theirs. `broadcasts` are computed first, in their order; `merge_uses` are those that
    `merge_sql` reads as well. `moment_ms` is the moment of the statement if the plan depends on it. `output` is the
    schema that a single node would give. `notes` say in words what was not pushed down, and why. A `guarded` one reads
    a table behind a barrier: how it runs is not told, and nobody but legs reads for it.
    """

    sql: str
    output: pa.Schema
    fragments: tuple[Fragment, ...]
    merge_sql: str | None
    notes: tuple[str, ...] = ()
    broadcasts: tuple[Broadcast, ...] = ()
    merge_uses: tuple[str, ...] = ()
    moment_ms: int | None = None
    guarded: bool = False

    @property
    def repeated(self) -> Mapping[str, str]:
        """The plain broadcasts that an earlier one is equal to, by name, with that one."""
        first: dict[tuple[str, ...], str] = {}
        plain = (one for one in self.broadcasts if one.plain)
        found = {one.name: first.setdefault(one.fragments, one.name) for one in plain}
        return {name: other for name, other in found.items() if name != other}

    @property
    def merge_bytes(self) -> int:
        """What the merge is guessed to read; 0 if there is none, because streams pass through then."""
        return sum(f.estimated_bytes for f in self.fragments if f.merged) if self.merge_sql is not None else 0


def require_told(plan: QueryPlan) -> QueryPlan:
    """The plan, if it may be told to whoever asks for it. Raises `Unsupported` for a guarded one."""
    if plan.guarded:
        raise Unsupported(
            "policies hide rows or values of a table that the statement reads: its rows are given by a query alone; "
            "it is neither explained, nor read in parts or by another engine"
        )
    return plan


@frozen(kw_only=True)
class LegTable:
    """The exact partitions of one table that one leg must read, with the epochs the planner saw.

    They are read as of `sequence` of the table's statements over several partitions; None: as they are. Of
    `at_replicas` of them the executor is no owner. `definition` and `incarnation` are those of the table which the
    statement means; earlier releases name no incarnation.
    """

    table: str
    revision: int
    partitions: tuple[int, ...]
    epochs: tuple[int, ...]
    sequence: int | None = None
    at_replicas: int = 0
    definition: int = 0
    incarnation: str = ""


@frozen(kw_only=True)
class Leg:
    """One executor's part of a fragment. It answers for exactly these partitions or raises `NotOwner`.

    `relations` are the broadcasts that `sql` reads, each as an Arrow IPC stream. What replicas give is at most
    `max_replica_lag_ms` old. `scans` are the tasks that give the rows of each table that is scanned where it lies.
    """

    fragment: str
    executor_id: str
    sql: str
    tables: tuple[LegTable, ...]
    relations: Mapping[str, bytes] = Factory(dict)
    max_replica_lag_ms: float = 0.0
    scans: Mapping[str, tuple[ScanTask, ...]] = Factory(dict)

    def to_json(self, *, shown: bool = False) -> dict[str, Any]:
        """JSON-ready values; `leg_from_json` reads them back. What is to be `shown` has no credentials of tasks."""
        return {
            **({"scans": self._scans(shown)} if self.scans else {}),
            "fragment": self.fragment,
            "executor_id": self.executor_id,
            "sql": self.sql,
            "tables": [
                {
                    "table": t.table,
                    "revision": t.revision,
                    "partitions": t.partitions,
                    "epochs": t.epochs,
                    "sequence": t.sequence,
                    "at_replicas": t.at_replicas,
                    "definition": t.definition,
                    "incarnation": t.incarnation,
                }
                for t in self.tables
            ],
            "relations": {name: b64encode(data).decode() for name, data in self.relations.items()},
            "max_replica_lag_ms": self.max_replica_lag_ms,
        }

    def _scans(self, shown: bool) -> dict[str, Any]:
        if shown:
            return {name: [_told(task) for task in tasks] for name, tasks in self.scans.items()}
        return {
            name: [b64encode(task.to_bytes(reveal=True)).decode() for task in tasks]
            for name, tasks in self.scans.items()
        }


def _told(task: ScanTask) -> dict[str, Any]:
    """What people are told of a task."""
    return {"task": task.name, "files": len(task.files), "bytes": task.cost, "columns": list(task.columns)}


@frozen(kw_only=True)
class LegProgress:
    """What a leg has given so far, how long it has taken since it was accepted, and whether that is all."""

    rows: int
    bytes: int
    took_ms: float
    ended: bool = False

    def beside(self, other: LegProgress) -> LegProgress:
        """What two legs have given together."""
        return LegProgress(
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            took_ms=max(self.took_ms, other.took_ms),
            ended=self.ended and other.ended,
        )


def leg_from_json(data: Mapping[str, Any]) -> Leg:
    """The leg that `Leg.to_json` described. Raises `InvalidData` for tasks that it did not write."""
    return Leg(
        fragment=data["fragment"],
        executor_id=data["executor_id"],
        sql=data["sql"],
        tables=tuple(
            LegTable(
                table=t["table"],
                revision=t["revision"],
                partitions=tuple(t["partitions"]),
                epochs=tuple(t["epochs"]),
                sequence=t.get("sequence"),
                at_replicas=t.get("at_replicas", 0),
                definition=t.get("definition", 0),
                incarnation=t.get("incarnation", ""),
            )
            for t in data["tables"]
        ),
        relations={name: b64decode(text) for name, text in data.get("relations", {}).items()},
        max_replica_lag_ms=data.get("max_replica_lag_ms", 0.0),
        scans={
            name: tuple(ScanTask.from_bytes(b64decode(text)) for text in tasks)
            for name, tasks in data.get("scans", {}).items()
        },
    )


def relation_bytes(rows: pa.Table) -> bytes:
    """A broadcast as `Leg.relations` carries it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
