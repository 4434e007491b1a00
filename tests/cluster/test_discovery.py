"""Partitions that appear in a source and vanish from it while a cluster runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ballista_py import LocalCluster, Watermark

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long]
INTERVAL_MS = 1_500


def write(path: Path, *regions: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text("id,region\n" + "".join(f"{n},{region}\n" for n, region in enumerate(regions)))
    temporary.rename(path)


def regions_of(cluster: LocalCluster) -> list[str]:
    return cluster.sql("select distinct region from events order by 1")["region"].to_pylist()


def wait_for_partitions(cluster: LocalCluster, count: int) -> None:
    until = time.monotonic() + 180
    while True:
        with cluster.client() as client:
            (row,) = client.tables()
        if (row["partitions"], row["serving"]) == (count, count):
            return
        assert time.monotonic() < until, (row, cluster.log("scheduler-1")[-2_000:])
        time.sleep(0.1)


def wait_for_regions(cluster: LocalCluster, *regions: str) -> None:
    until = time.monotonic() + 90
    while regions_of(cluster) != list(regions):
        assert time.monotonic() < until, regions_of(cluster)
        time.sleep(0.1)


def test_a_new_value_gets_a_partition_and_a_vanished_one_loses_it(tmp_path):
    source = tmp_path / "events.csv"
    write(source, "eu", "us", "us")
    options = {"partition-discovery-interval": str(INTERVAL_MS)}
    with LocalCluster(schedulers=2, executors=1, ttl_ms=2_000, node_options=options) as cluster:
        cluster.create_table("events", source=str(source), partition_by=["region"])
        assert regions_of(cluster) == ["eu", "us"]
        write(source, "eu", "us", "us", "asia")
        wait_for_partitions(cluster, 3)
        wait_for_regions(cluster, "asia", "eu", "us")  # nobody refreshed the table
        assert cluster.sql("select id from events where region = 'asia'")["id"].to_pylist() == [3]
        assert cluster.refresh_table("events", "append", watermark=Watermark("id")).rows == 0
        assert cluster.sql("select count(*) as n from events").to_pylist() == [{"n": 4}]
        write(source, "us", "asia")
        wait_for_partitions(cluster, 2)
        assert regions_of(cluster) == ["asia", "us"]
        write(source, "us", "mars")
        cluster.refresh_table("events")
        wait_for_regions(cluster, "mars", "us")
        assert "partitions_discovered" not in cluster.log("scheduler-2")
