"""PIVOT without IN gives what one DuckDB gives, of the values that there are when it runs."""

from __future__ import annotations

import threading

import duckdb
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.errors import SqlError, TryLater

pytestmark = pytest.mark.cluster
ROWS = "(1, 10, 'u', 5), (1, 2, 'v', 6), (2, null, 'u', 7), (3, 10, null, 1), (1, 2, 'it''s', 4)"


@pytest.fixture(scope="module")
def site():
    with LocalCluster(schedulers=1, executors=2) as cluster, duckdb.connect() as single:
        for place in (cluster.sql, single.execute):
            for name in ("s", "empty"):
                keys = " partitioned by (bucket(3, g))" if place == cluster.sql else ""
                place(f"create table {name} (g int, b int, d varchar, x int){keys}")
            place(f"insert into s values {ROWS}")
        yield cluster, single


@pytest.mark.parametrize(
    "query",
    [
        "pivot s on b using sum(x) group by g",
        "pivot main.s on b using sum(x) group by g order by g limit 2",
        "-- words\nPIVOT s ON b, d USING sum(x), count(*) GROUP BY g;",
        "pivot s on (b, d) using max(x) group by g",
        "pivot s on b + 1",
        "pivot_wider s on d in ('u'), b using sum(x)",
        "with q as (from s where g < 3) pivot q on d using sum(x) group by g",
        "select * from (pivot s on b using sum(x) group by g) p join s using (g)",
        "from (with q as (from s) pivot q on d using first(x order by x) group by g)",
        'pivot (pivot s on b using sum(x) group by g, d) on d using sum("2")',
        "pivot (from s join (select g, count(*) as n from s group by g) using (g)) on n using sum(x) group by g",
        "pivot s on case when b > 2 then 'y' else 'n' end using sum(x) group by g",
        "pivot empty on b using sum(x) group by g",
        "pivot empty on b, d",
        "pivot s on b in (2, 77) using sum(x) group by g",
        "(pivot s on b using sum(x) group by g) union all select 9, 9, 9",
        "describe pivot s on b using sum(x)",
    ],
)
def test_values_become_columns_as_on_one_node(site, query):
    cluster, single = site
    wanted = single.sql(query.replace("main.s", "s")).to_arrow_table()
    assert difference(cluster.sql(query), wanted) is None


def test_a_pivot_of_a_pivot_that_with_names(site):
    """DuckDB does not find the name in the second one."""
    cluster, _ = site
    found = cluster.sql(
        'with p as (pivot s on b using sum(x) group by g, d) pivot p on d using sum("10") group by g'
    )
    assert found.column_names == ["g", "it's", "u", "v"]


def test_it_is_a_query_wherever_one_can_stand(site):
    cluster, single = site
    for place in (cluster.sql, single.execute):
        place("create table made as pivot s on d using sum(x)::bigint group by g")
        place("insert into made by name pivot s on d using count(*) group by g")
    assert difference(cluster.sql("from made"), single.sql("from made").to_arrow_table()) is None
    assert "PIVOT" in cluster.explain("pivot s on b using sum(x) group by g").upper()
    for place in (cluster.sql, single.execute):
        place("drop table made")


def test_by_flight_sql_with_a_parameter(site):
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    cluster, _ = site
    with dbapi.connect(cluster.flight_sql_url()) as connection, connection.cursor() as cursor:
        cursor.execute("pivot (from s where x > ?) on b using sum(x) group by g", (4,))
        assert sorted(cursor.fetchall()) == [(1, 5, 6), (2, None, None)]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("pivot (select range as v from range(1001)) on v", "1,001 columns or more, 1,000 are the most"),
        (
            "pivot (select a.range as v, b.range as w from range(40) a, range(40) b) on v, w",
            "1,600 columns or more",
        ),
        ("pivot (select repeat('x', 300000) as v) on v", "very long names"),
        ("pivot (select v from (values (1)) x(v) where v > 1) on v", "no column here: there is no value"),
        ("pivot nothing on b", "'nothing' does not exist"),
        ("pivot s on nothing", "nothing"),
        ("pivot s join empty using (g) on b", "put the joined tables into brackets"),
        (
            "merge into s using (pivot s on b using sum(x) group by g) p on s.g = p.g when matched then delete",
            "with IN",
        ),
        ("insert into s pivot s on b using sum(x) returning *", "without ON CONFLICT and RETURNING"),
    ],
)
def test_what_cannot_be_run_says_so(site, statement, named):
    cluster, single = site
    with pytest.raises(SqlError, match=f"(?i){named}") as caught:
        cluster.sql(statement)
    assert "cast" not in caught.value.message
    assert difference(cluster.sql("from s"), single.sql("from s").to_arrow_table()) is None


def test_no_row_of_a_new_value_is_left_out_without_a_word(site):
    """Rows with new values come in all the time: each answer counts every row that it saw."""
    cluster, _ = site
    cluster.sql("create table grows (g int, v int) partitioned by (bucket(2, g))")
    cluster.sql("insert into grows values (0, 0)")
    stop = threading.Event()
    failed: list[BaseException] = []

    def grow() -> None:
        client = cluster.client()
        try:
            for number in range(1, 60):
                if stop.is_set():
                    return
                numbers = pa.array([number], pa.int32())
                client.ingest("grows", pa.table({"g": numbers, "v": numbers}))
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=grow)
    writer.start()
    answered = 0
    try:
        for _ in range(4):
            try:
                found = cluster.sql("pivot (select 1 as one, v from grows) on v using count(*) group by one")
            except TryLater:  # it says that it was overtaken again and again
                continue
            answered += 1
            counts = {int(name): count for name, count in found.to_pylist()[0].items() if name != "one"}
            assert sorted(counts) == list(range(len(counts)))  # nothing between is missing
            assert set(counts.values()) == {1}
    finally:
        stop.set()
        writer.join()
    assert not failed
    assert answered
    cluster.sql("drop table grows")
