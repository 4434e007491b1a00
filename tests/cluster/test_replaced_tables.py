"""CREATE OR REPLACE TABLE: the old table or the new one, whole, whoever asks whom, and nothing of both."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import BallistaError, SqlError

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def pair():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=10_000) as cluster:
        yield cluster


@pytest.fixture
def table(pair):
    pair.sql("create table t (k bigint not null, v varchar) partitioned by (bucket(4, k))")
    pair.sql("insert into t select i, 'old' from range(40) r(i)")
    yield "t"
    pair.sql("drop table if exists t")


def made(cluster, name: str = "t") -> str:
    return cluster.sql(f"show create table {name}")["statement"][0].as_py()


@pytest.mark.parametrize("dialect", [None, "spark", "postgres"])
def test_each_form_gives_the_new_table_and_nothing_of_the_old_one(pair, table, dialect):
    pair.sql("create or replace table t (k varchar, w int)", dialect=dialect)
    assert pair.sql("from t").num_rows == 0
    assert made(pair) == 'CREATE TABLE "t" ("k" VARCHAR, "w" INTEGER)'
    pair.sql("insert into t values ('a', 1)")
    pair.sql("create or replace table t as select range as k from range(3)", dialect="duckdb")
    assert sorted(pair.sql("from t")["k"].to_pylist()) == [0, 1, 2]
    pair.sql("create table s (d date, e int) partitioned by (e)")
    try:
        pair.sql("create or replace table t like s", dialect=dialect)
        assert made(pair) == 'CREATE TABLE "t" ("d" DATE, "e" INTEGER) PARTITIONED BY (e)'
        pair.sql("create or replace table fresh as select * from s", dialect=dialect)  # there is none yet
        assert pair.sql("from fresh").schema.names == ["d", "e"]
    finally:
        pair.sql("drop table s, fresh")
    if dialect == "spark":
        text = "create or replace table t (k bigint, v int) using vortex partitioned by (bucket(2, k))"
        pair.sql(text, dialect=dialect)
        assert made(pair).endswith("PARTITIONED BY (bucket(2, k)) WITH (file_format = 'vortex')")


def test_the_new_table_is_altered_filled_read_and_dropped_like_any_other(pair, table):
    for number in range(2):
        pair.sql("create or replace table t (k bigint primary key, v int default 1) partitioned by (bucket(3, k))")
        pair.sql("insert into t (k) select range from range(9)")
        pair.sql(f"alter table t add column c{number} int default {number}")
        pair.sql("update t set v = 2 where k < 3")
        pair.sql("delete from t where k = 8")
        rows = pair.sql(f"select count(*) n, sum(v) s, max(c{number}) c from t").to_pylist()
        assert rows == [{"n": 8, "s": 11, "c": number}]
    pair.sql("drop table t")
    with pytest.raises(SqlError, match="t"):
        pair.sql("from t")
    pair.sql("create table t (k int)")
    pair.sql("insert into t values (1)")
    assert pair.sql("from t").to_pylist() == [{"k": 1}]


def test_tables_that_were_co_located_with_the_old_one_stay_what_they_are(pair, table):
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    pair.create_table("mate", schema=schema, partition_by=["bucket(4, k)"], colocate_with="t")
    try:
        pair.sql("insert into mate select i from range(20) r(i)")
        for buckets in (2, 4):
            pair.sql(f"create or replace table t (k bigint not null) partitioned by (bucket({buckets}, k))")
            pair.sql("insert into t select i from range(30) r(i)")
            assert pair.sql("select count(*) n from t join mate using (k)").to_pylist() == [{"n": 20}]
    finally:
        pair.sql("drop table mate")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("create or replace table t as select * from t", "which its query reads"),
        (
            "create or replace table t as select * from range(3) where 1 in (select k from main.t)",
            "which its query",
        ),
        ("create or replace table if not exists t (k int)", "both OR REPLACE and IF NOT EXISTS"),
        ("create or replace table if not exists t like t", "say one of them"),
        ("create or replace table t as select nothing from range(3)", "nothing"),
        ("create or replace table t as select error('no') from range(3)", "no"),
        ("create or replace table t (k int) partitioned by (bucket(2, nothing))", "nothing"),
    ],
)
def test_what_is_refused_or_fails_leaves_the_old_table(pair, table, statement, said):
    with pytest.raises(BallistaError, match=said):
        pair.sql(statement)
    assert pair.sql("select count(*) n, min(v) v from t").to_pylist() == [{"n": 40, "v": "old"}]


def test_a_statement_that_is_sent_again_replaces_once(pair, table):
    with pair.client() as client:
        text = "create or replace table t as select range as k from range(5)"
        assert client.sql(text, token="once").to_pylist() == [{"affected_rows": 5}]
        client.sql("delete from t where k = 0")
        for _ in range(2):
            assert client.sql(text, token="once").to_pylist() == [{"affected_rows": 5}]
        assert client.sql("select count(*) n from t").to_pylist() == [{"n": 4}]
        client.sql("drop table t")
        client.sql(text, token="once")
        with pytest.raises(SqlError):
            client.sql("from t")
        client.sql("create or replace table t (k int)", token="columns")
        client.sql("insert into t values (1)")
        client.sql("create or replace table t (k int)", token="columns")
        assert client.sql("from t").to_pylist() == [{"k": 1}]


def test_one_statement_sent_many_times_at_once_replaces_once(pair, table):
    text, found = "create or replace table t as select range as k from range(5)", []

    def send():
        with pair.client() as client:
            found.append(client.sql(text, token="at once").to_pylist())

    workers = [threading.Thread(target=send) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [[{"affected_rows": 5}]] * 4
    assert sorted(pair.sql("from t")["k"].to_pylist()) == list(range(5))


def test_every_scheduler_knows_it_at_once(pair, table):
    """Each step through one scheduler, its effect through the other."""
    urls = [member["address"] for member in pair.members() if member["role"] == "scheduler"]
    first, second = (connect(f"grpc://{url}") for url in urls)
    with first, second:
        for number in range(4):
            one, other = (first, second) if number % 2 else (second, first)
            one.sql(f"create or replace table t as select {number} as c{number}, i from range(20) r(i)")
            assert other.sql(f"select count(*) n, min(c{number}) c from t").to_pylist() == [{"n": 20, "c": number}]
            one.sql(
                f"create or replace table t (d{number} int) partitioned by (bucket({number % 3 + 1}, d{number}))"
            )
            assert other.sql(f"insert into t values ({number}), (1)").to_pylist() == [{"affected_rows": 2}]
            assert sorted(one.sql("from t")[f"d{number}"].to_pylist()) == sorted([number, 1])


def test_readers_see_one_table_or_the_other_and_writers_lose_nothing(pair):
    """Rows of table n have n in each, and there are n % 5 + 4 of them; what is inserted later is in the newest one.

    Statements through both schedulers, tables of changing columns and partitions; none fails.
    """
    pair.sql("create table t as select 0 as n, i as k0 from range(4) r(i)")
    pair.sql("create table log (n int)")
    stop, wrong, done = threading.Event(), [], Counter()
    newest = [0]

    def repeated(work):
        def run():
            with pair.client() as client:
                while not stop.is_set():
                    try:
                        work(client)
                        done[work.__name__] += 1
                    except Exception as error:
                        wrong.append((work.__name__, error))
                        return

        return threading.Thread(target=run)

    def read(client):
        known = newest[0]
        rows = client.sql("from t").to_pylist()
        numbers = {row["n"] for row in rows if row["n"] >= 0}
        (number,) = numbers
        names = {name for row in rows for name in row}
        if number < known or names != {"n", f"k{number}"} or sum(r["n"] >= 0 for r in rows) != number % 5 + 4:
            wrong.append((known, rows))

    def joined(client):
        rows = client.sql(
            "select t.n, count(*) c from t join log on log.n = 1 where t.n >= 0 group by 1"
        ).to_pylist()
        wrong.extend(row for row in rows if row["c"] != row["n"] % 5 + 4)

    def insert(client):
        client.sql("insert into t (n) values (-1), (-2)")

    def delete(client):
        client.sql("delete from t where n = -1")

    ways = (read, joined, insert, delete)
    pair.sql("insert into log values (1)")
    workers = [repeated(work) for work in ways]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + 120
    try:
        while newest[0] < 5 or min(done[work.__name__] for work in ways) < 3:
            number = newest[0] + 1
            keys = "" if number % 2 else f"partitioned by (bucket({number % 3 + 1}, k{number}))"
            query = f"select {number} as n, i as k{number} from range({number % 5 + 4}) r(i)"
            pair.sql(f"create or replace table t {keys} as {query}")
            newest[0] = number
            assert not wrong
            assert time.monotonic() < deadline, done
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not wrong
    with pair.client() as client:  # what is acknowledged now is there
        before = client.sql("select count(*) n from t where n = -7").to_pylist()
        client.sql("insert into t (n) values (-7)")
        assert client.sql("select count(*) n from t where n = -7").to_pylist() == [{"n": before[0]["n"] + 1}]
        client.sql("drop table t, log")


def test_two_that_replace_at_once_leave_one_of_the_two_whole(pair, table):
    texts = [f"create or replace table t as select {n} as n{n}, i from range({n} + 3) r(i)" for n in range(4)]
    errors = []

    def send(text):
        try:
            with pair.client() as client:
                client.sql(text)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=send, args=(text,)) for text in texts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    rows = pair.sql("from t").to_pylist()
    number = int(next(name for name in rows[0] if name != "i").removeprefix("n"))
    assert rows == [{f"n{number}": number, "i": i} for i in range(number + 3)] or sorted(
        row["i"] for row in rows
    ) == list(range(number + 3))


@pytest.mark.long
def test_killed_nodes_leave_the_old_table_or_the_new_one():
    """A scheduler that dies in the middle, then everything: the table is one of the two, and goes on."""
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000) as cluster:
        cluster.sql("create table t (k bigint not null, v int) partitioned by (bucket(2, k))")
        cluster.sql("insert into t select i, 0 from range(10) r(i)")
        for number in (1, 2):
            name = f"scheduler-{number}"
            text = f"create or replace table t as select i as k, {number} as v from range(10) r(i)"

            def send(text=text, number=number):
                with cluster.client() as client:
                    client.sql(text, token=f"t{number}")

            worker = threading.Thread(target=send)
            worker.start()
            time.sleep(0.05 * number)
            cluster.kill(name)
            worker.join()  # it was sent again to the other one
            assert cluster.sql("select count(*) n, min(v) a, max(v) b from t").to_pylist() == [
                {"n": 10, "a": number, "b": number}
            ]
            cluster.start(name)
        for name in ("executor-1", "executor-2", "scheduler-1", "scheduler-2"):
            cluster.kill(name)
        for name in ("scheduler-1", "scheduler-2", "executor-1", "executor-2"):
            cluster.start(name)
        cluster.sql("insert into t values (10, 2)")
        assert cluster.sql("select count(*) n, min(v) a from t").to_pylist() == [{"n": 11, "a": 2}]
