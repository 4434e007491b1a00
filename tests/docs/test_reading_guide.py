"""The programs of the guide to reading in parallel that share a job run, as processes, against a real cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
GUIDE = (Path(__file__).parents[2] / "docs" / "guide-reading.md").read_text()
ROWS = pa.table({"id": pa.array(range(10_000), pa.int64()), "price": pa.array(range(10_000), pa.float64())})


def program(name: str) -> str:
    """The program that begins with the name of its file."""
    (found,) = re.findall(rf"```python\n# {name}\n(.*?)```", GUIDE, re.DOTALL)
    return found


def replaced(text: str, there: str, here: str) -> str:
    assert there in text
    return text.replace(there, here)


def test_workers_share_a_job_as_the_guide_says(tmp_path):
    with LocalCluster(schedulers=1, executors=1) as cluster:
        cluster.create_table("orders", schema=ROWS.schema, partition_by=["bucket(4, id)"])
        cluster.ingest("orders", ROWS)
        driver = replaced(program("driver.py"), "scheduler:50051", cluster.addresses()[0])
        worker = replaced(
            program("worker.py"), "        ...", "        print(*table['id'].to_pylist(), flush=True)"
        )
        (tmp_path / "driver.py").write_text(driver)
        (tmp_path / "worker.py").write_text(worker)
        said = subprocess.run(
            [sys.executable, "driver.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
        )
    assert sorted(map(int, said.stdout.split())) == list(range(10_000))
