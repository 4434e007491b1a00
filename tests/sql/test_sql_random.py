"""Random queries over random small tables give the single-node answer (`make fuzz-sql` runs 100,000)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ballista_py.errors import MergeTooLarge
from ballista_py.testing.sql.fuzz import attempt, cluster_of, fuzz, random_query
from ballista_py.testing.sql.queries import Queries, RandomQuery
from ballista_py.testing.sql.single_node import InProcessCluster, assert_single_node_equivalent

CHUNKS = [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 12))]
QUERIES_PER_CHUNK = 250
SHRUNK = 250


@pytest.mark.parametrize("chunk", CHUNKS)
def test_random_queries_give_the_single_node_answer(chunk: int) -> None:
    tried = list(fuzz(chunk * QUERIES_PER_CHUNK, QUERIES_PER_CHUNK))
    assert [query.wrong for query in tried if query.wrong is not None] == []
    assert len(tried) > 0.9 * QUERIES_PER_CHUNK
    whole = [query for query in tried if any("everything" in note for note in query.notes)]
    assert len(whole) < 0.1 * len(tried), whole


@pytest.fixture(scope="module")
def clusters() -> Iterator[None]:
    yield
    for number in range(3):
        _cluster(number).close()
    _cluster.cache_clear()


@pytest.mark.turn(3)
@settings(
    max_examples=SHRUNK, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(query=st.builds(lambda chance: Queries(chance).query(), st.randoms()), number=st.integers(0, 2))
def test_a_query_that_hypothesis_can_shrink_gives_the_single_node_answer(
    clusters: None, query: RandomQuery, number: int
) -> None:
    tried = attempt(0, query, _cluster(number))
    assume(tried is not None)
    assert tried is not None
    assert tried.wrong is None, tried.wrong


@cache
def _cluster(number: int) -> InProcessCluster:
    return cluster_of(number)


def test_a_seed_gives_its_query_again() -> None:
    assert [random_query(seed) for seed in range(50)] == [random_query(seed) for seed in range(50)]


def test_a_query_with_more_rows_than_anybody_can_compare_is_left_out() -> None:
    rows = "select t.id from " + ", ".join(f"t t{number}" for number in range(4)) + ", t"
    with cluster_of(0) as cluster:
        assert attempt(0, RandomQuery(rows, ordered=False), cluster) is None
        assert attempt(0, RandomQuery(f"select count(*) from ({rows})", ordered=False), cluster) is not None
    with InProcessCluster(max_bytes=100) as cluster, pytest.raises(MergeTooLarge):
        cluster.single("select i from range(100) r(i)")


def test_a_wrong_answer_is_found_and_said_with_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select a, count(*) from t group by a"
    with cluster_of(0) as cluster:
        moved = cluster.rows["t"].slice(1)
        assert cluster.check(sql)
        monkeypatch.setattr(cluster, "part", lambda table, partitions: moved)
        with pytest.raises(AssertionError, match=r"(?s)instead of.*GROUP BY t\.a.*merge: SELECT"):
            cluster.check(sql)


def test_one_statement_over_tables_of_ones_own_can_be_checked() -> None:
    import pyarrow as pa

    left = pa.table({"k": [1, 2, None], "v": ["a", "b", "c"]})
    right = pa.table({"k": [2, None, 2], "w": [1.5, 2.5, 3.5]})
    plan = assert_single_node_equivalent(
        "select v, w from l full join r using (k)",
        {"l": left, "r": right},
        {"l": "bucket(4, k)", "r": "bucket(4, k)"},
        groups={"l": "g", "r": "g"},
        executors=2,
        replicas=2,
    )
    assert plan.notes != () or plan.merge_sql is None
