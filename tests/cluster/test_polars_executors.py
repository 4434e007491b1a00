"""A cluster whose executors run their legs on Polars."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.errors import ConfigError, SqlError
from ballista_py.node.config import NodeConfig
from ballista_py.node.demo.demo import QUERIES


@pytest.fixture(scope="module")
def polars_cluster(tpch_state, tmp_path_factory):
    state = tmp_path_factory.mktemp("polars") / "state"
    shutil.copytree(tpch_state, state)
    with LocalCluster(schedulers=1, executors=2, state_location=state.as_uri(), engine="polars") as cluster:
        cluster.wait_until_loaded()
        yield cluster


@pytest.mark.cluster
@pytest.mark.parametrize("name", QUERIES)
def test_tpch_is_answered_as_by_a_single_node(polars_cluster, duck, name):
    expected: pa.Table = duck.sql(QUERIES[name]).to_arrow_table()
    assert difference(polars_cluster.sql(QUERIES[name]), expected) is None


@pytest.mark.cluster
def test_a_leg_that_polars_does_not_run_exactly_says_which_engine_does(polars_cluster):
    with pytest.raises(SqlError, match=r"'upper'.*engine: duckdb"):
        polars_cluster.sql("select upper(l_comment) from lineitem where l_orderkey = 1")


def test_a_memory_limit_that_polars_would_not_keep_is_refused():
    with pytest.raises(ConfigError, match="memory_limit"):
        NodeConfig(
            role="executor",
            node_id="e1",
            state_location="memory://x",
            scheduler_address=("127.0.0.1:1",),
            allow_insecure_connections=True,
            engine="polars",
            memory_limit="1GB",
        )
