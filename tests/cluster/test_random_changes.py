"""Random changes leave the rows, and report the counts, that a single DuckDB does."""

from __future__ import annotations

import os

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.answers import difference
from ballista_py.errors import BallistaError
from ballista_py.runtime import seeded_chance
from ballista_py.testing.sql_changes import CHANGED, change_statement

pytestmark = pytest.mark.cluster
COLUMNS = "id bigint, region varchar, x double, d date, m decimal(9, 2), s varchar"


def compare(cluster: LocalCluster, seed: int, statements: int) -> None:
    """The same statements on the cluster and on one DuckDB: equal counts, equal rows, refused by both or by none."""
    chance = seeded_chance(seed)
    cluster.create_table("t", schema=CHANGED, partition_by=["bucket(4, id)"])
    cluster.create_table("u", schema=CHANGED, partition_by=["region"])
    with duckdb.connect() as single:
        single.execute(f"create table t ({COLUMNS}); create table u ({COLUMNS})")
        for number in range(statements):
            statement = change_statement(chance)
            where = f"seed {seed}, statement {number}: {statement}"
            try:
                expected = single.execute(statement).fetchall()
            except duckdb.Error:
                with pytest.raises(BallistaError):
                    cluster.sql(statement)
            else:
                (answer,) = cluster.sql(statement).to_pylist()
                if expected:
                    assert answer["affected_rows"] == expected[0][0], where
            for table in ("t", "u"):
                rows = single.sql(f"select * from {table}").to_arrow_table()
                assert difference(cluster.sql(f"select * from {table}"), rows) is None, where


def test_random_changes_are_those_of_a_single_node():
    with LocalCluster(schedulers=1, executors=2) as cluster:
        compare(cluster, seed=int(os.environ.get("BALLISTA_CHANGES_SEED", "1")), statements=80)


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_random_changes_are_those_of_a_single_node(seed):
    with LocalCluster(schedulers=2, executors=3) as cluster:
        compare(cluster, seed, statements=300)
