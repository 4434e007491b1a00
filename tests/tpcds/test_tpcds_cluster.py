"""TPC-DS at scale 0.1 through real processes: all 99 queries, cut in three ways, on one, two and five executors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3_000)]


@pytest.mark.parametrize("layout", ["together", "apart", "one bucket"])
def test_every_query_is_answered_as_by_one_node(
    tpcds: Any, texts: dict[str, str], layouts: Any, layout: str, tmp_path: Path
) -> None:
    folder, wrong, state = tpcds(0.1), {}, (tmp_path / "state").as_uri()
    with duckdb.connect() as single:
        for file in sorted(folder.glob("*.parquet")):
            single.read_parquet(str(file)).create_view(file.stem)
        for executors, replicas in ((2, 1), (1, 1), (5, 2)):
            options = {"replicas": str(replicas)}
            with LocalCluster(1, executors, state_location=state, node_options=options) as cluster:
                if executors == 2:
                    make_tables(cluster, folder, layouts[layout])
                cluster.wait_until_loaded()
                with cluster.client() as client:
                    for name, sql in texts.items():
                        found = difference(client.sql(sql), single.sql(sql).to_arrow_table())
                        if found is not None:
                            wrong[name, executors] = found
    assert wrong == {}


def make_tables(cluster: LocalCluster, folder: Path, layout: Any) -> None:
    first: dict[str, str] = {}
    for file in sorted(folder.glob("*.parquet")):
        key, group = layout.get(file.stem, (None, None))
        options: dict[str, Any] = {"partition_by": [key]} if key else {"distribution": "replicated"}
        if group is not None and first.setdefault(group, file.stem) != file.stem:
            options["colocate_with"] = first[group]
        cluster.create_table(file.stem, str(file), wait=False, **options)
    cluster.wait_until_loaded()
