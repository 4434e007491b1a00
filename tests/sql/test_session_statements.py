"""Statements about a client's session are read from their words, and everything else in them is refused by name."""

from __future__ import annotations

import pytest

from ballista_py.errors import SqlError
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.session_statements import (
    Deallocate,
    Execute,
    Prepare,
    ResetAll,
    SetSessionOption,
    read_session_statement,
    with_values,
)
from ballista_py.transport.client.session import MAX_PREPARED, ClientSession


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("SET statement_timeout = '5s'", SetSessionOption("statement_timeout", 5.0)),
        ("set session statement_timeout to 500;", SetSessionOption("statement_timeout", 0.5)),
        ("set statement_timeout = '2min'", SetSessionOption("statement_timeout", 120.0)),
        ("set statement_timeout = 0", SetSessionOption("statement_timeout", None)),
        ("set dialect = Spark", SetSessionOption("dialect", "spark")),
        ("set engine to default", SetSessionOption("engine", None)),
        ("/* now */ reset engine", SetSessionOption("engine", None)),
        ("reset all", ResetAll()),
        ("prepare q as select '$1', $1 from t", Prepare("q", "select '$1', $1 from t")),
        (
            "prepare Q as with a as (select 1) select * from a",
            Prepare("q", "with a as (select 1) select * from a"),
        ),
        ("execute q", Execute("q", {})),
        ("execute q ( -1, [2, 3], 'a,)' )", Execute("q", {"1": "-1", "2": "[2, 3]", "3": "'a,)'"})),
        (
            "execute q(date '2020-01-01', {'a': null})",
            Execute("q", {"1": "date '2020-01-01'", "2": "{'a': null}"}),
        ),
        ("execute q('5'::int, interval 3 day)", Execute("q", {"1": "'5'::int", "2": "interval 3 day"})),
        ("execute q(name := 'x', 1 -- a remark\n)", Execute("q", {"name": "'x'", "2": "1"})),
        ("deallocate prepare q", Deallocate("q")),
        ("deallocate all", Deallocate(None)),
    ],
)
def test_what_a_statement_about_the_session_means(text, means):
    assert read_session_statement(text) == means


@pytest.mark.parametrize(
    "text", ["select 1 -- set a = 1", "update t set a = 1", "'set'", "", "settle", "merge into t"]
)
def test_other_statements_are_left_alone(text):
    assert read_session_statement(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("set threads = 1", "SET threads cannot be run here: the options of a session are dialect"),
        ("set", "SET cannot be run here: it needs a name"),
        ("set engine", "SET cannot be run here: it needs a value"),
        ("set engine = spark, auto", "takes one value"),
        ("set engine = sparkle", "the engine 'sparkle' is none of"),
        ("set statement_timeout = 'soon'", "'soon' is no time"),
        ("set statement_timeout = -1", "takes one value"),
        ("set dialect = klingon", "dialect 'klingon'"),
        ("set global engine = spark", "SET global cannot be run here"),
        ("reset engine dialect", "it takes one name, as in RESET"),
        ("prepare q", "it needs a statement"),
        ("prepare q as", "it needs a statement"),
        ("prepare q (int) as select $1", "it takes no types"),
        ("prepare q as execute r", "EXECUTE cannot be prepared"),
        ("execute q 1", "takes its values in brackets"),
        ("execute q(1", "a bracket is not closed"),
        ("execute q(1) + 1", "takes its values in brackets"),
        ("execute q(1,,2)", "a value is empty"),
        ("execute q(a := 1, a := 2)", "two values for the parameter a"),
        ("deallocate q r", "it takes one name, as in DEALLOCATE"),
        ("set engine = spark; drop table t", "more than one statement"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text, says):
    with pytest.raises(SqlError, match=says):
        read_session_statement(text)


def test_values_stand_in_the_places_of_parameters_and_nowhere_else():
    assert with_values("select '$1', $1, $2", {"1": "5", "2": "1, 2"}) == "select '$1', (5), (1, 2)"
    with pytest.raises(SqlError, match="no value for the parameter 2"):
        with_values("select $1, $2", {"1": "5"})
    with pytest.raises(SqlError, match="a value for the parameter 2, which the statement does not have"):
        with_values("select $1", {"1": "5", "2": "6"})


@pytest.mark.parametrize(
    "value",
    ["id", "t.id", '"id"', "id::varchar", "-id", "[1, id]", "{'a': id}", "random()", "f(1)", "(select 1)", "1 + 1", "?",
     "*", "1 from t", "1 as a", "columns(*)", "current_date", "case when true then 1 end", "x -> x", "default"],
)  # fmt: skip
def test_a_value_is_a_constant_so_that_no_row_decides_what_it_is(value):
    with pytest.raises(SqlError, match="EXECUTE cannot be run here"):
        read_session_statement(f"execute q({value})")


@pytest.fixture
def session():
    return ClientSession(SystemRuntime())


def test_options_hold_until_they_are_reset_and_what_a_call_says_counts_before_them(session):
    assert session.asked("set dialect = spark", None) is None
    assert session.asked("set statement_timeout = '5s'", None) is None
    asked = session.asked("select 1", None)
    assert (asked.dialect, asked.engine, asked.timeout) == ("spark", None, 5.0)
    assert session.asked("select 1", "postgres", "auto", 1.0).dialect == "postgres"
    session.asked("reset dialect", None)
    assert session.asked("select 1", None).dialect is None
    session.asked("reset all", None)
    assert session.asked("select 1", None).timeout is None


def test_a_prepared_text_keeps_the_dialect_that_it_was_written_in(session):
    session.asked("set dialect = spark", None)
    session.asked("prepare q as select $1", None)
    session.asked("reset all", None)
    asked = session.asked("execute q(7)", None)
    assert (asked.query, asked.dialect, asked.beside) == ("select $1", "spark", {"values": {"1": "7"}})
    assert asked.whole() == "select (7)"
    with pytest.raises(SqlError, match="'q' is prepared already"):
        session.asked("prepare q as select 2", None)
    session.asked("deallocate q", None)
    with pytest.raises(SqlError, match="there is no prepared statement 'q'"):
        session.asked("execute q", None)


def test_a_prepared_query_can_be_explained(session):
    session.asked("prepare q as select $1", None)
    assert session.asked("explain execute q(7)", None).whole() == "explain select (7)"
    assert session.asked("/* why */ explain\nanalyze execute q(7)", None).whole() == (
        "/* why */ explain\nanalyze select (7)"
    )
    assert session.asked("explain select 1", None).query == "explain select 1"


def test_what_a_client_keeps_has_a_bound(session):
    for number in range(MAX_PREPARED):
        session.asked(f"prepare q{number} as select 1", None)
    with pytest.raises(SqlError, match="DEALLOCATE what is not needed"):
        session.asked("prepare one_more as select 1", None)


def test_where_rows_are_wanted_the_session_is_left_as_it_is(session):
    with pytest.raises(SqlError, match="SET is about the session"):
        session.rows_asked("set dialect = spark", None)
    assert session.rows_asked("select 1", None).dialect is None
