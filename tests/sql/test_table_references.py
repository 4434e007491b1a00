"""Where a statement reads tables: what one DuckDB says of its own views is what a view written out gives."""

from __future__ import annotations

import duckdb
import pytest

from ballista_py.sql.parse.parsing import tokenized
from ballista_py.sql.parse.table_references import table_references


def names(text):
    return [found.name for found in table_references(tokenized(text))]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("select * from a, b c, main.d where e in (from f)", "abdf"),
        ("select * from (a join b using (c, d)), e", "abe"),
        ("select * from a join b on c = d, e", "abe"),
        ("with a as (from a) from a, b", "ab"),
        ("with recursive a as (select 1 union all from a) from a", ""),
        ("with a as (with b as (from c) from b) select * from a, b", "cb"),
        ("with a as not materialized (from b), c(d) as (table a) from c, a", "b"),
        ("select (with a as (select 1) from a), (from a)", "a"),
        ("insert into a select * from b", "b"),
        ("insert into a values (1), ((select max(b) from c))", "c"),
        ("insert or replace into a by name (from b) returning c", "b"),
        ("update a set b = (select c from d), e = f from g", "dg"),
        ("delete from a using b, c where d", "bc"),
        ("with a as (select 1) delete from b using a, c", "c"),
        (
            "merge into a using b on c when matched then update set d = e when not matched then insert values (f)",
            "b",
        ),
        ("create or replace table a as from b", "b"),
        ("create table a partitioned by (b) with (c = 'd') as with e as (from f) from e", "f"),
        ("create table a (b int check (c > 1), like d)", ""),
        ("drop table if exists a", ""),
        ("truncate a", ""),
        ("pivot a on b, c using sum(d), max(e) group by f", "a"),
        ("from (pivot a on b), (unpivot c on d into name e value f)", "ac"),
        ("from a pivot (sum(b) for c in ('d')), e", "ae"),
        ("select extract(a from b), trim(both c from d), e is not distinct from f from g", "g"),
        ("select * from range(a), unnest(b), c", "c"),
        ("select [a for a in b], {'c': d}, e[f] from g", "g"),
        ("from a: b, c: d e", "bd"),
        ("from a tablesample 10%, b using sample 5 rows", "ab"),
        ("select * from a natural join b asof join c on d >= e positional join f", "abcf"),
        ("(from a) union all by name (select * from b) order by c, d", "ab"),
        ("select a, count(*) filter (b in (select c from d)) over (order by e, f) from g", "dg"),
        ("summarize a", "a"),
        ("table a", "a"),
        ("select 1 from 'a.csv'", ""),
        ("select * from a where b = 'from c' -- from d\n and e /* from f */ = g", "a"),
        ("values (1, (select a from b))", "b"),
        ("from a, lateral (select * from b where b.c = a.d) e, f", "abf"),
    ],
)
def test_a_table_is_found_where_it_is_read_and_nowhere_else(text, read):
    assert names(text) == [*read]


@pytest.mark.parametrize(
    "text", ["(", "from (a", "with a as (from b", "from a)", "with", "with recursive", "from a.", ""]
)
def test_what_does_not_parse_ends_no_reader(text):
    names(text)


QUERIES = (
    "select * from v",
    "select v.a, v from v",
    "from v x where x.a > 1",
    "from v as x(p, q)",
    "from x: v select x.b",
    "select * from v join w using (a)",
    "select * from (v join w on v.a = w.a), u",
    "table v",
    "summarize v",
    "with v as (from v where a = 1) from v, w",
    "with recursive v as (select 1 as n union select n + 1 from v where n < 3) from v",
    "select (select max(a) from v), exists (from w) from u",
    "pivot v on b using sum(a)",
    "from v pivot (sum(a) for b in (2, 4))",
    "from v union all from w order by all",
    "select a from v where a in (select a from w) group by all having count(*) > 0",
    'select "V".A from "V"',
    "select * from v a, v b where a.a = b.b",
    "from v tablesample reservoir(100 rows)",
    "select * from unnest((select list(a) from v)) t(x)",
    "select * exclude (b) replace (a + 1 as a) from v",
    "select count(*) over (partition by b) from v qualify row_number() over (order by a) = 1",
)


@pytest.mark.parametrize("query", QUERIES)
def test_subqueries_in_the_places_that_are_found_are_views(query):
    with duckdb.connect() as views, duckdb.connect() as plain:
        for place in (views, plain):
            place.execute("create table t as select i as a, 2 * i as b from range(1, 4) s(i)")
        text = query
        for name in ("v", "w", "u"):
            views.execute(f"create view {name} as select a, b from t")
        for found in reversed(table_references(tokenized(query))):
            if found.name in ("v", "w", "u"):
                piece = "(select a, b from t)" + ("" if found.has_alias else f' as "{found.name}"')
                piece = f"from {piece}" if found.form == "whole" else piece
                text = text[: found.start] + piece + text[found.end :]
        wanted = views.sql(query).fetchall()
        assert sorted(map(str, plain.sql(text).fetchall())) == sorted(map(str, wanted))
