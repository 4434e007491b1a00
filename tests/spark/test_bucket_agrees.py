"""`bucket` gives the same on a classic session and on Spark Connect as in Python, on random rows of every type."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("grpc_status", reason="Spark Connect needs the extra 'connect'")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

ROWS = [5_000, pytest.param(1_000_000, marks=pytest.mark.long)]
TYPES = 19


@pytest.fixture(params=ROWS, scope="module")
def rows(request, agreement, tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("agreement") / "rows.parquet")
    table = agreement.random_rows(request.param)
    assert table.num_columns + 1 == TYPES  # times of day are made by Spark
    pq.write_table(table, path)
    return path


@pytest.mark.long
def test_a_classic_session_agrees_with_python(spark, rows, agreement):
    found = agreement.disagreements(spark, rows)
    assert len(found) == TYPES
    assert set(found.values()) == {0}, found


def test_spark_connect_agrees_with_python(connect_url, rows, agreement):
    script = str(Path(__file__).with_name("agreement.py"))
    said = subprocess.run(
        [sys.executable, script, connect_url, rows], capture_output=True, text=True, timeout=1_100
    )
    assert said.returncode == 0, said.stderr[-3_000:]
    found = json.loads(said.stdout.splitlines()[-1])
    assert len(found) == TYPES
    assert set(found.values()) == {0}, found
