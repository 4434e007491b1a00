"""A literal of a named type is what it says before anything is done to it, in every dialect."""

from __future__ import annotations

import duckdb
import pytest

from ballista_py.sql.parse.parsing import parsed_one

TYPED = {
    "int '5'::float8 / 2": "(int '5')::float8 / 2",
    "text '10'::int > text '9'::int": "(text '10')::int > (text '9')::int",
    "double precision '2.5'::int": "(double precision '2.5')::int",
    "numeric(3, 1) '2.5'::int": "(numeric(3, 1) '2.5')::int",
    "timestamp '2020-01-01'::text": "(timestamp '2020-01-01')::text",
    "timestamp with time zone '2020-01-01 00:00+00'::text": "(timestamp with time zone '2020-01-01 00:00+00')::text",
    "time with time zone '10:00:00+00'::text": "(time with time zone '10:00:00+00')::text",
    "date '2020-01-05'::text like '2020%'": "(date '2020-01-05')::text like '2020%'",
    "case when date '2020-01-05'::text > 'x'::text then 'a'::text end": (
        "case when (date '2020-01-05')::text > 'x'::text then 'a'::text end"
    ),
}
PLAIN = (
    "'5'::int",
    "f('a')::text",
    "'a' || '5'::text",
    "date '2020-01-05'",
    "interval '36 hours'::text",
    "x like 'a'::text",
)


@pytest.mark.parametrize("dialect", ["postgres", "spark", "duckdb"])
@pytest.mark.parametrize("text", TYPED)
def test_it_is_read_as_with_brackets(text, dialect):
    assert parsed_one(f"select {text}", dialect) == parsed_one(f"select {TYPED[text]}", dialect)


@pytest.mark.parametrize("dialect", ["postgres", "spark", "duckdb"])
@pytest.mark.parametrize("text", PLAIN)
def test_what_names_no_type_gets_no_brackets(text, dialect):
    assert "((" not in parsed_one(f"select {text}", dialect).sql(dialect)
    assert parsed_one(f"select {text}", dialect).find(parsed_one("(1)").__class__) is None


@pytest.mark.parametrize("text", TYPED)
def test_the_engine_means_the_same(text):
    read = parsed_one(f"select {text}", "duckdb").sql("duckdb")
    asked = duckdb.connect()
    asked.execute("set timezone = 'UTC'")
    assert asked.sql(f"select {text}").fetchall() == asked.sql(read).fetchall()
