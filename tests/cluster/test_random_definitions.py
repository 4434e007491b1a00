"""Tables that are made, replaced, altered, overwritten and renamed at random are those of one DuckDB."""

from __future__ import annotations

import os

import duckdb
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.testing import assert_single_node_equivalent
from ballista_py.testing.sql.beside_one_node import BesideOneNode, compare_definitions

pytestmark = pytest.mark.cluster
ROWS = pa.table({"k": [1, 2, 3, 4], "v": [10, None, 30, 40], "s": ["a", "b", None, "d"]})


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=2) as cluster:
        yield cluster


def test_random_definitions_are_those_of_one_node(cluster):
    with cluster.client() as client:
        found = compare_definitions(client, int(os.environ.get("BALLISTA_CHANGES_SEED", "1")), 20)
    assert found["same"] > 10


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(100, 125))
def test_many_random_definitions_are_those_of_one_node(cluster, seed):
    with cluster.client() as client:
        assert compare_definitions(client, seed, 200)["same"] > 100


def test_values_of_an_insert_are_each_one_of_their_column(cluster):
    """And an upsert that does not name its key meets the row with the default of it."""
    with duckdb.connect() as single:
        both = BesideOneNode(cluster, single)
        for sql in (
            "create table w (d int default 3, c varchar, x date default date '2020-01-01', primary key (d)) "
            "partitioned by (bucket(3, d))",
            "insert into w values (1, 1, '2024-02-29'), ('2', 1.50, date '2024-02-29'), (default, true, default)",
            "insert into w (c) values (1), (2.50), (3) on conflict (d) do nothing",
            "insert into w (c) values (2.5) on conflict (d) do update set c = excluded.c returning *",
            "insert or replace into w (d, c) values (default, 1e3), (7, 0.10) returning c, d",
            "insert overwrite w values (1, 1, default), (2, 1.50, '2024-02-29')",
            "alter table w rename to w",
            "drop table w",
        ):
            assert both.check(sql) == "same", sql


@pytest.mark.parametrize(
    "sql",
    [
        "create table n as select v, count(*) as c from t group by v",
        "create table n (like t including all)",
        "insert overwrite t partition (k = 1) values (5, 'x')",
        "alter table t add column n int default 7",
        "truncate t",
        "select v, count(*) as n from t group by v",
    ],
)
def test_the_kit_takes_any_statement_with_a_cluster(cluster, sql):
    assert assert_single_node_equivalent(sql, {"t": ROWS}, {"t": "k"}, cluster=cluster) is None


def test_the_kit_notices_what_is_wrong_on_a_cluster(cluster):
    class Wrong:
        """A cluster that loses a column."""

        def sql(self, query):
            return cluster.sql(query.replace(", s", ""))

        ingest = cluster.ingest

    with pytest.raises(AssertionError, match="row count"):
        assert_single_node_equivalent(
            "create table n as select v, s from t", {"t": ROWS}, {"t": "k"}, cluster=Wrong()
        )
