"""How the demo and the benches partition TPC-H."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from ballista_py.node.local_cluster import LocalCluster

BUCKETS = 16


@frozen
class Layout:
    """One table: the column of its bucket key, or None if replicated, and the table it is co-located with."""

    table: str
    key: str | None
    colocate_with: str | None = None


LAYOUTS = (
    Layout("orders", "o_orderkey"),
    Layout("lineitem", "l_orderkey", "orders"),
    Layout("customer", "c_custkey"),
    Layout("part", "p_partkey"),
    Layout("partsupp", "ps_partkey", "part"),
    Layout("supplier", "s_suppkey"),
    Layout("nation", None),
    Layout("region", None),
)


def create_tpch_tables(cluster: LocalCluster, data: Path, advance: Callable[[int, int], None] | None = None) -> None:
    """Create the eight tables from the Parquet files in `data`; `advance(done, total)` counts tables."""
    for number, layout in enumerate(LAYOUTS):
        if advance is not None:
            advance(number, len(LAYOUTS))
        spread: dict[str, Any] = {"distribution": "replicated"}
        if layout.key is not None:
            spread = {"partition_by": [f"bucket({BUCKETS}, {layout.key})"], "colocate_with": layout.colocate_with}
        cluster.create_table(layout.table, source=str(data / f"{layout.table}.parquet"), wait=False, **spread)
    if advance is not None:
        advance(len(LAYOUTS), len(LAYOUTS))
    cluster.wait_until_loaded()
