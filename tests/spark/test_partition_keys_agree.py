"""Spark gives the partition keys that Arrow gives, whatever its session's time zone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.values import as_key

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def key_cases() -> ModuleType:
    path = Path(__file__).parents[1] / "partitions" / "key_cases.py"
    spec = importlib.util.spec_from_file_location("key_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_spark_gives_the_keys_that_arrow_gives(zone: str, key_cases: ModuleType, tmp_path: Path) -> None:
    spark = pytest.importorskip("ballista_py.spark.session").embedded_session()
    rows = key_cases.hard_rows()
    placed = pa.table(rows).append_column("place", pa.array(range(rows.num_rows)))
    pq.write_table(placed, tmp_path / "rows.parquet", store_schema=False)
    specs = [PartitionSpec.parse([text], key_cases.SCHEMA, zone) for text in key_cases.EXPRESSIONS]
    keys = [f"{spec.spark_sql()[0]} as k{place}" for place, spec in enumerate(specs)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = spark.read.parquet(str(tmp_path)).orderBy("place").selectExpr(*keys).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for place, spec in enumerate(specs):
        (ours,) = spec.evaluate(rows)
        theirs = as_key(found[f"k{place}"].combine_chunks(), ours.type)
        assert repr(ours.to_pylist()) == repr(theirs.to_pylist()), spec.keys[0].expression
