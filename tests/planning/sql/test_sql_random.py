"""Random queries over random small tables give the single-node answer. `BALLISTA_SQL_EXAMPLES` sets how many."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import duckdb
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

_SPEC = importlib.util.spec_from_file_location("sql_generator", Path(__file__).with_name("sql_generator.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_GENERATOR = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_GENERATOR)

EXAMPLES = int(os.environ.get("BALLISTA_SQL_EXAMPLES", "150"))
SHAPES = ((3, 1, 60), (1, 2, 25), (5, 3, 90))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 150,
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32), shape=st.sampled_from(SHAPES))
def test_a_random_query_gives_the_single_node_answer(
    make_cluster: Any, fill_small: Any, seed: int, shape: tuple[int, int, int]
) -> None:
    cluster = _cluster(make_cluster, fill_small, shape)
    sql = _GENERATOR.Generator(Random(seed)).query()
    try:
        cluster.schema(sql)
    except duckdb.Error:
        assume(False)
    plan = cluster.check(sql)
    assert not any("everything" in note for note in plan.notes), plan.notes


@cache
def _cluster(make_cluster: Any, fill_small: Any, shape: tuple[int, int, int]) -> Any:
    executors, seed, rows = shape
    return fill_small(make_cluster(executors), seed, rows)
