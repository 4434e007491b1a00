"""Every acknowledged row exactly once, while nodes are killed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ballista_py import LocalCluster
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.soak import SCHEMA, Load, Soak

pytestmark = pytest.mark.cluster


def soak(load: Load, executors: int = 3):
    with LocalCluster(schedulers=2, executors=executors, ttl_ms=1_500) as cluster:
        cluster.create_table("soaked", schema=SCHEMA, partition_by=["bucket(6, id)"])

        def run_all(functions):
            with ThreadPoolExecutor(len(functions)) as pool:
                for running in [pool.submit(function) for function in functions]:
                    running.result()

        return Soak(cluster, "soaked", cluster.node_ids, load, SystemRuntime(), run_all).run()


def test_acknowledged_rows_are_there_once_after_kills():
    report = soak(Load(duration_ms=10_000, kill_every_ms=3_000))
    print(report.text(), report.said)
    assert report.wrong == []
    assert report.kills > 0
    assert report.rows > 0


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_acknowledged_rows_are_there_once_after_ten_minutes_of_kills():
    report = soak(Load(duration_ms=600_000, kill_every_ms=4_000))
    print(report.text(), report.said)
    assert report.wrong == []
