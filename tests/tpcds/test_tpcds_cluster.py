"""TPC-DS at scale 0.1 through real processes."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.answers import difference

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3_000)]


def test_every_query_is_answered_as_by_one_node(tpcds: Any, texts: dict[str, str], layouts: Any) -> None:
    folder, wrong, first = tpcds(0.1), {}, dict[str, str]()
    with LocalCluster(schedulers=1, executors=2) as cluster, duckdb.connect() as single:
        for file in sorted(folder.glob("*.parquet")):
            single.read_parquet(str(file)).create_view(file.stem)
            key, group = layouts["together"].get(file.stem, (None, None))
            options: dict[str, Any] = {"partition_by": [key]} if key else {"distribution": "replicated"}
            if group is not None and first.setdefault(group, file.stem) != file.stem:
                options["colocate_with"] = first[group]
            cluster.create_table(file.stem, str(file), wait=False, **options)
        cluster.wait_until_loaded()
        with cluster.client() as client:
            for name, sql in texts.items():
                found = difference(client.sql(sql), single.sql(sql).to_arrow_table())
                if found is not None:
                    wrong[name] = found
    assert wrong == {}
