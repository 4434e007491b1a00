"""The planner's cluster: tables in partitions run leg by leg on a real engine (`ballista_py.testing`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.sql.plan import BroadcastLimits
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.testing.sql.tables import fill_with_small_tables

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
TPCH_APART = {
    "lineitem": (["l_returnflag", "l_linestatus"], None),
    "orders": ("year(o_orderdate)", None),
    "customer": ("c_mktsegment", None),
    "part": ("bucket(5, p_brand)", None),
    "partsupp": ("bucket(3, ps_suppkey)", "supplier"),
    "supplier": ("bucket(3, s_suppkey)", "supplier"),
    "nation": ("n_regionkey", None),
    "region": None,
}
TPCH_ONE_BUCKET = {
    name: (f"bucket(1, {keys[0].partition(', ')[2]}", keys[1]) if keys else None
    for name, keys in TPCH_KEYS.items()
}
WHENEVER_POSSIBLE = BroadcastLimits(worth_bytes=-(1 << 60))
# The keys of every table; the number of executors, the replicas, when small relations are broadcast.
TPCH_LAYOUTS = {
    "together": (TPCH_KEYS, (3, 1, None)),
    "together, replicated twice": (TPCH_KEYS, (5, 2, BroadcastLimits())),
    "apart": (TPCH_APART, (2, 1, WHENEVER_POSSIBLE)),
    "one bucket": (TPCH_ONE_BUCKET, (2, 1, BroadcastLimits())),
    "one executor": (TPCH_KEYS, (1, 1, None)),
}


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
def tpch_rows(tpch_folder: Path) -> dict[str, pa.Table]:
    return {name: plain(pq.read_table(tpch_folder / f"{name}.parquet")) for name in TPCH_KEYS}


@pytest.fixture(scope="session")
def tpch(tpch_rows: dict[str, pa.Table]) -> Iterator[Callable[[str], InProcessCluster]]:
    """TPC-H in a layout; the layouts are on different numbers of executors."""
    made: dict[str, InProcessCluster] = {}

    def cut(layout: str) -> InProcessCluster:
        if layout not in made:
            keys, shape = TPCH_LAYOUTS[layout]
            made[layout] = InProcessCluster(*shape)
            for name, rows in tpch_rows.items():
                made[layout].add(name, rows, *(keys[name] or (None, None)))
        return made[layout]

    yield cut
    for cluster in made.values():
        cluster.close()


@pytest.fixture(scope="session")
def make_cluster() -> type[InProcessCluster]:
    return InProcessCluster


@pytest.fixture(scope="session")
def small() -> Iterator[InProcessCluster]:
    with InProcessCluster() as cluster:
        yield fill_with_small_tables(cluster)
