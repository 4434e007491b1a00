"""Every text has one kind, whoever asks; what cannot be run is refused by its own name and with a way out."""

import subprocess
import sys

import duckdb
import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.descriptions import (
    DescribeQuery,
    DescribeTable,
    Explain,
    ShowAllTables,
    ShowCreate,
    ShowTables,
    read_description,
)
from ballista_py.sql.parse.kind import _INSTEAD, refusal, statement_kind

QUERIES = (
    "select 1",
    "(select 1) union all (select 2)",
    "from t",
    "table t",
    "values (1)",
    "-- insert\nselect 1",
    "/* delete */ select 1",
    "with a as (select 1) select * from a",
    "with a(x) as (select 1), b as not materialized (select 2) (select * from b)",
    "with insert as (select 1) from insert",
    "pivot t on s in ('a') using count(*)",
    "unpivot t on s",
    "summarize t",
)
CHANGES = (
    "insert into t values (1)",
    "INSERT OR IGNORE INTO t VALUES (1)",
    "with a as (select 1) insert into t select * from a",
    "with recursive a(x) as (select 1 union all select x + 1 from a where x < 3) delete from t using a",
    "update t set a = 1",
    "delete from t",
    "merge into t using u on t.a = u.a when matched then delete",
    "truncate t",
    "create table t (i int)",
    "create or replace table t (i int)",
    "create temp table if not exists t (i int)",
    "create table index as select 1",
    "drop table t",
    "alter table t add column x int",
    "comment on table t is 'x'",
    "copy t from 'x'",
    "copy t (a, b) from 'x' (format csv)",
)
REFUSED = (
    ("begin", "BEGIN"),
    ("start transaction", "START"),
    ("commit", "COMMIT"),
    ("rollback", "ROLLBACK"),
    ("create unique index i on t (a)", "CREATE INDEX"),
    ("create schema s", "CREATE SCHEMA"),
    ("create sequence s", "CREATE SEQUENCE"),
    ("create type e as enum ('a')", "CREATE TYPE"),
    ("create macro f(a) as a", "CREATE MACRO"),
    ("pragma version", "PRAGMA"),
    ("call pragma_version()", "CALL"),
    ("attach 'x'", "ATTACH"),
    ("detach x", "DETACH"),
    ("copy t to 'x'", "COPY"),
    ("copy (select 1 from t) to 'x'", "COPY"),
    ("set threads = 1", "SET"),
    ("reset threads", "RESET"),
    ("use x", "USE"),
    ("vacuum", "VACUUM"),
    ("checkpoint", "CHECKPOINT"),
    ("load x", "LOAD"),
    ("install x", "INSTALL"),
    ("alter view t rename to u", "ALTER VIEW"),
    ("prepare p as select 1", "PREPARE"),
    ("execute p", "EXECUTE"),
    ("deallocate p", "DEALLOCATE"),
    ("export database 'x'", "EXPORT"),
)


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_is_a_query(sql):
    assert statement_kind(sql) == "query"


@pytest.mark.parametrize("sql", CHANGES)
def test_a_change_is_a_change_and_as_a_query_it_is_refused_by_its_name(sql):
    assert statement_kind(sql) == "change"
    assert "is no query: send it with Client.sql" in refusal(sql).message


@pytest.mark.parametrize(("sql", "name"), REFUSED)
def test_what_cannot_be_run_names_itself_and_says_what_to_do_instead(sql, name):
    assert statement_kind(sql) == "refused"
    said = refusal(sql).message
    assert said.startswith(f"{name} cannot be run here: ")
    assert len(said) > len(name) + 30
    assert "\n" not in said


