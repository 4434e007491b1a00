"""What stands in docs/examples/reading/ works as it stands there, on a cluster and on plain files.

Dask and Ray are not in the development environment: `scripts/engines.py` makes one for them, which takes minutes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from ast import literal_eval
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.cluster.table_servers import serving

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
ENGINES = Path(os.environ.get("BALLISTA_ENGINES") or ROOT / ".venv" / "engines")
ROWS = pa.table(
    {
        "id": pa.array(range(20_000), pa.int64()),
        "v": pa.array([n / 4 if n % 9 else None for n in range(20_000)], pa.float64()),
        "word": [f"w{n % 7}" for n in range(20_000)],
    }
)


@pytest.fixture(scope="module", params=["cluster", "plain files"])
def url(request, tmp_path_factory):
    """Where a table `t` with `ROWS` is read."""
    if request.param == "cluster":
        with LocalCluster(schedulers=1, executors=2) as made:
            made.create_table("t", schema=ROWS.schema, partition_by=["bucket(6, id)"])
            made.ingest("t", ROWS)
            yield "ballista://" + made.addresses()[0]
        return
    folder = tmp_path_factory.mktemp("plain")
    (folder / "t").mkdir()
    for number in range(5):
        pq.write_table(ROWS.slice(number * 4_000, 4_000), folder / "t" / f"{number}.parquet")
    time.sleep(0.06)
    with serving(folder) as server:
        yield server.url


@pytest.fixture(scope="module")
def engines():
    """The Python of the environment with Dask and Ray."""
    spec = importlib.util.spec_from_file_location("engines", ROOT / "scripts" / "engines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.made(ENGINES)


def said(python: str | Path, example: str, *words: str) -> list[str]:
    """The lines that an example prints."""
    command = [str(python), str(ROOT / "docs" / "examples" / "reading" / f"{example}.py"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.splitlines()


def test_duckdb_and_pyarrow_read_partitions_in_parallel(url, tmp_path):
    lines = said(sys.executable, "read_with_duckdb", url, "t", str(tmp_path / "out"))
    assert lines[0] == "20000"
    assert ds.dataset(tmp_path / "out").to_table().sort_by("id").equals(ROWS)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_dask_reads_partitions_in_parallel(url, engines):
    lines = said(engines, "read_with_dask", url, "t")
    assert lines[0] == "20000"
    wanted = {"id": sum(range(20_000)), "v": sum(value for value in ROWS["v"].to_pylist() if value is not None)}
    assert literal_eval(lines[1]) == wanted


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ray_reads_partitions_in_parallel(url, engines):
    lines = said(engines, "read_with_ray", url, "t")
    assert lines[0] == "20000"
    assert "'word': 'w" in lines[1]


@pytest.mark.parametrize("engine", ["dask", "ray", "duckdb"])
def test_the_guide_shows_what_the_examples_do(engine):
    """Its code stands in the example, line by line."""
    guide = (ROOT / "docs" / "guide-reading.md").read_text()
    example = (ROOT / "docs" / "examples" / "reading" / f"read_with_{engine}.py").read_text()
    shown = (
        guide.partition(f"docs/examples/reading/read_with_{engine}.py")[2]
        .partition("```python\n")[2]
        .partition("```")[0]
    )
    lines = [line.strip() for line in shown.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) > 3
    known = {line.strip() for line in example.splitlines()}
    assert [line for line in lines if line not in known] == []
