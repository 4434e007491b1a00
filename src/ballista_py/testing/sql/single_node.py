"""Single-node equivalence: the planner's fragments run leg by leg on a real engine, beside the same query on one.

`InProcessCluster` holds tables cut into partitions with owners, and runs a plan without sockets or threads: every
leg sees exactly the rows of its partitions, the merge exactly what the legs gave. `check` compares with one engine
over the whole tables, in names, types and rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ballista_py.coordinator.writes.kept_rows import RowBudget
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, NotOwner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import seeded_chance
from ballista_py.sql.estimate.statistics import TableSizes, spreads
from ballista_py.sql.legs import legs_of
from ballista_py.sql.parse.kind import statement_kind
from ballista_py.sql.plan import BroadcastLimits, Catalog, Leg, QueryPlan
from ballista_py.sql.planner import plan_query
from ballista_py.storage.formats.column_bounds import range_of_rows
from ballista_py.testing.sql.beside_one_node import Client, check_on_cluster
from ballista_py.testing.sql.single_node_changes import check_change

_ROOM = 16
PartitionBy = str | Sequence[str] | None


def assert_single_node_equivalent(
    sql: str,
    tables: Mapping[str, pa.Table],
    partition_by: Mapping[str, PartitionBy],
    *,
    groups: Mapping[str, str] | None = None,
    executors: int = 3,
    replicas: int = 1,
    ordered: bool = False,
    primary_key: Mapping[str, Sequence[str]] | None = None,
    cluster: Client | None = None,
) -> QueryPlan | None:
    """Assert that partitioned tables answer `sql` as a single node does; returns the plan.

    `partition_by` holds the partition keys of each table; a table that it does not name is replicated. `groups`
    names the co-location group of tables. Names, types and rows must be the same, floats within 1e-9 relative,
    the order of the rows only if `ordered`.

    Of an INSERT, UPDATE, DELETE or MERGE the rows afterwards are compared, how many it counts, and what it returns;
    it has no plan. `primary_key` names the key columns of tables, for those that ask for one.

    With a `cluster`, a client or a `LocalCluster` without tables, the statement is run there, beside one DuckDB. So it
    may be any: CREATE, CREATE OR REPLACE, LIKE, ALTER, TRUNCATE, DROP and INSERT OVERWRITE need one. Which tables there
    are then, their columns, defaults and rows, what the statement gives and whether it is refused must be the same.

    Raises `AssertionError` with the plan in its text when the answers differ, and what the engine raises for a
    statement that a single node cannot run either.

    >>> rows = pa.table({"k": [1, 2, 3, 1], "v": [10, 20, None, 40]})
    >>> plan = assert_single_node_equivalent("select k, sum(v) from t group by k", {"t": rows}, {"t": "bucket(4, k)"})
    >>> plan.merge_sql is None
    True
    >>> assert_single_node_equivalent("update t set v = v + 1 where k < 3", {"t": rows}, {"t": "bucket(4, k)"})
    """
    if cluster is not None:
        check_on_cluster(cluster, sql, tables, partition_by, primary_key or {})
        return None
    with InProcessCluster(executors, replicas) as inside:
        for name, rows in tables.items():
            key = (primary_key or {}).get(name, ())
            inside.add(name, rows, partition_by.get(name), (groups or {}).get(name), primary_key=key)
        if statement_kind(sql) == "change":
            inside.check_change(sql)
            return None
        return inside.check(sql, ordered=ordered)


class InProcessCluster:
    """Tables cut into partitions that `executors` own, `replicas` times, beside the same tables whole.

    Which executor owns a partition depends on its values, the group and `seed` alone, so equal values of one group
    have equal owners. Use it as a context manager, or call `close`.

    With `max_bytes` a single node's answer above that raises `MergeTooLarge`, and the engine fails beyond sixteen
    times as much in memory and as much again on disk: for statements of which nobody knows what they will give.
    """

    def __init__(
        self,
        executors: int = 3,
        replicas: int = 1,
        broadcasts: BroadcastLimits | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.owners = [(f"e{n}", f"i{n}") for n in range(1, executors + 1)]
        self.replicas = min(replicas, executors)
        self.broadcasts = broadcasts
        self.tables: dict[str, TableSpec] = {}
        self.maps: dict[str, PartitionMap] = {}
        self.rows: dict[str, pa.Table] = {}
        self.sizes: dict[str, TableSizes] = {}
        self.shipped_bytes = 0
        self._max_bytes = max_bytes
        room = None if max_bytes is None else _ROOM * max_bytes
        self._engine = DuckDBEngine(
            threads=1, memory_limit=None if room is None else f"{room}B", max_spill_bytes=room
        )
        self._partition_of: dict[str, npt.NDArray[Any]] = {}
        self._parts: dict[tuple[str, tuple[int, ...]], pa.Table] = {}

    def __enter__(self) -> InProcessCluster:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the engine."""
        self._engine.close()

    def add(
        self,
        name: str,
        rows: pa.Table,
        partition_by: PartitionBy,
        group: str | None = None,
        seed: int = 0,
        primary_key: Sequence[str] = (),
    ) -> None:
        """Create a table; without `partition_by` it is replicated."""
        keys = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
        spec = PartitionSpec.parse(keys, rows.schema) if keys else PartitionSpec.whole()
        batch = _one_batch(rows)
        columns = spec.evaluate(batch)
        values = spec.static_values()
        if values is None:
            values = sorted(set(zip(*(column.to_pylist() for column in columns), strict=True)), key=repr)
        found = PartitionMap.build(name, spec, values).lookup(columns, batch.num_rows)
        found = found if keys else np.zeros(batch.num_rows, np.int32)
        pmap = PartitionMap.build(
            name, spec, values, weights=np.bincount(found, minlength=len(values)).astype(float)
        )
        owner_index = np.array([self._owners_of(value, seed) for value in values], np.int32)
        owner_index = owner_index.reshape(-1, self.replicas)
        self.maps[name] = attrs.evolve(pmap, executors=tuple(self.owners), owner_index=owner_index, revision=7)
        self.tables[name] = TableSpec(
            name=name,
            schema=rows.schema,
            spec=spec,
            distribution="partitioned" if keys else "replicated",
            group=group,
            primary_key=tuple(primary_key),
        )
        self._parts = {known: part for known, part in self._parts.items() if known[0] != name}
        self.rows[name] = pa.Table.from_batches([batch], rows.schema)
        self._partition_of[name] = found

    def measure(self) -> None:
        """Let the planner know what executors report: rows, bytes, and between which values columns lie."""
        for name, rows in self.rows.items():
            ranges = range_of_rows(rows)
            self.sizes[name] = TableSizes(
                rows=self.maps[name].weights.copy(),
                bytes=self.maps[name].weights * (rows.nbytes / max(1, rows.num_rows)),
                spreads=spreads([(float(rows.num_rows), ranges)]),
            )

    @property
    def catalog(self) -> Catalog:
        """What the planner knows of the tables."""
        return Catalog(tables=self.tables, maps=self.maps, broadcasts=self.broadcasts, sizes=self.sizes)

    def schema(self, sql: str) -> pa.Schema:
        """The output of a statement as one node gives it. Raises `SqlError`."""
        return self._engine.describe(sql, {name: table.schema for name, table in self.tables.items()})

    def plan(self, sql: str) -> QueryPlan:
        """How the cluster would run a statement."""
        return plan_query(sql, self.catalog, self.schema(sql))

    def legs(self, plan: QueryPlan) -> tuple[Leg, ...]:
        """The legs of a plan on these executors."""
        return legs_of(plan, self.catalog, self.owners)

    def single(self, sql: str) -> pa.Table:
        """The answer of one engine over the whole tables. Raises `MergeTooLarge` above `max_bytes`."""
        running = self._engine.query(sql, streams=self.rows)
        batches: Iterable[pa.RecordBatch] = running.batches()
        if self._max_bytes is not None:
            batches = RowBudget(self._max_bytes).counted(batches)
        return pa.Table.from_batches(batches, running.schema)

    def part(self, table: str, partitions: tuple[int, ...]) -> pa.Table:
        """The rows of some partitions of a table."""
        found = self._parts.get((table, partitions))
        if found is None:
            kept = np.isin(self._partition_of[table], np.array(partitions, np.int32))
            found = self._parts[table, partitions] = self.rows[table].filter(pa.array(kept))
        return found

    def run_leg(self, leg: Leg, broadcasts: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """What one leg gives: its fragment over its partitions and some broadcasts alone.

        Raises `NotOwner`, as an executor does, for partitions that the leg's executor does not hold.
        """
        for table in leg.tables:
            pmap = self.maps[table.table]
            held = [{name for name, _ in pmap.owners(partition)} for partition in table.partitions]
            if self.tables[table.table].distribution == "partitioned" and any(
                leg.executor_id not in h for h in held
            ):
                raise NotOwner(f"{leg.executor_id} is asked for partitions of '{table.table}' that others hold")
        parts = {table.table: self.part(table.table, table.partitions) for table in leg.tables}
        return self._run(leg.sql, {**parts, **(broadcasts or {})})

    def execute(self, plan: QueryPlan) -> pa.Table:
        """The cluster's answer. `shipped_bytes` then holds the bytes of Arrow data that its legs gave."""
        self.shipped_bytes = 0
        legs = self.legs(plan)
        sent: dict[str, pa.Table] = {}
        for broadcast in plan.broadcasts:
            read = {name: self._gathered(plan, name, legs, sent) for name in broadcast.fragments}
            if broadcast.plain:
                (sent[broadcast.name],) = read.values()
            else:
                uses = {name: sent[name] for name in broadcast.uses}
                sent[broadcast.name] = self._run(broadcast.sql, {**read, **uses})
        merged = [fragment for fragment in plan.fragments if fragment.merged]
        relations = {fragment.name: self._gathered(plan, fragment.name, legs, sent) for fragment in merged}
        if plan.merge_sql is None:
            (only,) = relations.values()
            return only.cast(plan.output)
        # A relation that is read once is a stream in the product, so here too.
        streams = {
            fragment.name: relations[fragment.name] if fragment.reused else relations[fragment.name].to_reader()
            for fragment in merged
        }
        streams.update({name: sent[name] for name in plan.merge_uses})
        return self._run(plan.merge_sql, streams).cast(plan.output)

    def check(self, sql: str, ordered: bool = False) -> QueryPlan:
        """Assert that the cluster answers as one node does; returns the plan.

        Raises `AssertionError` with the plan in its text, and what the engine raises for a statement that one node
        cannot run either.
        """
        expected = self.single(sql)
        try:
            plan = plan_query(sql, self.catalog, expected.schema)
        except BallistaError as error:
            raise AssertionError(f"it cannot be planned: {error}\n{sql}") from error
        try:
            wrong = difference(self.execute(plan), expected, ordered=ordered)
        except (BallistaError, pa.ArrowException) as error:
            wrong = f"it fails: {error}"
        assert wrong is None, f"{wrong}\n{described(sql, plan)}"
        return plan

    def check_change(self, sql: str) -> pa.Table:
        """Assert that a change does here what it does on one node; the rows of its table afterwards.

        The tables here stay as they are. Raises `AssertionError`, and what the engine raises for a change that one
        node cannot make either.
        """
        return check_change(self, self._engine, sql)

    def answer(self, sql: str) -> pa.Table:
        """The answer of the cluster to a query."""
        return self.execute(self.plan(sql))

    def partitions_of(self, table: str, rows: pa.Table) -> set[int]:
        """The partitions that there are for these rows."""
        pmap, batch = self.maps[table], _one_batch(rows)
        found = pmap.lookup(pmap.spec.evaluate(batch), batch.num_rows)
        return {0} if self.tables[table].distribution != "partitioned" else {int(p) for p in found if p >= 0}

    def _run(self, sql: str, relations: Mapping[str, pa.Table | pa.RecordBatchReader]) -> pa.Table:
        running = self._engine.query(sql, streams=relations)
        return pa.Table.from_batches(running.batches(), running.schema)

    def _gathered(self, plan: QueryPlan, name: str, legs: Sequence[Leg], sent: Mapping[str, pa.Table]) -> pa.Table:
        """What all legs of a fragment give; the broadcasts that they read are counted as shipped to each."""
        (fragment,) = (fragment for fragment in plan.fragments if fragment.name == name)
        own = {one: sent[one] for one in fragment.uses}
        parts = [self.run_leg(leg, own) for leg in legs if leg.fragment == name]
        self.shipped_bytes += sum(part.nbytes for part in (*parts, *(list(own.values()) * len(parts))))
        if parts:
            return pa.concat_tables(parts)
        schemas = {table: spec.schema for table, spec in self.tables.items()}
        schemas.update({one: rows.schema for one, rows in own.items()})
        return self._engine.describe(fragment.sql, schemas).empty_table()

    def _owners_of(self, value: tuple[Any, ...], seed: int) -> list[int]:
        chance = seeded_chance(zlib.crc32(repr((seed, value)).encode()))
        return chance.sample(range(len(self.owners)), self.replicas)


def described(sql: str, plan: QueryPlan) -> str:
    """A statement and its plan, for the text of a failure."""
    fragments: Iterable[str] = (f"{fragment.name}: {fragment.sql}" for fragment in plan.fragments)
    return "\n".join((sql, *fragments, f"merge: {plan.merge_sql}", *plan.notes))


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
