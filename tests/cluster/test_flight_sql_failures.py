"""Flight SQL while executors die, move their partitions and are told to stop."""

import threading
import time
from contextlib import suppress

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import psutil
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import PartitionsUnassigned

pytestmark = pytest.mark.cluster

ROWS = 20_000
QUERY = "select id from items"


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=1_500) as made:
        made.sql("create table items (id bigint not null, k bigint not null) partitioned by (bucket(8, k))")
        with made.client() as client:
            client.ingest("items", pa.table({"id": range(ROWS), "k": [n % 64 for n in range(ROWS)]}))
        yield made


def legs(cluster, query=QUERY):
    """Who would run a leg of the query now."""
    try:
        plan = cluster.explain(query)
    except PartitionsUnassigned:
        return set()
    return {name for name in ("executor-1", "executor-2") if name in plan}


def running_legs(cluster):
    """How many executors compute a leg now."""
    sql = "select count(distinct node_id) from runtime.task_history where task = 'leg' and outcome = 'running'"
    return cluster.sql(sql).column(0)[0].as_py()


def read(cursor, partitions):
    found = []
    for partition in partitions:
        cursor.adbc_read_partition(partition)
        found += cursor.fetch_arrow_table()["id"].to_pylist()
    return sorted(found)


def test_a_cancelled_statement_stops_at_the_executors(cluster, wait_until):
    wait_until(lambda: len(legs(cluster)) == 2)
    endless = (  # each leg joins its own partitions, and finds nothing for hours
        "select a.id from items a join items b on a.k = b.k join items c on b.k = c.k join items d on c.k = d.k "
        "where a.id + b.id + c.id + d.id = -1"
    )
    processes = [psutil.Process(cluster.pid(name)) for name in ("executor-1", "executor-2", "scheduler-1")]

    def busy_s(for_s=0.4):
        before = [sum(process.cpu_times()[:2]) for process in processes]
        time.sleep(for_s)
        return sum(sum(p.cpu_times()[:2]) - b for p, b in zip(processes, before, strict=True))

    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        assert "merge: none" in cluster.explain(endless)
        cursor.execute(endless)
        reader = cursor.fetch_record_batch()
        wait_until(lambda: running_legs(cluster) == 2)
        cursor.adbc_cancel()
        with pytest.raises((connection.Error, OSError, pa.ArrowException)):
            reader.read_all()
        wait_until(lambda: running_legs(cluster) == 0)
        wait_until(lambda: busy_s() < 0.2)  # within a second, when nothing else runs
        cursor.execute("select count(*) from items")
        assert cursor.fetchall() == [(ROWS,)]


def test_parts_are_read_exactly_once_whoever_died_or_owns_them_since_they_were_named(cluster, wait_until):
    wait_until(lambda: len(legs(cluster)) == 2)
    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        partitions, _schema = cursor.adbc_execute_partitions(QUERY)
        assert len(partitions) == 2
        cluster.kill("executor-1")
        wait_until(lambda: legs(cluster) == {"executor-2"})
        cluster.wait_until_loaded("items")
        assert read(cursor, partitions) == list(range(ROWS))
        cluster.start("executor-1")
        wait_until(lambda: len(legs(cluster)) == 2)
        cluster.wait_until_loaded("items")
        assert read(cursor, partitions) == list(range(ROWS))
        cursor.execute("drop table items")
        cursor.execute("create table items (id bigint not null, k bigint not null) partitioned by (bucket(8, k))")
        with pytest.raises(connection.Error):
            read(cursor, partitions)


@pytest.mark.long
def test_what_is_ingested_under_a_name_is_there_once_whatever_dies_meanwhile():
    """A client that sends again under the same token until it is told how many rows were taken."""
    rows, loads = 5_000, 40
    with LocalCluster(schedulers=2, executors=3, ttl_ms=1_500) as cluster:
        cluster.sql("create table loaded (id bigint not null, load bigint) partitioned by (bucket(8, id))")
        deaths = threading.Event()

        def kill():
            number = 0
            while not deaths.wait(2):
                name = f"executor-{number % 3 + 1}"
                number += 1
                cluster.kill(name)
                cluster.start(name)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for load in range(loads):
                ingest(cluster, f"load-{load}", pa.table({"id": range(rows), "load": [load] * rows}))
        finally:
            deaths.set()
            killer.join()
        cluster.wait_until_loaded("loaded")
        found = cluster.sql(
            "select count(*) as n, count(distinct (id, load)) as different from loaded"
        ).to_pylist()
    assert found == [{"n": rows * loads, "different": rows * loads}]


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the driver closes a statement twice
@pytest.mark.parametrize("victim", ["executor-1", "scheduler-1"])
def test_a_stream_whose_node_dies_ends_with_an_error_and_is_never_short(victim, wait_until):
    """The driver reads rows from executors, and what has to be merged from the scheduler."""
    query = "select * from wide" if victim == "executor-1" else "select * from wide order by id"
    with LocalCluster(schedulers=1, executors=2, ttl_ms=1_500) as cluster:
        cluster.sql("create table wide (id bigint not null, text varchar) partitioned by (bucket(8, id))")
        with cluster.client() as client:
            for number in range(4):
                ids = range(number * 250_000, (number + 1) * 250_000)
                client.ingest("wide", pa.table({"id": ids, "text": ["x" * 200] * 250_000}))
        wait_until(lambda: len(legs(cluster, "select * from wide")) == 2)
        connection = flightsql.connect(cluster.flight_sql_url(), autocommit=True)
        cursor = connection.cursor()
        cursor.execute(query)
        reader = cursor.fetch_record_batch()
        assert reader.read_next_batch().num_rows
        cluster.kill(victim)
        with pytest.raises((connection.Error, OSError, pa.ArrowException)):
            reader.read_all()
        for opened in (cursor, connection):
            with suppress(connection.Error):  # nobody is there to hear it
                opened.close()


def ingest(cluster, name, data):
    header = {"adbc.flight.sql.rpc.call_header.ballista-token": name}
    deadline = time.monotonic() + 120
    while True:
        try:
            with (
                flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection,
                connection.cursor(adbc_stmt_kwargs=header) as cursor,
            ):
                assert cursor.adbc_ingest("loaded", data, mode="append") == data.num_rows
                return
        except adbc_driver_manager.Error:
            assert time.monotonic() < deadline
