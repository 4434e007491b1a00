"""How long a plan takes: beside sqlglot's own parse and qualify, and from 16 partitions to 10,000 on 100 executors.
Then a point lookup through real processes beside a bare Flight call and a bare DuckDB.

    python benches/planner.py [--rounds 7] [--lookups 500]

All 22 TPC-H queries. A plan is everything from the text to the legs but the engine's bind.
"""

from __future__ import annotations

import argparse
import statistics
import time

import attrs
import duckdb
import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot.optimizer.qualify import qualify

import _point_lookup
from _measure import claim, interleaved
from ballista_py.coordinator.queries.plan_cache import Plans
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.node.demo.tpch_data import TABLES
from ballista_py.node.demo.tpch_queries import QUERIES
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.legs import legs_of
from ballista_py.sql.plan import BroadcastLimits, Catalog
from ballista_py.sql.planner import plan_query

INT, NUMBER, TEXT, DATE = pa.int64(), pa.decimal128(15, 2), pa.string(), pa.date32()
PREFIXED = {"supplier": "s", "customer": "c", "part": "p", "partsupp": "ps", "orders": "o", "lineitem": "l"}
COLUMNS = {
    "region": "r_regionkey:i r_name:t r_comment:t",
    "nation": "n_nationkey:i n_name:t n_regionkey:i n_comment:t",
    "supplier": "s_suppkey:i s_name:t s_address:t s_nationkey:i s_phone:t s_acctbal:n s_comment:t",
    "customer": "c_custkey:i c_name:t c_address:t c_nationkey:i c_phone:t c_acctbal:n c_mktsegment:t c_comment:t",
    "part": "p_partkey:i p_name:t p_mfgr:t p_brand:t p_type:t p_size:i p_container:t p_retailprice:n p_comment:t",
    "partsupp": "ps_partkey:i ps_suppkey:i ps_availqty:i ps_supplycost:n ps_comment:t",
    "orders": "o_orderkey:i o_custkey:i o_orderstatus:t o_totalprice:n o_orderdate:d o_orderpriority:t o_clerk:t "
    "o_shippriority:i o_comment:t",
    "lineitem": "l_orderkey:i l_partkey:i l_suppkey:i l_linenumber:i l_quantity:n l_extendedprice:n l_discount:n "
    "l_tax:n l_returnflag:t l_linestatus:t l_shipdate:d l_commitdate:d l_receiptdate:d l_shipinstruct:t l_shipmode:t "
    "l_comment:t",
}
ROWS = {"lineitem": 6e6, "orders": 1.5e6, "partsupp": 8e5, "part": 2e5, "customer": 1.5e5, "supplier": 1e4}


def schema_of(table: str) -> pa.Schema:
    kinds = {"i": INT, "n": NUMBER, "t": TEXT, "d": DATE}
    pairs = [word.split(":") for word in COLUMNS[table].split()]
    return pa.schema([pa.field(name, kinds[kind], nullable=False) for name, kind in pairs])


def catalog_of(partitions: int, executors: int) -> tuple[Catalog, list[tuple[str, str]]]:
    """TPC-H with every table in so many buckets, owned in turn."""
    owners = [(f"e{n}", "i") for n in range(executors)]
    tables, maps = {}, {}
    for name, options in TABLES.items():
        schema = schema_of(name)
        keys = [str(key).split("(")[1].split(", ")[1].rstrip(")") for key in options.get("partition_by", ())]
        spec = PartitionSpec.parse([f"bucket({partitions}, {key})" for key in keys], schema)
        spec = spec if keys else PartitionSpec.whole()
        values = spec.static_values() or [()]
        built = PartitionMap.build(
            name, spec, values, weights=np.full(len(values), ROWS.get(name, 25) / len(values))
        )
        owner = (np.arange(len(values), dtype=np.int32) % executors).reshape(-1, 1)
        maps[name] = attrs.evolve(built, executors=tuple(owners), owner_index=owner, revision=1)
        group = str(options.get("colocate_with", name)) if keys else None
        distribution = "partitioned" if keys else "replicated"
        tables[name] = TableSpec(name=name, schema=schema, spec=spec, distribution=distribution, group=group)
    return Catalog(tables=tables, maps=maps, broadcasts=BroadcastLimits()), owners


def outputs() -> dict[str, pa.Schema]:
    """What the engine says of each query."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.register(table, schema_of(table).empty_table())
        return {name: connection.sql(sql).to_arrow_table().schema for name, sql in QUERIES.items()}


REPEATED = {
    "a lookup": "select o_totalprice from orders where o_orderkey = {}",
    "a join in place": "select o_orderpriority, sum(l_extendedprice) from orders join lineitem "
    "on l_orderkey = o_orderkey where o_orderkey = {} group by 1",
    "a list, a limit": "select o_totalprice from orders where o_orderkey in ({}, 7, 8) limit 10",
    "a range": "select o_totalprice from orders where o_orderkey between {} and 9000000",
}


def repeats(catalog: Catalog, times: int = 300) -> None:
    """Print how long a scheduler plans statements that differ in their constants alone, by processor time."""
    engine = DuckDBEngine()
    for name, text in REPEATED.items():
        plans, took = Plans(engine, SystemRuntime()), []
        for number in range(times):
            statement = text.format(100 + 13 * number)
            start = time.thread_time()
            plans.plan(statement, catalog)
            took.append(time.thread_time() - start)
        print(
            f"{name}, again and again: p50 {statistics.median(took) * 1e3:.2f} ms, the first {took[0] * 1e3:.2f} ms"
        )
    engine.close()


def main() -> None:
    """Print the medians of each query and how the claims stand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lookups", type=int, default=500)
    options = parser.parse_args()
    rounds = options.rounds
    names = {table: {column.name: "unknown" for column in schema_of(table)} for table in TABLES}
    described = outputs()
    few, many = catalog_of(16, 2), catalog_of(10_000, 100)

    def planned(name: str, site: tuple[Catalog, list[tuple[str, str]]]) -> None:
        legs_of(plan_query(QUERIES[name], site[0], described[name]), site[0], site[1])

    beside, growth = [], []
    print("query  qualify ms  plan ms, 16 on 2  plan ms, 10,000 on 100")
    for name, sql in QUERIES.items():
        found = interleaved(
            {
                "qualify": lambda sql=sql: qualify(
                    sqlglot.parse_one(sql, dialect="duckdb"), schema=names, dialect="duckdb"
                ),
                "few": lambda name=name: planned(name, few),
                "many": lambda name=name: planned(name, many),
            },
            rounds,
        )
        beside.append(found["few"] / found["qualify"])
        growth.append(found["many"] / found["few"])
        print(f"{name:<7}{found['qualify'] * 1e3:>10.2f}{found['few'] * 1e3:>18.2f}{found['many'] * 1e3:>24.2f}")
    times, more = statistics.median(beside), statistics.median(growth)
    claim("a plan takes at most 2x parse and qualify at the median", times <= 2, f"{times:.2f}x")
    claim("10,000 partitions on 100 executors take at most 2x of 16 on 2", more <= 2, f"{more:.2f}x")
    repeats(few[0])
    _point_lookup.run(options.lookups)


if __name__ == "__main__":
    main()
