"""A statement that breaks the engine of its executors costs others a moment, not an answer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
LOWEST = -(2**63) + 1_000  # as a moment it has no text, and DuckDB fails inside over that


def test_others_are_answered_while_an_engine_begins_anew(wait_until):
    with LocalCluster(schedulers=1, executors=2) as cluster, cluster.client() as client:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        client.ingest("t", pa.table({"id": range(40), "n": [LOWEST, *range(39)]}).cast(SCHEMA))
        for _ in range(3):  # the second time it runs apart, and fails alone
            with pytest.raises(BallistaError, match="engine failed"):
                client.sql("select make_timestamp(n)::varchar as text from t where id = 0")
            assert client.sql("select count(distinct id) as n from t").to_pylist() == [{"n": 40}]
            assert client.sql("select max(id) as m, min(n) < 0 as low from t").to_pylist() == [
                {"m": 39, "low": True}
            ]
        assert client.ingest("t", pa.table({"id": [40], "n": [5]}).cast(SCHEMA)) == 1
        assert client.sql("select count(*) as n from t").to_pylist() == [{"n": 41}]
