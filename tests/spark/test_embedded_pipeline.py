"""What a scheduler does with an embedded Spark: look at sources, and prepare partitions for new values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.tables.embedded_spark import EmbeddedPipeline
from ballista_py.errors import ConfigError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret

pytestmark = pytest.mark.spark


def test_a_value_found_in_the_source_can_be_held_at_once(spark, parquet, declare, pipeline, store, partitions):
    table = declare(parquet("a.parquet", region=pa.array(["eu", None])), "region")
    report = pipeline.materialize(table)
    pmap = PartitionMap.build(table.name, table.spec, report.partitions)
    parquet("a.parquet", region=pa.array(["eu", "us", "us"]))
    embedded = EmbeddedPipeline(store, SystemRuntime(), discovery_timeout_ms=60_000)
    assert embedded.find(table, pmap) == [("eu",), ("us",)]
    assert [partitions.manifest(table, (value,)).rows for value in ("eu", "us", None)] == [1, 2, 1]
    embedded.close()
    assert spark.range(3).count() == 3  # the session has another user, so it stays


def test_a_source_that_is_gone_is_an_error_of_the_tree(parquet, declare, store, tmp_path):
    table = declare(parquet("a.parquet", region=pa.array(["eu"])), "region")
    (tmp_path / "a.parquet").unlink()
    embedded = EmbeddedPipeline(store, SystemRuntime())
    with pytest.raises(ConfigError, match="table 'events'"):
        embedded.find(table, PartitionMap.build(table.name, table.spec, []))
    embedded.close()


def test_a_source_is_opened_with_the_secrets_that_it_references_and_the_table_keeps_the_references(
    declare, store, tmp_path, spark
):
    (tmp_path / "a.csv").write_text("region#n\neu#1\nus#2\n")
    source = {"format": "csv", "path": str(tmp_path / "a.csv"), "header": "true", "sep": "${secrets:separator}"}
    secrets = {"separator": Secret("#")}
    embedded = EmbeddedPipeline(store, SystemRuntime(), secrets=secrets)
    schema = embedded.get().describe("events", embedded.opened_source(source))
    assert schema.names == ["region", "n"]
    spec = PartitionSpec.parse(["region"], schema)
    table = TableSpec(name="events", schema=schema, spec=spec, source=source)
    assert embedded.find(table, PartitionMap.build("events", spec, [])) == [("eu",), ("us",)]
    assert table.source["sep"] == "${secrets:separator}"
    without = EmbeddedPipeline(store, SystemRuntime())
    with pytest.raises(ConfigError, match="'separator'"):
        without.find(table, PartitionMap.build("events", spec, []))
    for made in (embedded, without):
        made.close()
