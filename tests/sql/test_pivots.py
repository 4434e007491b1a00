"""The values of a PIVOT without IN: asked for, written out, and held against every row that is read with them."""

import duckdb
import pytest

from ballista_py.coordinator.queries.pivots import change_of
from ballista_py.errors import SqlError
from ballista_py.sql.parse import pivots
from ballista_py.sql.parse.kind import tokens_of
from ballista_py.sql.parse.pivots import MAX_PIVOTS, OVERTAKEN, any_values, open_pivot


def values_of(single, sql: str) -> list[list[str]]:
    found = open_pivot(sql)
    return [[row[0] for row in single.sql(query).fetchall()] for query in found.asked]


def test_a_row_of_a_value_that_came_in_between_is_an_error_and_one_without_a_value_is_none():
    with duckdb.connect() as single:
        single.sql("create table t as from (values (1, 'a'), (1, 'b'), (1, null)) v(g, k)")
        asked = values_of(single, "pivot t on k using count(*) group by g")
        assert asked == [["a", "b"]]
        text = open_pivot("pivot t on k using count(*) group by g").closed(asked)
        assert single.sql(text).fetchall() == [(1, 1, 1)]
        single.sql("insert into t values (1, 'c')")
        with pytest.raises(duckdb.Error, match=OVERTAKEN):
            single.sql(text).fetchall()


def test_a_first_row_that_came_in_between_is_an_error_too():
    with duckdb.connect() as single:
        single.sql("create table t (g int, k text)")
        sql = "pivot t on k using count(*) group by g"
        text = open_pivot(sql).closed(values_of(single, sql))
        single.sql("insert into t values (null, 'c')")
        with pytest.raises(duckdb.Error, match=OVERTAKEN):
            single.sql(text).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t pivot (sum(a) for b in (1, 2))",
        "pivot t on b in (1, 2) using sum(a)",
        "select 'pivot t on b'",
        'select "pivot" from t join u on t.a = u.a',
        "unpivot t on a, b",
        "pivot t join u on t.a = u.a on b",
    ],
)
def test_what_asks_for_no_values_stays_as_it_is(sql):
    assert open_pivot(sql) is None


def test_a_value_is_a_text_whatever_is_in_it():
    with duckdb.connect() as single:
        single.sql("create table t as select $$a'b$$ as k")
        sql = "pivot t on k using count(*)"
        assert single.sql(open_pivot(sql).closed(values_of(single, sql))).columns == ["a'b"]


def test_too_many_pivots_are_refused_before_any_is_read():
    with pytest.raises(SqlError, match="PIVOTs"):
        open_pivot("from (pivot t on a) " * (MAX_PIVOTS + 1))


def test_an_endless_list_of_expressions_is_refused_before_any_is_asked_for():
    with pytest.raises(SqlError, match="over 20001 expressions"):
        open_pivot("pivot t on " + "a, " * 20_000 + "b")


def test_the_query_of_a_change_is_the_users_text_at_its_place():
    sql = "insert into u (a) pivot t on k using count(*) -- end"
    assert change_of(sql).query == " " * 18 + sql[18:]
    assert open_pivot(change_of("create table u partitioned by (g) as pivot t on k;").query) is not None
    assert "value" in any_values("pivot t on k")


def test_a_chain_of_pivots_is_read_once(monkeypatch):
    chain = ", ".join(f"c{n} as (pivot c{n - 1} on a using sum(b))" for n in range(1, MAX_PIVOTS))
    read = []
    monkeypatch.setattr(pivots, "tokens_of", lambda sql: read.append(sql) or tokens_of(sql))
    found = open_pivot(f"with c0 as (select 1), {chain} pivot c{MAX_PIVOTS - 1} on a using sum(b)")
    assert len(read) == 1
    assert found.asked[0].startswith(
        "with c0 as (select 1) select v from (select distinct cast((a\n) as varchar) as v"
    )


def test_the_innermost_is_asked_first_wherever_it_stands():
    inner = "(pivot t on k using count(*))"
    for sql in (
        f"pivot {inner} on a using sum(b)",
        f"with i as {inner} pivot i on a using sum(b)",
        f"pivot t on (select max(x) from {inner}) using sum(b)",
        f"with o as (pivot t on a in (1)), i as {inner} select * from (with j as (from i) pivot j on a)",
    ):
        found = open_pivot(sql)
        assert sql[found.start : found.stop] == inner[1:-1]
        assert "pivot" not in found.asked[0].replace("pivot t on a in (1)", "")
