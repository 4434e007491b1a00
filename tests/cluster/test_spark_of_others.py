"""A cluster whose configuration names a Spark elsewhere: what it runs on Spark runs there, over a store of its own."""

from __future__ import annotations

import random
import re
from contextlib import contextmanager

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("moto")
pytest.importorskip("grpc_status", reason="Spark Connect needs the extra 'connect'")

from tests.cluster.table_servers import s3_server
from tests.spark.spark_servers import connect_server, standalone

from ballista_py import LocalCluster, SparkSettings
from ballista_py.errors import SqlError

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

FILE = """\
version: v1
name: shop
revision: 1
datasets:
  - name: orders
    from: orders.parquet
    acceleration: {partition_by: ["bucket(4, id)"]}
"""
ROWS = 60_000
KEYS = {"key": "testing", "secret": "s3cr3t-of-s3", "client_kwargs": {"region_name": "us-east-1"}}
GROUPS = "select kind, count(*) as n, sum(id) as s from orders group by kind order by kind"


@contextmanager
def places(kind: str, folder):
    """The settings for a Spark of that kind, and what its processes have written."""
    if kind == "master":
        conf = {"spark.cores.max": "1", "spark.executor.memory": "512m"}
        with standalone(folder) as found:
            yield SparkSettings(master=found.url, conf=conf), found.logs
    else:
        with connect_server(folder / "server") as (url, server):
            yield SparkSettings(remote=url), lambda: server.log.read_text(errors="replace")


@pytest.mark.parametrize("kind", ["master", "remote"])
def test_files_tables_and_statements_go_to_the_spark_that_the_configuration_names(kind, tmp_path, wait_until):
    pads = [random.randbytes(150).hex() for _ in range(ROWS)]
    ids = pa.array(range(ROWS), pa.int64())
    rows = pa.table({"id": ids, "kind": [f"k{n % 5}" for n in range(ROWS)], "pad": pads})
    pq.write_table(rows, tmp_path / "orders.parquet")
    (tmp_path / "app.yaml").write_text(FILE)
    with s3_server("bucket") as s3, places(kind, tmp_path / "spark") as (spark, logs):
        with LocalCluster(
            schedulers=1,
            executors=1,
            state_location=f"s3://bucket/{kind}",
            store_options={"endpoint_url": s3, **KEYS},
            app=tmp_path / "app.yaml",
            spark=spark,
            node_options={"max-merge-bytes": "7000000"},
        ) as cluster:
            expected = cluster.sql(GROUPS).to_pylist()
            assert sum(row["n"] for row in expected) == ROWS
            assert cluster.sql(GROUPS, engine="spark").to_pylist() == expected
            large = cluster.sql("select id, kind from orders order by id desc", engine="spark")
            assert large["id"].to_pylist() == list(range(ROWS - 1, -1, -1))
            cluster.sql("create table own (id bigint, kind varchar, pad varchar) partitioned by (bucket(2, id))")
            cluster.ingest("own", rows)
            cluster.sql("delete from own where id % 4 = 1")
            cluster.sql("alter table own add column note varchar default 'none'")
            left = "select count(*) as n, min(note) as note, sum(id) as s from own"
            assert cluster.sql(left, engine="spark").to_pylist() == cluster.sql(left).to_pylist()
            pairs = (
                "select count(*) as n, max(length(a.pad || b.pad)) as k from orders a join own b on a.id = b.id"
            )
            assert cluster.explain(pairs, engine="auto").startswith("engine: spark")
            assert cluster.sql(pairs, engine="auto").to_pylist() == [{"n": ROWS * 3 // 4, "k": 600}]
            with pytest.raises(SqlError, match="Spark refused the statement"):
                cluster.sql("select sum(id * 9000000000000000) as n from orders", engine="spark")
            names = [child.name() for child in psutil.Process(cluster.pid("scheduler-1")).children(recursive=True)]
            assert names.count("java") == 1  # the driver; beside a server what reads texts first
        assert not list((tmp_path / "spark").rglob("part-*.parquet"))
        if kind == "master":
            assert len(re.findall(r"Asked to launch executor app-", logs())) >= 1
        assert "s3cr3t-of-s3" not in logs()
