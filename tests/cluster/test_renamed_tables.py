"""ALTER TABLE … RENAME TO: a table has one name at any moment, whoever asks whom, and all of its rows under it."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import BallistaError, SqlError, WriteIncomplete

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def pair():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


@pytest.fixture
def table(pair):
    pair.sql("create table t (k bigint not null, v varchar default 'd') partitioned by (bucket(3, k))")
    pair.sql("insert into t select i, 'old' from range(12) r(i)")
    yield "t"
    for name in pair.sql("show tables")["name"].to_pylist():
        pair.sql(f'drop table "{name}"')


def both(cluster):
    urls = [member["address"] for member in cluster.members() if member["role"] == "scheduler"]
    return [connect(f"grpc://{url}") for url in urls]


@pytest.mark.parametrize("dialect", [None, "spark", "postgres"])
def test_every_scheduler_knows_the_new_name_at_once_and_the_old_one_is_free(pair, table, dialect):
    """Each step through one scheduler, its effect through the other."""
    one, other = both(pair)
    with one, other:
        one.sql("alter table t rename to u", dialect=dialect)
        assert other.sql("select count(*) n from u").to_pylist() == [{"n": 12}]
        for text in ("from t", "insert into t values (1, 'x')", "delete from t"):
            with pytest.raises(SqlError, match="'t' does not exist"):
                other.sql(text)
        other.sql("insert into u (k) values (12)")
        other.sql("create table t (x int) partitioned by (bucket(2, x))")  # beside the map of the renamed one
        one.sql("insert into t values (1), (2)")
        with pytest.raises(SqlError, match="'t' exists already"):
            one.sql("alter table u rename to t", dialect=dialect)
        one.sql("alter table t rename to w")
        other.sql("alter table if exists u rename to t", dialect=dialect)
        assert one.sql("select count(*) n, max(v) v from t").to_pylist() == [{"n": 13, "v": "old"}]
        assert sorted(other.sql("from w")["x"].to_pylist()) == [1, 2]
        other.sql("alter table t add column c int default 1")
        one.sql("update t set v = 'new' where k < 6")
        one.sql("delete from t where k = 12")
        assert other.sql("select count(*) n, sum(c) c from t where v = 'new'").to_pylist() == [{"n": 6, "c": 6}]
        one.sql("create or replace table w as select 1 as y")
        other.sql("alter table w rename to x")
        assert one.sql("from x").to_pylist() == [{"y": 1}]
        assert sorted(one.sql("show tables")["name"].to_pylist()) == ["t", "x"]


def test_what_cannot_be_is_said_and_nothing_is_renamed(pair, table):
    pair.sql("create table c (k int check (c.k > 0))")
    for text, said in (
        ("alter table t rename to c", "'c' exists already"),
        ("alter table nosuch rename to u", "'nosuch' does not exist"),
        ("alter table c rename to d", "a CHECK that names it"),
        ('alter table t rename to "a/b"', "cannot be in it"),
    ):
        with pytest.raises(BallistaError, match=said):
            pair.sql(text)
    pair.sql("alter table if exists nosuch rename to u")
    assert sorted(pair.sql("show tables")["name"].to_pylist()) == ["c", "t"]


def test_a_statement_that_is_sent_again_renames_once(pair, table):
    with pair.client() as client:
        client.sql("alter table t rename to u", token="once")
        client.sql("create table t (k int)")
        started = time.monotonic()
        client.sql("alter table t rename to u", token="once")
        assert client.sql("from t").schema.names == ["k"]
        client.sql("drop table u")
        client.sql("alter table t rename to u", token="once")
        assert client.sql("show tables")["name"].to_pylist() == ["t"]
        assert time.monotonic() - started < 60


def test_what_is_loaded_into_another_table_takes_the_place_of_one_under_statements(pair):
    """Rows of table n have n in each: readers of `now` see one table, whole, or none."""
    pair.sql("create table now (n int, i int) partitioned by (bucket(2, i))")
    pair.sql("insert into now select 0, i from range(8) r(i)")
    stop, wrong, done = threading.Event(), [], Counter()
    rows = Counter()

    def repeated(work):
        def run():
            with pair.client() as client:
                while not stop.is_set():
                    try:
                        work(client)
                        done[work.__name__] += 1
                    except SqlError as error:
                        if "does not exist" not in str(error):
                            wrong.append((work.__name__, error))
                    except WriteIncomplete:
                        done["incomplete"] += 1  # said, so that nobody takes it for nothing
                    except Exception as error:
                        wrong.append((work.__name__, error))
                        return

        return threading.Thread(target=run)

    def read(client):
        numbers = client.sql("select n from now where n >= 0")["n"].to_pylist()
        if len(numbers) != 8 or len(set(numbers)) != 1:
            wrong.append(numbers)

    def insert(client):
        rows["sent"] += 1
        client.sql(f"insert into now values (-1, {rows['sent']})")
        rows["there"] += 1

    workers = [repeated(work) for work in (read, insert)]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + 120
    number = 0
    try:
        while number < 3 or min(done["read"], done["insert"]) < 3:
            number += 1
            pair.sql("create table next (n int, i int) partitioned by (bucket(2, i))")
            pair.sql(f"insert into next select {number}, i from range(8) r(i)")
            pair.sql(f"alter table now rename to past{number}")
            pair.sql("alter table next rename to now")
            assert not wrong
            assert time.monotonic() < deadline, done
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not wrong
    names = pair.sql("show tables")["name"].to_pylist()
    assert sorted(names) == sorted(["now", *(f"past{n}" for n in range(1, number + 1))])
    found = sum(pair.sql(f"select count(*) c from {name} where n < 0")["c"].to_pylist()[0] for name in names)
    assert rows["there"] <= found <= rows["sent"]  # each acknowledged row, under one name or another
    for name in names:
        assert pair.sql(f"select count(*) c from {name} where n >= 0")["c"].to_pylist() == [8]
        pair.sql(f"drop table {name}")


@pytest.mark.long
def test_killed_nodes_leave_the_old_name_or_the_new_one():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000) as cluster:
        cluster.sql("create table t (k bigint not null) partitioned by (bucket(2, k))")
        cluster.sql("insert into t select i from range(10) r(i)")
        for number, (name, to) in enumerate((("t", "u"), ("u", "t")), 1):

            def send(name=name, to=to, number=number):
                with cluster.client() as client:
                    client.sql(f"alter table {name} rename to {to}", token=f"r{number}")

            worker = threading.Thread(target=send)
            worker.start()
            time.sleep(0.05 * number)
            cluster.kill(f"scheduler-{number}")
            worker.join()  # it was sent again to the other one
            assert cluster.sql("show tables")["name"].to_pylist() == [to]
            assert cluster.sql(f"select count(*) n from {to}").to_pylist() == [{"n": 10}]
            cluster.start(f"scheduler-{number}")
        cluster.sql("alter table t rename to u")
        for name in cluster.node_ids:
            cluster.kill(name)
        for name in sorted(cluster.node_ids, reverse=True):
            cluster.start(name)
        cluster.sql("insert into u values (10)")
        assert cluster.sql("select count(*) n from u").to_pylist() == [{"n": 11}]
