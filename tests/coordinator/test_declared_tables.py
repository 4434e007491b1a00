"""A name that is taken, said with the reason that matters."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.tables.declarations import declare_table
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import ConfigError, UnsupportedExpression
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import ClusterDocument, PartitionMapDocument, partition_map_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.decimal128(10, 2))])
KEYS = ["bucket(4, id)"]


@pytest.fixture
def cluster() -> ClusterDocument:
    return ClusterDocument().with_table(declare_table(ClusterDocument(), "orders", SCHEMA, KEYS))


def test_a_table_again_with_keys_that_put_rows_elsewhere_is_refused_with_the_reason(cluster):
    rescaled = SCHEMA.set(1, pa.field("price", pa.decimal128(10, 3)))
    by_price = ClusterDocument().with_table(
        declare_table(ClusterDocument(), "orders", SCHEMA, ["bucket(4, price)"])
    )
    for taken, schema, keys, reason in (
        (cluster, SCHEMA, ["bucket(8, id)"], "bucket(8, id) instead of bucket(4, id)"),
        (cluster, SCHEMA, ["id"], "id instead of bucket(4, id)"),
        (by_price, rescaled, ["bucket(4, price)"], "decimal128(10, 3)"),
    ):
        with pytest.raises(UnsupportedExpression) as refused:
            declare_table(taken, "orders", schema, keys)
        assert str(refused.value).startswith("table 'orders' exists already, and ")
        assert "would move rows" in str(refused.value)
        assert reason in str(refused.value)


def test_a_table_again_with_the_same_keys_is_taken(cluster):
    with pytest.raises(ConfigError, match=r"^table 'orders' exists already$"):
        declare_table(cluster, "orders", SCHEMA, KEYS)


def test_the_name_of_a_dropped_table_whose_map_saw_many_commits_can_be_taken_again():
    store, runtime = MemoryStore(), SystemRuntime()
    ObjectState(store, "cluster.json", ClusterDocument).create(ClusterDocument())
    maker = TableMaker(store, runtime)
    maker.create("orders", None, KEYS, schema=SCHEMA)
    state = ObjectState(store, partition_map_key("orders"), PartitionMapDocument)
    first = state.read().document
    for _ in range(40):
        state.update(lambda now: evolve(now, published=not now.published))
    assert maker.drop("orders")
    maker.create("orders", None, ["bucket(8, id)"], schema=SCHEMA)
    again = state.read().document
    assert len(again.map) == 8
    assert again.incarnation != first.incarnation
    with pytest.raises(ConfigError, match="exists already"):
        maker.create("orders", None, ["bucket(8, id)"], schema=SCHEMA)
