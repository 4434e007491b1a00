"""An in-process cluster for the planner: DuckDB per leg over exactly that leg's rows, DuckDB for the merge."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.engines.answers import difference
from ballista_py.planning.legs import legs_of
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.partition_spec import PartitionSpec
from ballista_py.planning.query_plan import Catalog, Leg, QueryPlan
from ballista_py.planning.sql import plan_query
from ballista_py.planning.table import TableSpec

TPCH_KEYS = {
    "lineitem": ("bucket(16, l_orderkey)", "orderkey"),
    "orders": ("bucket(16, o_orderkey)", "orderkey"),
    "customer": ("bucket(8, c_custkey)", None),
    "part": ("bucket(8, p_partkey)", None),
    "partsupp": ("bucket(8, ps_partkey)", None),
    "supplier": ("bucket(4, s_suppkey)", None),
    "nation": None,
    "region": None,
}


def connection() -> duckdb.DuckDBPyConnection:
    """An empty DuckDB with a single thread, so that what it does is repeatable."""
    made = duckdb.connect()
    made.execute("set threads = 1")
    return made


def run(
    on: duckdb.DuckDBPyConnection, sql: str, relations: Mapping[str, pa.Table | pa.RecordBatchReader]
) -> pa.Table:
    """The result of `sql` over exactly these relations."""
    for name, relation in relations.items():
        on.register(name, relation)
    try:
        return on.sql(sql).to_arrow_table()
    finally:
        for name in relations:
            on.unregister(name)


class Cluster:
    """Tables cut into partitions that `executors` own, beside the same tables whole in one DuckDB."""

    def __init__(self, executors: int = 3) -> None:
        self.owners = [(f"e{n}", f"i{n}") for n in range(1, executors + 1)]
        self.whole, self._leg, self._merge = connection(), connection(), connection()
        self._parts: dict[tuple[str, tuple[int, ...]], pa.Table] = {}
        self.tables: dict[str, TableSpec] = {}
        self.maps: dict[str, PartitionMap] = {}
        self.rows: dict[str, pa.Table] = {}
        self.partition_of: dict[str, np.ndarray] = {}

    def add(
        self,
        name: str,
        rows: pa.Table,
        partition_by: Sequence[str] | str | None,
        group: str | None = None,
        seed: int = 0,
    ) -> None:
        """Create a table; `partition_by` None replicates it. Equal values have equal owners for one seed."""
        if isinstance(partition_by, str):
            partition_by = [partition_by]
        spec = PartitionSpec.parse(partition_by, rows.schema) if partition_by else PartitionSpec.whole()
        batch = rows.combine_chunks().to_batches()
        batch = batch[0] if batch else pa.RecordBatch.from_pylist([], rows.schema)
        keys = spec.evaluate(batch)
        values = spec.static_values()
        if values is None:
            values = sorted(set(zip(*(key.to_pylist() for key in keys), strict=True)), key=repr)
        pmap = PartitionMap.build(name, spec, values)
        owners = [
            random.Random(zlib.crc32(repr((seed, value)).encode())).randrange(len(self.owners)) for value in values
        ]
        owner_index = np.array(owners, np.int32).reshape(-1, 1)
        self.maps[name] = attrs.evolve(pmap, executors=tuple(self.owners), owner_index=owner_index, revision=7)
        self.tables[name] = TableSpec(
            name=name,
            schema=rows.schema,
            spec=spec,
            distribution="partitioned" if partition_by else "replicated",
            group=group,
        )
        self.rows[name] = pa.Table.from_batches([batch])
        self.partition_of[name] = (
            pmap.lookup(keys, batch.num_rows) if partition_by else np.zeros(batch.num_rows, np.int32)
        )
        self.whole.register(name, self.rows[name])

    @property
    def catalog(self) -> Catalog:
        return Catalog(tables=self.tables, maps=self.maps)

    def plan(self, sql: str) -> QueryPlan:
        return plan_query(sql, self.catalog, self.schema(sql))

    def schema(self, sql: str) -> pa.Schema:
        return self.whole.sql(sql).to_arrow_table().schema

    def legs(self, plan: QueryPlan) -> tuple[Leg, ...]:
        return legs_of(plan, self.catalog, self.owners)

    def part(self, table: str, partitions: tuple[int, ...]) -> pa.Table:
        """The rows of some partitions of a table."""
        if (table, partitions) not in self._parts:
            kept = np.isin(self.partition_of[table], np.array(partitions, np.int32))
            self._parts[table, partitions] = self.rows[table].filter(pa.array(kept))
        return self._parts[table, partitions]

    def run_leg(self, leg: Leg) -> pa.Table:
        return run(self._leg, leg.sql, {t.table: self.part(t.table, t.partitions) for t in leg.tables})

    def empty(self, sql: str) -> pa.Table:
        return run(self._leg, sql, {name: rows.slice(0, 0) for name, rows in self.rows.items()})

    def execute(self, plan: QueryPlan) -> pa.Table:
        legs = self.legs(plan)
        results: dict[str, list[pa.Table]] = {fragment.name: [] for fragment in plan.fragments}
        for leg in legs:
            results[leg.fragment].append(self.run_leg(leg))
        relations: Mapping[str, pa.Table] = {
            fragment.name: pa.concat_tables(results[fragment.name] or [self.empty(fragment.sql)])
            for fragment in plan.fragments
        }
        if plan.merge_sql is None:
            (only,) = relations.values()
            return only
        # A relation that is read once is a stream in the product, so here too.
        streams = {
            fragment.name: relations[fragment.name] if fragment.reused else relations[fragment.name].to_reader()
            for fragment in plan.fragments
        }
        return run(self._merge, plan.merge_sql, streams)

    def check(self, sql: str, ordered: bool = False) -> QueryPlan:
        """Assert that the cluster answers as one node does; returns the plan."""
        expected = self.whole.sql(sql).to_arrow_table()
        plan = plan_query(sql, self.catalog, expected.schema)
        shown = f"\n{sql}\n{[(f.name, f.sql) for f in plan.fragments]}\nmerge: {plan.merge_sql}\n{plan.notes}"
        try:
            actual = self.execute(plan)
        except duckdb.Error as error:
            raise AssertionError(f"{error}{shown}") from error
        wrong = difference(actual, expected, ordered=ordered)
        assert wrong is None, f"{wrong}{shown}"
        return plan


@pytest.fixture(scope="session")
def tpch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H at scale 0.01 as Parquet."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    if not program.exists():
        found = shutil.which("tpchgen-cli")
        if found is None:
            pytest.skip("tpchgen-cli is not installed")
        program = Path(found)
    folder = tmp_path_factory.mktemp("tpch")
    subprocess.run(
        [str(program), "parquet", "-s", "0.01", "--output-dir", str(folder)], check=True, capture_output=True
    )
    return folder


def plain(table: pa.Table) -> pa.Table:
    """The table with string columns as plain strings."""
    fields = [
        pa.field(f.name, pa.string(), f.nullable) if pa.types.is_string_view(f.type) else f for f in table.schema
    ]
    return table.cast(pa.schema(fields))


@pytest.fixture(scope="session")
def tpch(tpch_folder: Path) -> Cluster:
    cluster = Cluster()
    for name, keys in TPCH_KEYS.items():
        rows = plain(pq.read_table(tpch_folder / f"{name}.parquet"))
        cluster.add(name, rows, keys[0] if keys else None, keys[1] if keys else None)
    return cluster


@pytest.fixture(scope="session")
def make_cluster() -> type[Cluster]:
    return Cluster


def _pick(rng: random.Random, values: Sequence[object], null: float, count: int) -> list[object]:
    return [None if rng.random() < null else rng.choice(values) for _ in range(count)]


def small_tables(cluster: Cluster, seed: int = 1, rows: int = 60) -> Cluster:
    """Small tables full of what goes wrong: NULL keys, NaN, -0.0, ties, empty partitions, an empty table."""
    rng = random.Random(seed)
    numbers, words = list(range(-3, 12)), ["", "a", "A", "b", "ab", "é", "null", "a'b", "zz"]
    doubles = [0.0, -0.0, 1.5, -2.25, 1e9, 0.1, float("nan"), 3.0]
    decimals = [Decimal(f"{n}.{n % 10}5") for n in range(12)] + [Decimal("-7.50"), Decimal("9999999999.99")]
    dates = [dt.date(2019, 12, 30) + dt.timedelta(days=11 * n) for n in range(40)]
    stamps = [dt.datetime(2020, 1, 1, 10, 0, 0, 5) + dt.timedelta(hours=31 * n) for n in range(40)]

    def columns(count: int) -> dict[str, pa.Array]:
        return {
            "k": pa.array(_pick(rng, numbers, 0.15, count), pa.int32()),
            "a": pa.array(_pick(rng, range(5), 0.2, count), pa.int64()),
            "b": pa.array(_pick(rng, range(-2, 3), 0.2, count), pa.int32()),
            "s": pa.array(_pick(rng, words, 0.2, count), pa.string()),
            "d": pa.array(_pick(rng, decimals, 0.2, count), pa.decimal128(12, 2)),
            "x": pa.array(_pick(rng, doubles, 0.2, count), pa.float64()),
            "dt": pa.array(_pick(rng, dates, 0.2, count), pa.date32()),
            "ts": pa.array(_pick(rng, stamps, 0.2, count), pa.timestamp("us")),
            "bo": pa.array(_pick(rng, [True, False], 0.3, count), pa.bool_()),
            "id": pa.array(range(count), pa.int64()),
        }

    def keyed(count: int, name: str, kind: pa.DataType) -> pa.Table:
        table = pa.table(columns(count))
        return table.set_column(0, name, table.column(0).cast(kind))

    cluster.add("t", pa.table(columns(rows)), "bucket(5, k)", "g", seed)
    cluster.add("u", keyed(rows // 2, "k", pa.int64()), "bucket(5, k)", "g", seed)
    cluster.add("v", pa.table(columns(rows // 2)), "bucket(3, s)")
    cluster.add("w", pa.table(columns(rows // 2)), "s")
    cluster.add("y", pa.table(columns(rows // 2)), "year(dt)")
    cluster.add("z", pa.table(columns(rows)), ["bucket(2, a)", "bucket(3, b)"], "h", seed)
    cluster.add("z2", pa.table(columns(rows // 2)), ["bucket(2, a)", "bucket(3, b)"], "h", seed)
    cluster.add("e", pa.table(columns(0)), "bucket(5, k)", "g", seed)
    cluster.add("r", pa.table(columns(7)), None)
    cluster.add("r2", pa.table(columns(5)), None)
    return cluster


@pytest.fixture(scope="session")
def small() -> Cluster:
    return small_tables(Cluster())


@pytest.fixture(scope="session")
def fill_small() -> Any:
    return small_tables
