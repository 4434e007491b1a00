"""Random queries on real processes have the answers of a single node, those that are gathered whole included."""

from __future__ import annotations

import os
from typing import Any

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError
from ballista_py.testing.sql.fuzz import random_query
from ballista_py.testing.sql.single_node import InProcessCluster, PartitionBy
from ballista_py.testing.sql.tables import fill_with_small_tables

pytestmark = pytest.mark.cluster


class Both(InProcessCluster):
    """The tables of a real cluster, and beside them whole for a single node."""

    def __init__(self, real: LocalCluster) -> None:
        super().__init__(1)
        self.real = real

    def add(
        self, name: str, rows: pa.Table, partition_by: PartitionBy, group: str | None = None, seed: int = 0
    ) -> None:
        others = [table.name for table in self.tables.values() if group is not None and table.group == group]
        super().add(name, rows, partition_by, group, seed)
        keys = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
        how: dict[str, Any] = {"partition_by": keys} if keys else {"distribution": "replicated"}
        self.real.create_table(
            name, schema=rows.schema, colocate_with=others[0] if others else None, wait=False, **how
        )
        if rows.num_rows:
            self.real.ingest(name, rows)

    def compare(self, sql: str, ordered: bool, cursor: Any) -> str | None:
        """How the real answer differs, by the client or by the driver. Raises what the single node raises."""
        expected = self.single(sql)
        cursor.execute(sql)
        driven = cursor.fetch_arrow_table()
        found = difference(self.real.sql(sql), expected, ordered=ordered)
        return found or difference(driven, expected, ordered=ordered)


GATHERED = (
    "select unnest([id, -id]) as id from t order by id",
    "select t.k, n from t, v, (select unnest(range(3)) as n) numbers where t.a = v.a order by all",
    "pivot u on bo in (true, false) using count(*) group by k order by k",
    "select s.upper() from w where s ~ 'a' order by all",
)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("schedulers", "executors", "replicas"), [(1, 3, 1), pytest.param(2, 2, 2, marks=pytest.mark.long)]
)
def test_random_queries_are_answered_as_by_a_single_node(schedulers: int, executors: int, replicas: int) -> None:
    first, count = 40_000 * executors, int(os.environ.get("BALLISTA_SQL_CLUSTER_QUERIES", "50"))
    with (
        LocalCluster(schedulers, executors, node_options={"replicas": str(replicas)}) as real,
        Both(real) as both,
        flightsql.connect(real.flight_sql_url(), autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        fill_with_small_tables(both, seed=executors)
        real.wait_until_loaded()
        for sql in GATHERED:
            assert both.compare(sql, True, cursor) is None, sql
        tried = 0
        for seed in range(first, first + count):
            query = random_query(seed)
            try:
                both.single(query.sql)
            except BallistaError:
                continue  # a single node cannot either
            assert both.compare(query.sql, query.ordered, cursor) is None, f"seed {seed}: {query.sql}"
            tried += 1
        assert tried > count / 2
