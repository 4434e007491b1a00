"""A cluster of real processes over TPC-H, shared by the tests that leave it as they found it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py import LocalCluster
from ballista_py.node.demo.tpch_data import TABLES, create_tpch_tables, generate_tpch

SCALE = 0.01
PATIENCE_S = 90.0


def _resident_mb(pid: int) -> int:
    found, node = 0, psutil.Process(pid)
    for process in (node, *node.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += process.memory_info().rss
    return found >> 20


@pytest.fixture(scope="session")
def resident_mb() -> Callable[[int], int]:
    """What the node of a process id takes, with its processes."""
    return _resident_mb


@pytest.fixture(scope="session")
def tpch(tmp_path_factory) -> Path:
    """The eight tables as Parquet files."""
    return generate_tpch(tmp_path_factory.mktemp("tpch") / "data", SCALE)


@pytest.fixture(scope="session")
def duck(tpch):
    """DuckDB over the unpartitioned files: the single node that every answer is compared with."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.read_parquet(str(tpch / f"{table}.parquet")).create_view(table)
        yield connection


@pytest.fixture(scope="session")
def tpch_state(tpch, tmp_path_factory) -> Path:
    """A state location that holds the partitioned tables and no members. Serve a copy of it, never itself."""
    folder = tmp_path_factory.mktemp("tpch-state") / "state"
    with LocalCluster(schedulers=1, executors=2, state_location=folder.as_uri()) as cluster:
        create_tpch_tables(cluster, tpch)
    return folder


@pytest.fixture(scope="session")
def cluster(tpch_state, tmp_path_factory):
    """Two schedulers and two executors that serve TPC-H. Kill nothing here."""
    folder = tmp_path_factory.mktemp("served") / "state"
    shutil.copytree(tpch_state, folder)
    with LocalCluster(schedulers=2, executors=2, state_location=folder.as_uri()) as cluster:
        cluster.wait_until_loaded()
        yield cluster


@pytest.fixture(scope="session")
def wait_until():
    """Wait until a condition holds, and return what it gave; the test fails when it does not within `PATIENCE_S`."""

    def wait(condition):
        until = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < until, "it did not happen in time"
            time.sleep(0.05)
        return found

    return wait


@pytest.fixture
def events(tmp_path) -> str:
    """A small Parquet file of 1,000 rows."""
    path = tmp_path / "events.parquet"
    rows = {"id": pa.array(range(1_000), pa.int64()), "kind": [f"k{n % 7}" for n in range(1_000)]}
    pq.write_table(pa.table(rows), path)
    return str(path)


@pytest.fixture(scope="session")
def cli():
    """Run `ballista-py` as a person would; returns the finished process."""

    def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ballista_py.node", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, input=stdin)

    return run
