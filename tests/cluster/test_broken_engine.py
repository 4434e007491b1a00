"""A statement that breaks the engine of its executors costs others a moment, not an answer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("ts", pa.timestamp("us"))])
LOWEST = -(2**63)


def test_others_are_answered_while_an_engine_begins_anew(wait_until):
    with LocalCluster(schedulers=1, executors=2) as cluster, cluster.client() as client:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        rows = pa.table({"id": range(40), "ts": pa.array([LOWEST, *range(39)], pa.int64())})
        client.ingest("t", rows.set_column(1, "ts", rows["ts"].cast(pa.timestamp("us"))).cast(SCHEMA))
        for _ in range(3):  # the second time it runs apart, and fails alone
            with pytest.raises(BallistaError, match="engine failed"):
                client.sql("select ts::varchar as text from t where id = 0")
            assert client.sql("select count(distinct id) as n from t").to_pylist() == [{"n": 40}]
            assert client.sql("select max(id) as m, min(ts) < timestamp '1970-01-01' as low from t").to_pylist()
        assert (
            client.ingest("t", pa.table({"id": [40], "ts": pa.array([5], pa.timestamp("us"))}).cast(SCHEMA)) == 1
        )
        assert client.sql("select count(*) as n from t").to_pylist() == [{"n": 41}]
