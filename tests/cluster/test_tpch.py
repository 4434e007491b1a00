"""All 22 TPC-H queries on real processes, and TPC-DS: the tables cut in several ways, on one to five executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.node.demo.tpch_data import TABLES, generate_tpch
from ballista_py.node.demo.tpch_queries import QUERIES

pytestmark = pytest.mark.cluster
LONG = (pytest.mark.long, pytest.mark.timeout(3_000))

# The keys of partitioned tables; whoever has none is replicated. A pair names the table to be co-located with.
TOGETHER: dict[str, Any] = TABLES
APART: dict[str, Any] = {
    "region": {"distribution": "replicated"},
    "nation": {"partition_by": ["n_regionkey"]},
    "supplier": {"partition_by": ["s_nationkey"]},
    "customer": {"partition_by": ["c_mktsegment"]},
    "part": {"partition_by": ["bucket(5, p_brand)"]},
    "partsupp": {"partition_by": ["bucket(3, ps_suppkey)"]},
    "orders": {"partition_by": ["year(o_orderdate)"]},
    "lineitem": {"partition_by": ["l_returnflag", "l_linestatus"]},
}
ONE_BUCKET: dict[str, Any] = {
    "region": {"distribution": "replicated"},
    "nation": {"distribution": "replicated"},
    "supplier": {"partition_by": ["bucket(1, s_suppkey)"]},
    "customer": {"partition_by": ["bucket(1, c_custkey)"]},
    "part": {"partition_by": ["bucket(1, p_partkey)"]},
    "partsupp": {"partition_by": ["bucket(1, ps_partkey)"], "colocate_with": "part"},
    "orders": {"partition_by": ["bucket(1, o_orderkey)"]},
    "lineitem": {"partition_by": ["bucket(1, l_orderkey)"], "colocate_with": "orders"},
}
LAYOUTS = {"together": TOGETHER, "apart": APART, "one bucket": ONE_BUCKET}


@pytest.mark.parametrize("name", QUERIES)
def test_every_tpch_query_is_answered_as_by_one_node(cluster: LocalCluster, duck: Any, name: str) -> None:
    expected = duck.sql(QUERIES[name]).to_arrow_table()
    assert difference(cluster.sql(QUERIES[name]), expected) is None


def make_tables(cluster: LocalCluster, data: Path, layout: str) -> None:
    for table, options in LAYOUTS[layout].items():
        cluster.create_table(table, str(data / f"{table}.parquet"), wait=False, **options)
    cluster.wait_until_loaded()


def check_all(cluster: LocalCluster, single: Any, where: str, names: Any = QUERIES) -> None:
    with cluster.client() as client:
        for name in names:
            wrong = difference(client.sql(QUERIES[name]), single.sql(QUERIES[name]).to_arrow_table())
            assert wrong is None, f"{name} {where}: {wrong}"


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_tpch_is_right_when_tables_are_cut_by_other_columns_and_held_twice(tpch: Path, duck: Any) -> None:
    with LocalCluster(schedulers=1, executors=3, node_options={"replicas": "2"}) as cluster:
        make_tables(cluster, tpch, "apart")
        check_all(cluster, duck, "apart, on 3 executors, held twice")


def data_and_single(folder: Path, scale: float) -> tuple[Path, duckdb.DuckDBPyConnection]:
    data, single = generate_tpch(folder, scale), duckdb.connect()
    for table in TABLES:
        single.read_parquet(str(data / f"{table}.parquet")).create_view(table)
    return data, single


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    data, single = data_and_single(tmp_path_factory.mktemp("tpch-larger") / "data", 0.1)
    yield data, single
    single.close()


@pytest.mark.parametrize("replicas", [pytest.param(number, marks=LONG) for number in (1, 2)])
@pytest.mark.parametrize("layout", [pytest.param(name, marks=LONG) for name in LAYOUTS])
def test_tpch_in_every_layout_on_one_two_and_five_executors(
    layout: str, replicas: int, larger: tuple[Path, Any], tmp_path: Path
) -> None:
    data, single = larger
    state = (tmp_path / "state").as_uri()
    for executors in (2, 1, 5):
        options = {"replicas": str(replicas)}
        with LocalCluster(1, executors, state_location=state, node_options=options) as cluster:
            if executors == 2:
                make_tables(cluster, data, layout)
            cluster.wait_until_loaded()
            check_all(cluster, single, f"{layout}, on {executors} executors, held {replicas} times")


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_tpch_at_scale_1_when_tables_are_cut_by_other_columns(tmp_path: Path) -> None:
    data, single = data_and_single(tmp_path / "data", 1)
    with single, LocalCluster(schedulers=1, executors=2) as cluster:
        make_tables(cluster, data, "apart")
        check_all(cluster, single, "apart, at scale 1")
