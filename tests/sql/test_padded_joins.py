"""A LEFT JOIN behind a LEFT JOIN: its condition may hold for rows that the first one has filled up with NULL."""

from __future__ import annotations

import pytest

from ballista_py.engines.same_answer import difference
from ballista_py.sql.planner import plan_query
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.testing.sql.tables import fill_with_small_tables

CONDITIONS = (
    "b.b IS NOT DISTINCT FROM c.a",
    "b.b IS DISTINCT FROM c.a",
    "b.b IS NULL",
    "b.b IS NULL AND c.a IS NULL",
    "coalesce(b.b, 0) = c.a",
    "b.b = c.a OR b.b IS NULL",
    "NOT (b.b IS NOT NULL AND c.a > 0)",
    "CASE WHEN b.b > 0 THEN c.a ELSE 1 END = 1",
    "b.b = c.a",
    "b.b < c.a AND c.a IS NOT NULL",
    "b.b = c.a AND b.k IS NOT DISTINCT FROM c.k",
    "c.a = 1",
    "true",
)


@pytest.fixture(scope="module", params=[(3, 50), (2, 25)], ids=str)
def cluster(request):
    executors, rows = request.param
    with fill_with_small_tables(
        InProcessCluster(executors=executors, replicas=1), seed=executors, rows=rows
    ) as made:
        made.measure()
        yield made


@pytest.mark.parametrize("third", ["r", "t", "w"])
@pytest.mark.parametrize("first", ["=", "IS NOT DISTINCT FROM", "<"])
@pytest.mark.parametrize("on", CONDITIONS)
def test_two_left_joins_give_what_one_node_gives(cluster, on, first, third):
    query = (
        f"SELECT a.k, b.b, c.a, count(*) AS n FROM u a LEFT JOIN t b ON a.k {first} b.k LEFT JOIN {third} c ON {on} "
        "GROUP BY a.k, b.b, c.a"
    )
    expected = cluster.single(query)
    plan = plan_query(query, cluster.catalog, expected.schema)
    assert difference(cluster.execute(plan), expected, ordered=False) is None
