"""Tables that follow a folder of Parquet files on a schedule: whole processes, Spark in the schedulers, `kill -9`."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import ConfigError
from ballista_py.partitions.refresh import Refresh

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1_800)]
WAIT_S = 800


def put(folder: Path, name: str, first: int, last: int, **more: list[int]) -> None:
    """One file more, whole at once."""
    ids = range(first, last)
    columns = {"id": pa.array(ids, pa.int64()), "kind": [f"k{n % 3}" for n in ids], **more}
    temporary = folder.parent / f"{name}.new"
    pq.write_table(pa.table(columns), temporary)
    temporary.rename(folder / f"{name}.parquet")


def refreshed(cluster: LocalCluster, table: str):
    return next(row["refresh"] for row in cluster.tables() if row["table"] == table)


def eventually(cluster: LocalCluster, holds) -> None:
    until = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until, (cluster.tables(), [cluster.log(n)[-1_500:] for n in cluster.node_ids])
        time.sleep(0.2)


def ids(cluster: LocalCluster, table: str) -> list[int]:
    return sorted(cluster.sql(f"select id from {table}")["id"].to_pylist())


def holder(cluster: LocalCluster) -> str | None:
    """The scheduler that refreshes now."""
    running = refreshed(cluster, "events")["running"]
    names = {row["instance_id"]: row["node_id"] for row in cluster.members()}
    return names.get(running)


def test_one_scheduler_does_each_slot_and_another_one_does_that_of_a_dead_one(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    put(folder, "a", 0, 10)
    with LocalCluster(schedulers=3, executors=1, ttl_ms=3_000) as cluster:
        cluster.create_table(
            "events",
            str(folder),
            ["kind"],
            refresh=Refresh(mode="append", every="2s", time_column="id", overlap="10"),
        )
        eventually(cluster, lambda: refreshed(cluster, "events")["last_rows"] is not None)
        put(folder, "b", 10, 25)
        eventually(cluster, lambda: holder(cluster) is not None)
        killed = holder(cluster) or "scheduler-1"  # it may be done by now; then the next slot has nobody
        cluster.kill(killed)
        eventually(cluster, lambda: ids(cluster, "events") == list(range(25)))
        put(folder, "c", 20, 22)  # once more: an append takes what the source has twice, within the overlap
        put(
            folder,
            "d",
            25,
            30,
        )
        eventually(cluster, lambda: len(ids(cluster, "events")) == 32)
        eventually(cluster, lambda: refreshed(cluster, "events")["last_skipped"])
        assert ids(cluster, "events") == sorted([*range(30), 20, 21])
        slot = refreshed(cluster, "events")
        assert slot["last_error"] is None
        assert slot["lag_ms"] < WAIT_S * 1e3
        for file in folder.iterdir():
            file.unlink()
        with cluster.client() as client, pytest.raises(ConfigError, match="was not refreshed"):
            client.refresh("events", "full", timeout=WAIT_S)
        assert len(ids(cluster, "events")) == 32
