"""TPC-DS: the data, the texts of the queries, and three ways to cut the tables.

The generator's wheels live in an environment of their own (`scripts/bootstrap.py dev`). Without it the tests are
skipped; with BALLISTA_REQUIRE_SERVERS=1 that is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ballista_py.testing.sql.single_node import InProcessCluster

Layout = Mapping[str, tuple[str, str | None]]

BY_ITEM = {
    "store_sales": "ss_item_sk", "store_returns": "sr_item_sk", "catalog_sales": "cs_item_sk",
    "catalog_returns": "cr_item_sk", "web_sales": "ws_item_sk", "web_returns": "wr_item_sk",
    "inventory": "inv_item_sk", "item": "i_item_sk",
}  # fmt: skip
BY_CUSTOMER = {
    "store_sales": "ss_customer_sk", "store_returns": "sr_customer_sk", "catalog_sales": "cs_bill_customer_sk",
    "web_sales": "ws_bill_customer_sk", "customer": "c_customer_sk",
}  # fmt: skip
LAYOUTS: dict[str, Layout] = {
    "together": {
        **{table: (f"bucket(8, {key})", "item") for table, key in BY_ITEM.items()},
        "customer": ("bucket(4, c_customer_sk)", None),
        "customer_address": ("bucket(4, ca_address_sk)", None),
        "customer_demographics": ("bucket(4, cd_demo_sk)", None),
    },
    "apart": {
        **{table: (f"bucket(5, {key})", "customer") for table, key in BY_CUSTOMER.items()},
        "catalog_returns": ("bucket(7, cr_order_number)", None),
        "web_returns": ("bucket(3, wr_order_number)", None),
        "inventory": ("bucket(4, inv_warehouse_sk)", None),
        "item": ("i_category", None),
        "date_dim": ("d_year", None),
        "customer_address": ("ca_state", None),
        "customer_demographics": ("bucket(2, cd_demo_sk)", None),
    },
    "one bucket": {
        **{table: (f"bucket(1, {key})", "item") for table, key in BY_ITEM.items()},
        "customer": ("bucket(1, c_customer_sk)", None),
    },
}
QUERIES = tuple(f"q{number:02}" for number in range(1, 100))
_PYTHON = Path(sys.executable).parent.parent / "tpcds" / "bin" / "python"


@pytest.fixture(scope="session")
def tpcds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Path]:
    """The folder with the data of a scale."""
    if not _PYTHON.exists():
        reason = "the TPC-DS generator is not installed: python3 scripts/bootstrap.py dev"
        pytest.fail(reason) if os.environ.get("BALLISTA_REQUIRE_SERVERS") == "1" else pytest.skip(reason)
    base = tmp_path_factory.mktemp("tpcds")

    @cache
    def made(scale: float) -> Path:
        folder = base / f"{scale:g}"
        script = str(Path(__file__).with_name("make_data.py"))
        subprocess.run([str(_PYTHON), script, str(scale), str(folder)], check=True, capture_output=True)
        return folder

    return made


@pytest.fixture(scope="session")
def layouts() -> dict[str, Layout]:
    """How each layout cuts the tables: their key and their group."""
    return LAYOUTS


@pytest.fixture(scope="session")
def texts(tpcds: Callable[[float], Path]) -> dict[str, str]:
    """The queries by name."""
    return json.loads((tpcds(0.01) / "queries.json").read_text())


@pytest.fixture(scope="session")
def cut(tpcds: Callable[[float], Path]) -> Iterator[Callable[..., InProcessCluster]]:
    """Clusters of one process with the data of a scale in a layout."""
    made: list[InProcessCluster] = []

    @cache
    def cluster(layout: str, scale: float, executors: int, replicas: int) -> InProcessCluster:
        found = InProcessCluster(executors, replicas)
        made.append(found)
        for file in sorted(tpcds(scale).glob("*.parquet")):
            keys, group = LAYOUTS[layout].get(file.stem, (None, None))
            found.add(file.stem, pq.read_table(file), keys, group)
        return found

    yield cluster
    for one in made:
        one.close()
