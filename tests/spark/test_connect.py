"""The pipeline over Spark Connect: the same partitions, progress, cancelling and errors as on a classic session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc_status", reason="Spark Connect needs the extra 'connect'")

pytestmark = pytest.mark.spark


def test_the_pipeline_works_over_spark_connect(spark, connect_url, tmp_path):
    script = str(Path(__file__).with_name("connect_client.py"))
    command = [sys.executable, script, connect_url, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3_000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("error").endswith("torn page")
    assert "late' took longer than 1.5 s and was cancelled" in said.pop("too late")
    assert "statements need a Spark session with its JVM" in said.pop("no statements")
    assert said == {
        "bucket rows": 50_000,
        "told in order": True,
        "told the end": True,
        "values": ["é0", "é1", "é2"],
        "rows": 100,
        "appended": [20, 0],
        "cancelled soon": True,
        "odd": [0, 1, 2],
    }
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
