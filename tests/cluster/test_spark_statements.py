"""Statements that clients send to Spark, through real processes: the client dies, two at once, Spark dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SqlError, UnsupportedExpression
from ballista_py.testing import TcpProxy

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

ROWS = 400
EVENTS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
COUNT = "select count(*) as n from events"
LONG = f"{COUNT} a, events b, events c, events d where a.id + b.id + c.id + d.id < 0"
ENDLESS = f"{COUNT} a, events b, events c, events d, events e where a.id + b.id + c.id + d.id + e.id < 0"
CLIENT = """
import sys
from ballista_py import connect
with connect(sys.argv[1]) as client:
    client._schedulers.addresses = (sys.argv[1],)  # the cluster's own would lead around a proxy
    client.sql(sys.argv[2], engine="spark")
"""
PAIRS = "select a.id * 400 + b.id as n from events a, events b"
LARGE = f"{PAIRS}, (select id from events where id < 40) c"  # 51 MB, more than a link has under way


@pytest.fixture(scope="module")
def cluster():
    """A scheduler whose Spark has started, and an executor."""
    with LocalCluster(schedulers=1, executors=1) as made:
        made.create_table("events", schema=EVENTS, partition_by=["bucket(32, id)"])
        made.ingest("events", pa.table({"id": range(ROWS), "kind": [f"k{n % 7}" for n in range(ROWS)]}, EVENTS))
        assert made.sql(COUNT, engine="spark").to_pylist() == [{"n": ROWS}]
        yield made


def spawn(run):
    threading.Thread(target=run, daemon=True).start()


def statements(cluster):
    """How each statement on Spark ended, the last one first."""
    return [t["outcome"] for t in cluster.shown("scheduler-1", "/tasks")["tasks"] if t["kind"] == "spark"]


def jvm(cluster):
    children = psutil.Process(cluster.pid("scheduler-1")).children(recursive=True)
    return next(child for child in children if "java" in child.name())


def wait_until_at_work(cluster, wait_until):
    """Until Spark has computed for a while; the statement under way is the only one."""
    spark = jvm(cluster)
    before_s = spark.cpu_times().user
    wait_until(lambda: statements(cluster)[0] == "running" and spark.cpu_times().user > before_s + 1)


def test_a_statement_whose_client_is_killed_is_ended_and_the_next_one_is_answered(cluster, wait_until):
    process = subprocess.Popen([sys.executable, "-c", CLIENT, cluster.addresses()[0], LONG])
    try:
        wait_until(lambda: statements(cluster)[0] == "running")
        wait_until_at_work(cluster, wait_until)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: statements(cluster)[0] != "running")
    assert statements(cluster)[0] == "cancelled"
    assert cluster.sql(COUNT, engine="spark").to_pylist() == [{"n": ROWS}]
    idle = '\nnode_tasks_active{node_id="scheduler-1",role="scheduler"} 0.0'
    wait_until(lambda: idle in cluster.shown("scheduler-1", "/metrics"))


def test_statements_of_two_clients_run_on_one_spark_at_once(cluster):
    wanted = {"k1": 57, "k6": 57, "k0": 58}

    def ask(kind):
        with cluster.client() as client:
            return [client.sql(f"{COUNT} where kind = '{kind}'", engine="spark").to_pylist() for _ in range(3)]

    with ThreadPoolExecutor(len(wanted)) as threads:
        for kind, found in zip(wanted, threads.map(ask, wanted), strict=True):
            assert found == [[{"n": wanted[kind]}]] * 3


def test_a_table_that_was_altered_is_read_as_it_is_now(cluster):
    cluster.sql("create table altered (id bigint, a int, b varchar) partitioned by (bucket(2, id))")
    cluster.sql("insert into altered values (1, 1, 'x'), (2, 2, 'y')")
    for step in ("drop column a", "add column a bigint default 9", "rename b to c", "add column d int"):
        cluster.sql(f"alter table altered {step}")
    cluster.sql("insert into altered values (3, 'z', 3, 3)")
    found = cluster.sql("select c, a from altered where a = 9 and id = 2", engine="spark")
    assert found.to_pylist() == [{"c": "y", "a": 9}]
    cluster.sql("drop table altered")


def test_what_spark_fails_at_is_an_error_in_one_line_and_the_cluster_goes_on(cluster):
    with cluster.client() as client:
        with pytest.raises(SqlError, match="by zero") as caught:
            client.sql("select id // (id - id) as n from events", engine="spark")
        assert "\n" not in caught.value.message
        with pytest.raises(UnsupportedExpression, match=r"CAST.*without engine"):
            client.sql("select cast(kind as integer) as n from events", engine="spark")
        assert client.sql(COUNT, engine="spark").to_pylist() == [{"n": ROWS}]


def answers(cluster):
    return cluster.data_dir("scheduler-1") / "answers"


def test_a_large_answer_passes_through_the_disk_in_order_and_leaves_nothing(cluster):
    rows = cluster.sql(f"{PAIRS} order by n desc", engine="spark")
    assert rows["n"].to_pylist() == list(range(ROWS * ROWS - 1, -1, -1))
    assert list(answers(cluster).iterdir()) == []


@contextmanager
def a_client_that_reads_no_more(cluster, wait_until, statement):
    """A process that waits for an answer behind a link that went dead; the link and the process."""
    with TcpProxy(cluster.addresses()[0], spawn) as proxy:
        process = subprocess.Popen([sys.executable, "-c", CLIENT, proxy.address, statement])
        try:
            wait_until(lambda: statements(cluster)[0] == "running")
            proxy.mood = "stall"
            yield proxy, process
        finally:
            process.kill()
            process.wait()


def test_an_answer_whose_client_is_gone_while_it_reads_is_dropped(cluster, wait_until):
    with a_client_that_reads_no_more(cluster, wait_until, LARGE) as (proxy, _):
        wait_until(lambda: any(answers(cluster).glob("*/*.arrow")))
        time.sleep(3)
        assert statements(cluster)[0] == "running"
        assert any(answers(cluster).iterdir())
        proxy.mood = "cut"
        wait_until(lambda: statements(cluster)[0] != "running")
    assert statements(cluster)[0] == "cancelled"
    wait_until(lambda: not any(answers(cluster).iterdir()))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("statement", [LARGE, ENDLESS], ids=["amid-its-answer", "amid-its-jobs"])
def test_a_statement_whose_client_is_behind_a_dead_link_is_ended(cluster, statement):
    """Nothing tells the scheduler but that nobody reads, for up to 95 + 120 s; the client is stopped, lest it close."""

    def wait_until(condition):
        until = time.monotonic() + 400
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.5)

    with a_client_that_reads_no_more(cluster, wait_until, statement) as (_, process):
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: statements(cluster)[0] != "running")
        assert statements(cluster)[0] != "done"
        wait_until(lambda: not any(answers(cluster).iterdir()))
    assert cluster.sql(COUNT, engine="spark").to_pylist() == [{"n": ROWS}]


@pytest.mark.long
def test_a_statement_whose_spark_is_killed_is_run_again_and_its_client_sees_nothing_of_it(cluster, wait_until):
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(cluster.sql, LONG, engine="spark")
        wait_until(lambda: statements(cluster)[0] == "running")
        wait_until_at_work(cluster, wait_until)
        first = jvm(cluster)
        first.kill()
        assert answer.result(timeout=300).to_pylist() == [{"n": 0}]
        assert jvm(cluster).pid != first.pid


def test_a_table_with_a_blank_in_its_name_is_one_on_spark(cluster):
    cluster.sql('create table "größe 1" (a bigint) partitioned by (bucket(2, a))')
    cluster.sql('insert into "größe 1" values (1), (2)')
    try:
        for sql, dialect in (
            ('select max(a) as s from "größe 1"', None),
            ("select max(a) as s from `größe 1`", "spark"),
        ):
            assert cluster.client().sql(sql, engine="spark", dialect=dialect).to_pylist() == [{"s": 2}]
    finally:
        cluster.sql('drop table "größe 1"')
