"""The golden hashes of `bucket` are Spark's: ask it again."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_spark_still_gives_every_golden_hash() -> None:
    session = pytest.importorskip("ballista_py.spark.session")
    path = Path(__file__).parents[1] / "partitions" / "golden_bucket.py"
    spec = importlib.util.spec_from_file_location("golden_bucket", path)
    assert spec is not None
    assert spec.loader is not None
    golden_bucket = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden_bucket)
    spark = session.embedded_session()
    golden = golden_bucket.golden()
    found = golden_bucket.spark_hashes(spark, {name: values for name, (values, _) in golden.items()})
    assert found == {name: hashes for name, (_, hashes) in golden.items()}
