"""A name that is taken, said with the reason that matters."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError, UnsupportedExpression
from ballista_py.node.tables import declare_table
from ballista_py.state.documents import ClusterDocument

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
        assert str(refused.value).startswith("table 'orders': ")
        assert "would move rows" in str(refused.value)
        assert reason in str(refused.value)


def test_a_table_again_with_the_same_keys_is_taken(cluster):
    with pytest.raises(ConfigError, match=r"^table 'orders' exists already$"):
        declare_table(cluster, "orders", SCHEMA, KEYS)
