"""What happens to an answer under way: its client dies, an executor dies, a leg fails, its table is another one.

Through the public client, whose rows come by way of a scheduler, and through the driver of Flight SQL, which fetches
what needs no merge from the executors themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

pytestmark = pytest.mark.cluster

ROWS = 10_000
EXECUTORS = ("executor-1", "executor-2")
ITEMS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
PAIRS = "select a.id, b.id as other from items a join items b on a.k = b.k"  # 1,562,500 rows, where they are
MANY_PAIRS = (
    PAIRS.replace("select ", "select n, ")
    + " cross join (values (1), (2), (3), (4), (5), (6), (7), (8)) as numbers(n)"
)
ENDLESS = (  # each leg joins its own partitions, and finds nothing for hours
    "from items a join items b on a.k = b.k join items c on b.k = c.k join items d on c.k = d.k "
    "where a.id + b.id + c.id + d.id = -1"
)
WAYS = ("client", "driver")
FAILURES = (BallistaError, adbc_driver_manager.Error, OSError, pa.ArrowException)
READER = {
    "client": """
import sys
from ballista_py import connect
with connect(sys.argv[1]) as client:
    client.sql(sys.argv[2])
""",
    "driver": """
import sys
import adbc_driver_flightsql.dbapi as flightsql
with flightsql.connect("grpc://" + sys.argv[1], autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute(sys.argv[2])
    cursor.fetch_arrow_table()
""",
}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=1_500) as made:
        made.sql("create table items (id bigint not null, k bigint not null) partitioned by (bucket(8, k))")
        made.ingest("items", pa.table({"id": range(ROWS), "k": [n % 64 for n in range(ROWS)]}, ITEMS))
        yield made


def tasks(cluster, node_id, text):
    """How each task whose statement or fragment has `text` ended, the last one first."""
    return [t["outcome"] for t in cluster.shown(node_id, "/tasks")["tasks"] if text in t["text"]]


def both_serve(cluster):
    try:
        plan = cluster.explain(PAIRS)
    except BallistaError:
        return False
    return all(name in plan for name in EXECUTORS)


@contextmanager
def reading(cluster, way, sql):
    """The batches of an answer."""
    if way == "client":
        with cluster.client() as client:
            stream = client.stream(sql)
            try:
                yield iter(stream)
            finally:
                stream.cancel()
        return
    connection = flightsql.connect(cluster.flight_sql_url(), autocommit=True)
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
        yield iter(cursor.fetch_record_batch())
    finally:
        for opened in (cursor, connection):
            with suppress(adbc_driver_manager.Error):  # nobody may be there to hear it
                opened.close()


@pytest.mark.parametrize(
    ("way", "asked"),
    [("client", "a.id"), ("client", "count(*)"), ("driver", "a.id"), ("driver", "count(*)")],
    ids=["client", "client-merge", "driver", "driver-merge"],
)
def test_the_legs_of_a_client_that_is_killed_are_cancelled(cluster, way, asked, wait_until):
    wait_until(lambda: both_serve(cluster))
    own = f"{sum(map(ord, way + asked))} = {sum(map(ord, way + asked))}"  # names this statement among all others
    sql = f"select {asked} {ENDLESS} and a.k + {own.split()[0]} <> -7"
    mark = own.split()[0]
    process = subprocess.Popen([sys.executable, "-c", READER[way], cluster.addresses()[0], sql])
    try:
        wait_until(lambda: [tasks(cluster, name, mark) for name in EXECUTORS] == [["running"]] * 2)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: [tasks(cluster, name, mark) for name in EXECUTORS] == [["cancelled"]] * 2)
    scheduler = tasks(cluster, "scheduler-1", mark)
    direct = way == "driver" and asked == "a.id"  # its legs were asked for by the driver
    assert scheduler == ([] if direct else ["cancelled"])
    busy = re.compile(r"^(?:node_tasks_active|node_open_calls)\S* ([1-9]\S*)$", re.MULTILINE)
    wait_until(lambda: not [n for n in EXECUTORS if busy.search(cluster.shown(n, "/metrics"))])


@pytest.mark.parametrize("way", WAYS)
def test_a_leg_that_fails_while_another_streams_fails_the_answer_and_stops_the_other(cluster, way, wait_until):
    wait_until(lambda: both_serve(cluster))
    marked = 7_777_777 + len(way)
    sql = PAIRS.replace(
        "b.id as other",
        f"cast(case when a.id = 0 and b.id > 9000 then 'no' else '{marked}' end as bigint) as other",
    )
    with reading(cluster, way, sql) as batches, pytest.raises(FAILURES, match="string 'no'"):
        list(batches)
    ends = lambda: [tasks(cluster, name, str(marked)) for name in EXECUTORS]  # noqa: E731
    wait_until(lambda: all(found and "running" not in found for found in ends()))
    assert any("planning.sql" in found for found in ends()), ends()


@pytest.mark.parametrize("way", WAYS)
def test_an_executor_that_is_killed_amid_its_leg_makes_an_error_and_never_a_short_answer(cluster, way, wait_until):
    wait_until(lambda: both_serve(cluster))
    # So many rows that those of one bucket, which may be all that it has, are more than any buffer holds.
    with reading(cluster, way, MANY_PAIRS) as batches:
        assert next(batches).num_rows
        cluster.kill("executor-1")
        try:
            with pytest.raises(FAILURES):
                for _ in batches:
                    pass
        finally:
            cluster.start("executor-1")
    wait_until(lambda: both_serve(cluster))
    with reading(cluster, way, "select count(*) as n from items") as batches:
        assert [batch.to_pylist() for batch in batches] == [[{"n": ROWS}]]


@pytest.mark.parametrize("way", WAYS)
def test_a_table_that_is_another_one_between_plan_and_legs_is_answered_whole_or_not_at_all(
    cluster, way, wait_until
):
    """One scheduler drops the table and makes it anew, with other rows, while the other one answers."""
    over, seen, wrong = threading.Event(), set(), []
    first, second = (address.partition("://")[2] or address for address in cluster.addresses())
    sizes = (300, 500)

    def ask():
        while not over.is_set():
            try:
                if way == "client":
                    from ballista_py import connect

                    with connect(second) as client:
                        found = client.sql("select id from fleeting")
                else:
                    with (
                        flightsql.connect(f"grpc://{second}", autocommit=True) as connection,
                        connection.cursor() as cursor,
                    ):
                        cursor.execute("select id from fleeting")
                        found = cursor.fetch_arrow_table()
            except FAILURES:
                continue
            seen.add(found.num_rows)
            if sorted(found["id"].to_pylist()) not in ([], *(list(range(size)) for size in sizes)):
                wrong.append(found)

    asking = threading.Thread(target=ask)
    asking.start()
    from ballista_py import connect

    try:
        with connect(first) as client:
            for number in range(6):
                client.sql("create table fleeting (id bigint not null) partitioned by (bucket(8, id))")
                client.ingest("fleeting", pa.table({"id": range(sizes[number % 2])}), atomic=True)
                wanted = sizes[number % 2]
                wait_until(lambda wanted=wanted: wanted in seen)
                seen.clear()
                client.sql("drop table fleeting")
    finally:
        over.set()
        asking.join(60)
    assert not wrong, (wrong[0].num_rows, wrong[0]["id"].to_pylist()[:20])