def test_every_kind_of_statement_that_the_engine_knows_has_a_kind_here():
    known = {"SELECT": "query", "MULTI": "query", "EXPLAIN": "explain"} | dict.fromkeys(
        ("INSERT", "UPDATE", "DELETE", "MERGE_INTO"), "change"
    )
    seen = set()
    for sql in (*QUERIES, *CHANGES, *(sql for sql, _ in REFUSED), "explain select 1"):
        (statement,) = duckdb.extract_statements(sql)
        name = str(statement.type).rpartition(".")[2]
        seen.add(name)
        if name in known:
            assert statement_kind(sql) == known[name], sql
        elif name not in ("CREATE", "DROP", "COPY", "ALTER"):
            assert statement_kind(sql) == "refused", sql
    kinds = {name for name in dir(duckdb.StatementType) if name.isupper()}
    never = {"INVALID", "VARIABLE_SET", "CREATE_FUNC", "EXTENSION", "RELATION", "LOGICAL_PLAN", "COPY_DATABASE"}
    never |= {"UPDATE_EXTENSIONS", "MULTI", "ANALYZE"}
    assert kinds - never <= seen, kinds - never - seen


def test_words_that_begin_no_statement_are_left_to_the_parser_of_the_engine():
    for sql in ("selec 1", "", "42", "grant all on t to x"[6:], "'select'"):
        assert statement_kind(sql) == "query"


def test_a_kind_is_told_in_other_dialects_and_an_unknown_one_is_refused():
    assert statement_kind("# one\ninsert into t values (1)", "mysql") == "change"
    assert statement_kind("`a`", "spark") == "query"
    with pytest.raises(SqlError, match="nosuch"):
        statement_kind("with a as (select 1) select 1", "nosuch")


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("explain select 1", Explain("        select 1", False)),
        ("EXPLAIN\nANALYZE (select 1)", Explain("       \n        (select 1)", True)),
        ("describe t", DescribeTable("t")),
        ('desc "T"', DescribeTable("t")),
        ("describe table t", DescribeTable("t")),
        ("describe from t", DescribeQuery("         from t")),
        ("show tables;", ShowTables()),
        ("describe", ShowAllTables()),
        ("show all tables", ShowAllTables()),
        ("show select a from t", DescribeQuery("     select a from t")),
        ("show (select 1)", DescribeQuery("     (select 1)")),
        ("show from t", DescribeQuery("     from t")),
        ('show "select"', DescribeTable("select")),
        ("show columns in t", DescribeTable("t")),
        ("show create table t", ShowCreate("t")),
    ],
)
def test_what_is_asked_about_statements_and_tables_is_read(sql, asked):
    assert statement_kind(sql) in ("explain", "describe")
    assert read_description(sql) == asked


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("explain delete from t", "DELETE is none"),
        ("explain begin", "BEGIN cannot be run here"),
        ("explain (format json) select 1", "no options"),
        ("explain", "needs a query"),
        ("show all\n functions", "SHOW all functions cannot be run here: ask for"),
        ("show tables like 't%'", "SHOW tables like 't%' cannot be run here: some of the tables"),
        ("show columns from a.t", "is no table"),
        ("show", "SHOW needs"),
        ("describe t; describe t", "more than one statement"),
        ("show tables from other", "SHOW tables from other cannot be run here"),
    ],
)
def test_what_cannot_be_explained_or_shown_is_refused(sql, said):
    with pytest.raises(SqlError, match=said):
        read_description(sql)


def test_every_way_out_is_one_short_line():
    assert all(text and "\n" not in text and len(text) < 120 for text in _INSTEAD.values())


def test_telling_a_kind_and_reading_a_change_load_no_planner():
    code = (
        "import sys; from ballista_py.sql.parse.kind import statement_kind; "
        "from ballista_py.sql.parse.changes import read_change; statement_kind('select 1'); "
        "print([name for name in sys.modules if name.startswith('ballista_py.sql.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "planner" not in done.stdout
    assert "binder" not in done.stdout
    assert done.stdout.count("ballista_py.sql.") == 25  # two of them are folders


@pytest.mark.parametrize("declared", ["int not null null", "int null not null", "int not null"])
def test_a_column_that_is_said_to_be_not_null_is(declared):
    assert read_change(f"create table t (k {declared}, v int null)").columns == (("k", False), ("v", True))
