"""What the executors of a local cluster may take of the machine that they share."""

from __future__ import annotations

import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster


def _limits(cluster: LocalCluster) -> list[str]:
    started = [cluster._nodes.process(name).arguments for name in cluster.node_ids if name.startswith("executor")]
    return [words[place + 1] for words in started for place, word in enumerate(words) if word == "--memory-limit"]


def test_executors_share_the_memory_of_the_machine(cluster):
    assert _limits(cluster) == ["40%", "40%"]
    assert cluster.sql("select count(*) as n from region").to_pylist() == [{"n": 5}]


def test_a_limit_of_memory_that_is_given_counts(tmp_path):
    with LocalCluster(schedulers=1, executors=1, node_options={"memory-limit": "300MB"}) as cluster:
        assert _limits(cluster) == ["300MB"]
