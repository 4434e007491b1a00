"""Random changes leave the rows, and report the counts, that a single DuckDB does."""

from __future__ import annotations

import os

import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError
from ballista_py.runtime import seeded_chance
from ballista_py.testing.sql.changes import change_statement

pytestmark = pytest.mark.cluster
COLUMNS = "id bigint, region varchar, x double, d date, m decimal(9, 2), s varchar"


# Where the rows of both tables lie, and whether `id` is their primary key.
LAYOUTS = (
    ("bucket(4, id)", "region", False),
    ("bucket(4, id)", "truncate(id, 4)", True),
    (None, "year(d)", False),
    ("id", None, True),
)


def compare(cluster: LocalCluster, seed: int, statements: int) -> int:
    """The same statements on the cluster and on one DuckDB: the same count or rows given, the same rows left, refused
    by both or by none; how many neither refused."""
    chance = seeded_chance(seed)
    *layout, keyed = LAYOUTS[seed % len(LAYOUTS)]
    columns = COLUMNS.replace("bigint", "bigint primary key") if keyed else COLUMNS
    taken = 0
    with duckdb.connect() as single:
        for table, key in zip(("t", "u"), layout, strict=True):
            single.execute(f"create table {table} ({columns})")
            cluster.sql(f"create table {table} ({columns})" + (f" partitioned by ({key})" if key else ""))
        for number in range(statements):
            statement, atomic = change_statement(chance, keyed=keyed), chance.random() < 0.3
            where = f"seed {seed}, statement {number}: {statement}"
            returning = "returning" in statement
            try:
                expected = single.sql(statement).to_arrow_table() if returning else None
                count = None if returning else single.execute(statement).fetchall()
            except duckdb.Error:
                with pytest.raises(BallistaError):
                    cluster.sql(statement, atomic=atomic)
            else:
                taken += 1
                answer = cluster.sql(statement, atomic=atomic)
                if expected is not None:
                    assert difference(answer, expected) is None, where
                elif count:
                    assert answer.to_pylist() == [{"affected_rows": count[0][0]}], where
            for table in ("t", "u"):
                rows = single.sql(f"select * from {table}").to_arrow_table()
                assert difference(cluster.sql(f"select * from {table}"), rows) is None, where
    for table in ("t", "u"):
        cluster.drop_table(table)
    return taken


def test_random_changes_are_those_of_a_single_node():
    seed = int(os.environ.get("BALLISTA_CHANGES_SEED", "1"))
    with LocalCluster(schedulers=1, executors=2) as cluster:
        assert [compare(cluster, seed + more, statements=35) > 15 for more in range(2)] == [True, True]


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(2, 14))
def test_many_random_changes_are_those_of_a_single_node(seed, replicas):
    with LocalCluster(schedulers=2, executors=3, node_options={"replicas": str(replicas)}) as cluster:
        assert compare(cluster, seed, statements=200) > 100
