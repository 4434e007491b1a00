"""INSERT OVERWRITE replaces all rows, or those of the partitions that it names, at one instant and once."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, SqlError, UnsupportedExpression

pytestmark = pytest.mark.cluster
DIALECTS = pytest.mark.parametrize("dialect", [None, "spark"])


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=2) as cluster:
        cluster.sql("create table t (a int, b varchar default 'd', k int, j varchar) partitioned by (k, j)")
        cluster.sql("create table s (a int, b varchar)")
        cluster.sql("insert into s values (7, 'x'), (8, 'y')")
        cluster.sql("create table h (a int, k int) partitioned by (k, bucket(2, a))")
        cluster.sql("create table only_buckets (a int, k int) partitioned by (bucket(2, k))")
        yield cluster


@pytest.fixture
def filled(cluster):
    cluster.sql("truncate t")
    cluster.sql("insert into t values (1, 'p', 1, 'u'), (2, 'q', 1, 'v'), (3, 'r', 2, 'u'), (4, 's', null, 'u')")
    return cluster


def rows(cluster, table: str = "t") -> list[tuple]:
    return sorted((tuple(row.values()) for row in cluster.sql(f"select * from {table}").to_pylist()), key=repr)


@DIALECTS
def test_without_partition_every_row_is_replaced(filled, dialect):
    assert filled.sql("insert overwrite t values (9, 'z', 3, 'w')", dialect=dialect)[
        "affected_rows"
    ].to_pylist() == [1]
    assert rows(filled) == [(9, "z", 3, "w")]
    filled.sql("insert overwrite table t (a, k, j) select a, a, b from s", dialect=dialect)
    assert rows(filled) == [(7, "d", 7, "x"), (8, "d", 8, "y")]
    filled.sql("with n as (select * from s where a > 8) insert overwrite t select a, b, a, b from n")
    assert rows(filled) == []


@DIALECTS
def test_with_partition_its_rows_alone_are_replaced(filled, dialect):
    filled.sql("insert overwrite t partition (k = 1, j = 'u') select * from s", dialect=dialect)
    others = [(2, "q", 1, "v"), (3, "r", 2, "u"), (4, "s", None, "u")]
    assert rows(filled) == [*others, (7, "x", 1, "u"), (8, "y", 1, "u")]
    filled.sql("insert overwrite t partition (k = null, J = 'u') (b) values ('n')", dialect=dialect)
    filled.sql("insert overwrite table t partition (k = 1, j = 'v') table s", dialect=dialect)
    filled.sql("insert overwrite t partition (k = 5, j = 'it''s') by name select 'm' as b", dialect=None)
    filled.sql("insert overwrite t partition (j = 'u', k = 2) select * from s where false", dialect=dialect)
    assert rows(filled) == sorted(
        [
            *((7, "x", 1, "u"), (8, "y", 1, "u"), (None, "n", None, "u")),
            *((7, "x", 1, "v"), (8, "y", 1, "v"), (None, "m", 5, "it's")),
        ],
        key=repr,
    )


def test_partitions_made_of_more_than_the_column_go_with_it(cluster):
    cluster.sql("insert overwrite h select range, range % 3 from range(30)")
    cluster.sql("insert overwrite h partition (k = 1) select 100")
    assert rows(cluster, "h") == sorted([*((n, n % 3) for n in range(30) if n % 3 != 1), (100, 1)], key=repr)


def test_a_statement_sent_again_replaces_nothing_anew(filled):
    client = filled.client()
    client.sql("insert overwrite t partition (k = 1, j = 'u') values (5, 'once')", token="over-1")
    filled.sql("insert into t values (6, 'later', 1, 'u')")
    again = client.sql("insert overwrite t partition (k = 1, j = 'u') values (5, 'once')", token="over-1")
    assert again["affected_rows"].to_pylist() == [1]
    assert {row[1] for row in rows(filled)} >= {"once", "later"}


def test_by_flight_sql(filled):
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with dbapi.connect(filled.flight_sql_url()) as connection, connection.cursor() as cursor:
        cursor.execute("insert overwrite t partition (k = 1, j = 'u') values (?, ?)", (5, "bound"))
    assert (5, "bound", 1, "u") in rows(filled)
    assert len(rows(filled)) == 4


def test_readers_see_the_rows_of_before_or_those_of_after(cluster):
    """Partitions of both values of `j` are replaced by each statement; no answer mixes two of them."""
    cluster.sql("create table g (n int, k int, b int) partitioned by (k, bucket(4, b))")
    cluster.sql("insert overwrite g partition (k = 1) select 0, range from range(8)")
    stop = threading.Event()
    failed: list[BaseException] = []

    def replace(first: int) -> None:
        client = cluster.client()
        number = first
        try:
            while not stop.is_set():
                client.sql(f"insert overwrite g partition (k = 1) select {number}, range from range(8)")
                number += 2
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=replace, args=(first,)) for first in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(15):
            found = cluster.sql("select n, count(*) as c from g group by n").to_pylist()
            assert [row["c"] for row in found] == [8], found
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not failed
    cluster.sql("drop table g")


@pytest.mark.parametrize(
    ("statement", "dialect", "named"),
    [
        ("insert overwrite t select * from t", None, "its query reads"),
        ("insert overwrite t select s.* , 1, 'x' from s join main.t on true", None, "its query reads"),
        ("insert overwrite t select * from t", "spark", "its query reads"),
        ("insert overwrite t partition (k) values (1, 'x', 1, 'u')", "spark", "give each column of PARTITION"),
        ("insert overwrite t partition (k = 1, j) values (1, 'x', 'u')", "spark", "give each column of PARTITION"),
        ("insert overwrite t partition (k = 1) values (1, 'x', 'u')", None, "j has none"),
        ("insert overwrite t partition (k = 1, j = 'u', k = 2) values (1, 'x')", None, "'k' is named twice"),
        ("insert overwrite t partition (k = 1, j = 'u') (a, k) values (1, 2)", None, "'k' is named twice"),
        (
            "insert overwrite t partition (k = 1, j = 'u') by name select 1 as a, 2 as k",
            None,
            "'k' is named twice",
        ),
        ("insert overwrite t partition (k = a, j = 'u') values (1, 'x')", None, "its value is a constant"),
        (
            "insert overwrite t partition (k = 1 + random(), j = 'u') values (1, 'x')",
            None,
            "its value is a constant",
        ),
        ("insert overwrite t partition (k = 'x', j = 'u') values (1, 'x')", None, "Could not convert"),
        ("insert overwrite t partition (a = 1) values ('x', 1, 'u')", None, "not made of this column itself"),
        ("insert overwrite only_buckets partition (k = 1) values (1)", "spark", "NOT MATCHED BY SOURCE"),
        ("insert overwrite t partition (k = 1, j = 'u') if not exists values (1, 'x')", None, "IF NOT EXISTS"),
        ("insert overwrite t partition values (1)", None, "brackets"),
        ("insert overwrite directory '/tmp/x' select 1", None, "COPY"),
        ("insert overwrite t values (1, 'x', 1, 'u') returning a", None, "RETURNING"),
        ("insert overwrite t values (1, 'x', 1)", None, "3 value"),
        ("insert overwrite nothing values (1)", None, "'nothing' does not exist"),
        ("insert into t partition (k = 1, j = 'u') values (1, 'x')", "spark", "PARTITION"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(filled, statement, dialect, named):
    before = rows(filled)
    with pytest.raises((SqlError, BallistaError, UnsupportedExpression), match=f"(?i){named}"):
        filled.sql(statement, dialect=dialect)
    assert rows(filled) == before


def test_the_way_out_that_errors_name_works_at_one_instant(cluster):
    cluster.ingest(
        "only_buckets", pa.table({"a": pa.array([1, 2, 3], pa.int32()), "k": pa.array([1, 1, 2], pa.int32())})
    )
    cluster.sql(
        "merge into only_buckets t using (select 9 as a, 1 as k) n on false "
        "when not matched by source and t.k = 1 then delete when not matched then insert values (n.a, n.k)"
    )
    assert rows(cluster, "only_buckets") == [(3, 2), (9, 1)]
