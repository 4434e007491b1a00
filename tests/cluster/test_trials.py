"""A statement over which the engine fails is refused before a node has run it, by every way into a scheduler."""

from __future__ import annotations

import datetime

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SqlError

pytestmark = pytest.mark.cluster
# DuckDB 2.0 fails inside over it, and its database with it.
BREAKS = "select count(*) from t x asof join t y on to_days(x.n) >= to_days(y.n)"
OVER_INTERVALS = "select 1 from (select $1 as v) x asof join (select $1 as v) y on x.v >= y.v"


def test_what_breaks_an_engine_breaks_none_of_a_node():
    with LocalCluster(executors=1) as cluster, cluster.client() as client:
        cluster.create_table("t", schema=pa.schema([("n", pa.int32())]), distribution="replicated")
        client.ingest("t", pa.table({"n": pa.array([1, 2, 3], pa.int32())}))
        for text in (BREAKS, f"insert into t {BREAKS}"):
            with pytest.raises(SqlError, match="the engine itself fails over this statement"):
                client.sql(text)
            assert client.sql("select [max(n)] as n from t").to_pylist() == [{"n": [3]}]
        for text in (
            "pivot (from t x asof join t y on to_days(x.n) >= to_days(y.n)) on n",
            f"pivot t on n || ({BREAKS})",
        ):
            with pytest.raises(SqlError, match="the engine itself fails over this statement"):
                client.sql(text)
        with (
            flightsql.connect(cluster.flight_sql_url(), autocommit=True) as made,
            made.cursor() as cursor,
            pytest.raises(adbc_driver_manager.Error, match="the engine itself fails over this statement"),
        ):
            cursor.execute(BREAKS)
        with (
            flightsql.connect(cluster.flight_sql_url(), autocommit=True) as made,
            made.cursor() as cursor,
            pytest.raises(adbc_driver_manager.Error, match="the engine itself fails over this statement"),
        ):
            cursor.execute(OVER_INTERVALS, (datetime.timedelta(days=1),))
        assert client.sql("select count(*) as n from t").to_pylist() == [{"n": 3}]
