"""The planner's cluster: tables in partitions run leg by leg on a real engine (`ballista_py.testing`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.testing.single_node import InProcessCluster
from ballista_py.testing.sql_tables import fill_with_small_tables

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
def tpch(tpch_folder: Path) -> Iterator[InProcessCluster]:
    with InProcessCluster() as cluster:
        for name, keys in TPCH_KEYS.items():
            rows = plain(pq.read_table(tpch_folder / f"{name}.parquet"))
            cluster.add(name, rows, keys[0] if keys else None, keys[1] if keys else None)
        yield cluster


@pytest.fixture(scope="session")
def make_cluster() -> type[InProcessCluster]:
    return InProcessCluster


@pytest.fixture(scope="session")
def small() -> Iterator[InProcessCluster]:
    with InProcessCluster() as cluster:
        yield fill_with_small_tables(cluster)
