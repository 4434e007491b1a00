"""What is plain is not tried before a node reads it: so the list of what is plain is short."""

from __future__ import annotations

import time

import duckdb
import pytest

from ballista_py.sql.parse import plain_text
from ballista_py.sql.parse.plain_text import is_plain, masked

PLAIN = [
    "select * from events where id = 5",
    "select count(*), sum(a * b) as s from t join u on t.x = u.x where t.d >= date '2020-01-01' group by 1 limit 2",
    "insert into t (a, b) values (1, 'it''s'), (-3.5, null)",
    'insert into "my table"(a) values ($1, ?)',
    "update t set b = b + 1 where a in ('x', 'y', 'z')",
    "delete from t where a between 1 and 5",
    "with x as (select a from t) select x.a::int from x limit 3",
    "select name, value from t where year = 2020 and (a is null or b is not null)",
]
ODD = [
    "select date(date('2020-01-01'))",
    "select array[array[1]]",
    "select [1]",
    "select {'x': 1}",
    "select \"=\"({'x': 1}, 1)",
    """select "="(a, 1) from t""",
    "select * from a asof join b using (t)",
    "from t pivot (sum(x) for y in (1, 2))",
    "select a, from t qualify row_number() over () = 1",
    "select repeat('x', 5)",
    "select main.count(a) from t",
    "select cast(a as decimal(10, 2)) from t",
    "select * from t using sample 5",
    "select columns('a') from t",
    "select interval 1 day",
    "select e'\\n'",
    "select x'00'",
    "select $$text$$",
    "select 1 -- a comment",
    "select /* one */ 1",
    "select a # b",
    "select " + "(" * 7 + "1" + ")" * 7,
    "select " + "a + " * 300 + "a",
    "with recursive x as (select 1) select * from x",
    "select json '1'",
    "select map {1: 2}",
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_everybody_sends_is_plain(text):
    assert is_plain(masked(text))


@pytest.mark.parametrize("text", ODD)
def test_what_is_out_of_the_ordinary_is_not(text):
    assert not is_plain(masked(text))


def test_every_word_of_the_engine_is_known_for_what_it_is():
    words = {row[0] for row in duckdb.sql("select keyword_name from duckdb_keywords()").fetchall()}
    known = plain_text._KEYWORDS | plain_text._TYPES | plain_text._NAMES | plain_text._taken()
    assert words - known == set()  # a new one: may it stand in a plain statement?
    reserved = {
        row[0]
        for row in duckdb.sql(
            "select keyword_name from duckdb_keywords() where keyword_category = 'reserved'"
        ).fetchall()
    }
    assert reserved & plain_text._NAMES == set()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("select f(1)", "select f('1')"),
        ("select f(1)", "select f(null)"),
        ("select f(1)", "select f(1.5)"),
        ("select 1 as a", "select 1 as b"),
        ('select "a"', "select 'a'"),
        ("select f(1)", "select f(1, 'x')"),
        ("select f((a))", "select f((a), (a))"),
        ("select t1", "select t2"),
        ("select f(12345678901234567890)", "select f(1)"),
        ("select 0x1", "select 1"),
        ('select f("c 1")', 'select f("c 2")'),
        ("select '1'::bigint", "select '-9223372036854775808'::bigint"),
        ("select f('2020-01-01')", "select f('12020-01-01')"),
        ("select f('1')", "select f('-infinity')"),
        ("select f('1')", "select f('nan')"),
    ],
)
def test_what_is_read_otherwise_is_not_alike(one, other):
    assert masked(one) != masked(other)


@pytest.mark.parametrize(
    "text",
    [
        "select 1 -- ' \n, f() -- '",
        "select '\\' , f() , '",
        "select $a$ ' $a$, f() -- $a$ ' $a$",
        "select /* ' */ f() /* ' */",
        "select `'`, f(), `'`",
        "select e'a\\', f() --'",
        "select '…', 1,…",
    ],
)
def test_no_constant_hides_what_another_reader_sees(text):
    assert masked(text) is None


def test_a_quote_in_a_name_hides_nothing():
    assert masked("""select "it's", f() from "t's" """) is None
    assert masked("""select "a "" b", 'x' """) == masked("""select "a "" b", 'y' """)


@pytest.mark.parametrize(
    "piece",
    ["(", "(1),", "'", "1,", "(1,(1,", "-0,", "(a),(b),", '"', "0.0,0,", "(((1),(1)),", "null,", "1e", "$"],
)
def test_a_megabyte_is_looked_at_in_no_time(piece):
    began = time.process_time()
    is_plain(masked(piece * (1_000_000 // len(piece))))
    assert time.process_time() - began < 10  # it is 0.2 s; what is not linear would take hours
