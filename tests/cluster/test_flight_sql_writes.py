"""The ADBC driver writes to a cluster of real processes."""

import re
import threading
import time
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import polars
import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=1, executors=2) as cluster:
        yield cluster


@pytest.fixture
def cursor(small):
    url = small.flight_sql_url()
    with flightsql.connect(url, autocommit=True) as connection, connection.cursor() as made:
        yield made


@pytest.fixture
def items(cursor):
    cursor.execute("create table items (id bigint not null, name varchar) partitioned by (bucket(4, id))")
    yield "items"
    cursor.execute("drop table items")


def rows(cursor, query="select * from items order by id", parameters=None):
    cursor.execute(query, parameters)
    return cursor.fetchall()


def test_statements_change_rows_and_say_how_many(cursor, items):
    cursor.execute("insert into items values (1, 'a'), (2, 'b'), (3, null)")
    assert cursor.rowcount == 3
    cursor.execute("update items set name = ? where id = ?", ("it's", 3))
    assert cursor.rowcount == 1
    cursor.execute("delete from items where id < ?", (2,))
    assert cursor.rowcount == 1
    assert rows(cursor) == [(2, "b"), (3, "it's")]


def test_executemany_inserts_every_row_once(cursor, items):
    cursor.executemany("insert into items (name, id) values (?, ?)", [(f"n{n}", n) for n in range(1_500)])
    assert rows(cursor, "select count(*), count(distinct id), min(name) from items") == [(1_500, 1_500, "n0")]


def test_a_stream_is_ingested_and_what_to_do_with_a_table_is_heeded(cursor, items):
    data = pa.table({"id": pa.array(range(50_000), pa.int64()), "name": ["x"] * 50_000})
    assert cursor.adbc_ingest(items, data.to_reader(max_chunksize=5_000), mode="append") == 50_000
    assert cursor.adbc_ingest(items, data.slice(0, 10), mode="append") == 10
    assert rows(cursor, "select count(*), count(distinct id) from items") == [(50_010, 50_000)]
    assert cursor.adbc_ingest(items, data.slice(0, 7), mode="replace") == 7
    assert rows(cursor, "select count(*) from items") == [(7,)]
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="exists already"):
        cursor.adbc_ingest(items, data, mode="create")
    assert rows(cursor, "select count(*) from items") == [(7,)]


def test_a_replacement_makes_the_table_that_is_not_there(cursor, small):
    data = pa.table({"id": [1, 2]})
    for _ in range(2):
        assert cursor.adbc_ingest("fresh", data, mode="replace") == 2
        assert rows(cursor, "select count(*), sum(id) from fresh") == [(2, 3)]
    assert small.client().ingest("fresher", data, mode="replace", token="load") == 2
    assert small.client().ingest("fresher", data, mode="replace", token="load") == 2
    assert rows(cursor, "select count(*) from fresher") == [(2,)]
    for table in ("fresh", "fresher"):
        cursor.execute(f"drop table {table}")


def test_a_replacement_with_other_columns_takes_the_place_of_the_table(cursor, small, items):
    cursor.execute("insert into items values (1, 'a')")
    other = pa.table({"id": pa.array([1, 2], pa.int64()), "price": [1.5, 2.5]})
    assert cursor.adbc_ingest(items, other, mode="replace") == 2
    assert rows(cursor) == [(1, 1.5), (2, 2.5)]
    assert rows(cursor, "show create table items")[0][0].endswith("PARTITIONED BY (bucket(4, id))")
    words = pa.table({"word": ["x"]})
    assert small.client().ingest(items, words, mode="replace", token="words") == 1
    cursor.execute("insert into items values ('y')")
    assert small.client().ingest(items, words, mode="replace", token="words") == 1  # sent again it does nothing
    assert rows(cursor, "select * from items order by word") == [("x",), ("y",)]


def test_a_new_table_is_made_for_what_is_ingested(cursor, small):
    frame = polars.DataFrame({"id": [1, 2], "at": ["x", "y"]})
    cursor.adbc_ingest("made", frame.to_arrow(), mode="create")
    assert rows(cursor, "select * from made order by id") == [(1, "x"), (2, "y")]
    cursor.adbc_ingest("made", frame.to_arrow(), mode="create_append")
    assert rows(cursor, "select count(*) from made") == [(4,)]
    cursor.execute("drop table made")
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="SQLSTATE 42P01"):
        rows(cursor, "select * from made")


def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(cursor, items):
    with pytest.raises(adbc_driver_manager.Error, match="SQLSTATE 2"):
        cursor.adbc_ingest(items, pa.table({"id": ["no number"], "name": ["x"]}), mode="append")
    with pytest.raises(adbc_driver_manager.Error, match="SQLSTATE 2"):
        cursor.execute("insert into items values (null, 'x')")
    assert rows(cursor) == []


def test_the_examples_of_the_guide_run_as_they_stand(small, capsys):
    text = (Path(__file__).parents[2] / "docs" / "guide-flight-sql.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4  # the others show the options of TLS, and a user with a password
    names = {}
    first = blocks[0].replace("grpc://127.0.0.1:50051", small.flight_sql_url())
    assert small.flight_sql_url() in first
    exec(first, names)
    assert capsys.readouterr().out == "{'kind': ['a', 'b'], 'n': [250, 250]}\nTrue\n"
    with flightsql.connect(small.flight_sql_url(), autocommit=True) as connection:
        exec(blocks[1], {"connection": connection})
    found = small.sql("select count(*) as n from events where id = 1000")
    assert found.to_pylist() == [{"n": 1}]


def test_the_parts_of_an_answer_show_an_atomic_statement_all_or_not_at_all(small, wait_until):
    """The driver fetches the rows from two executors, one after the other if it likes."""
    accounts = 20
    small.sql("create table accounts (id bigint not null, money bigint) partitioned by (bucket(8, id))")
    with small.client() as client:
        client.ingest("accounts", pa.table({"id": range(accounts), "money": [100] * accounts}))
    query = "select id, money from accounts"
    wait_until(lambda: "2 legs" in small.explain(query))
    done, seen = threading.Event(), set()

    def look():
        with (
            flightsql.connect(small.flight_sql_url(), autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            while not done.is_set():
                partitions, _schema = cursor.adbc_execute_partitions(query)
                found = []
                for partition in partitions:
                    time.sleep(0.05)
                    cursor.adbc_read_partition(partition)
                    found += cursor.fetchall()
                seen.add((len(partitions), len(found), sum(money for _, money in found)))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        with small.client() as client:
            for number in range(8):
                giver, taker = number % accounts, (number * 7 + 3) % accounts
                change = f"case id when {giver} then money - 10 else money + 10 end"
                client.sql(f"update accounts set money = {change} where id in ({giver}, {taker})", atomic=True)
    finally:
        done.set()
        reader.join()
    assert seen == {(2, accounts, accounts * 100)}
