"""An INSERT that the engine runs is the user's own text, with the query exchanged and everything else in its place."""

from __future__ import annotations

import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.engine_words import for_parser
from ballista_py.sql.parse.returning import returns_rows

GIVEN = 'from "r "'


@pytest.mark.parametrize(
    ("sql", "query", "behind"),
    [
        ("insert into t values (1, 2) on conflict do nothing", "values (1, 2)", "on conflict do nothing"),
        ("insert or replace into t (a) select 1 as conflict", "select 1 as conflict", ""),
        ("insert or ignore into t by name from u", "from u", ""),
        (
            "insert into t select * from a join b on conflict = 3 on conflict (i) do update set a = 1",
            "select * from a join b on conflict = 3",
            "on conflict (i) do update set a = 1",
        ),
        ("with q as (select 1)\ninsert into t\nselect *\nfrom q\nreturning a", "select *\nfrom q", "returning a"),
        ("insert into t values ('on conflict do nothing returning 1') returning a", "values", "returning a"),
        ('insert into t select "returning" from u returning a', 'select "returning" from u', "returning a"),
        ("insert into t default values returning *", "select null", "returning *"),
        (
            "insert into t as x (a) values (1) on conflict (a) do update set b = x.b returning b",
            "values (1)",
            "on conflict (a) do update set b = x.b returning b",
        ),
    ],
)
def test_the_query_is_exchanged_and_what_follows_stays_in_its_place(sql, query, behind):
    change = read_change(sql)
    assert query in change.query
    assert not behind or behind not in change.query
    assert GIVEN in change.whole
    assert change.whole.count("\n") == sql.count("\n")
    assert change.whole.endswith(behind)
    if len(query) >= len(GIVEN):
        assert len(change.whole.splitlines()[-1]) == len(sql.splitlines()[-1])
    assert change.query.count("\n") <= sql.count("\n")


def test_a_plain_insert_is_not_run_as_a_whole():
    assert read_change("insert into t select 1 as returning_rows").whole is None
    assert read_change("insert into t default values").whole is None


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("insert into t values (1) on conflict do update set a = (select 1)", "a query in it"),
        ("insert into t values (1) on conflict (a) do update set b = 1 where exists (select 1)", "a query in it"),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(sql, reason):
    with pytest.raises(SqlError, match=reason):
        read_change(sql)


@pytest.mark.parametrize(
    ("sql", "gives"),
    [
        ("insert into t values (1) returning *", True),
        ("INSERT INTO t VALUES (1) RETURNING\n*", True),
        ("with a as (select 1) update t set i = 1 returning i", True),
        ("merge into t using u on t.i = u.i when matched then delete returning i", True),
        ("insert into t select (select 1 as returning)", False),
        ("insert into t values ('returning')", False),
        ('delete from t where "returning" = 1', False),
        ("select 1 as returning", False),
        ("explain delete from t returning *", False),
        ("delete from t where i = 'returning", False),
    ],
)
def test_whether_a_text_gives_rows_is_told_by_its_words(sql, gives):
    assert returns_rows(sql) is gives


@pytest.mark.parametrize(
    "sql",
    [
        "select 1 as error",
        "merge into error using u on error.i = u.i when matched then delete",
        "insert into t select case when true then error else 1 end from u",
        "merge into t using u on t.s = 'then error' when matched then delete",
    ],
)
def test_only_an_action_of_a_merge_is_another_one_to_the_parser(sql):
    assert for_parser(sql) == sql
    action = (
        "merge into t using (select 'then error' as s) u on t.s = u.s when matched and u.s > '' then {} when not "
    )
    action += "matched then {} returning s"
    assert for_parser(action.format("error", "ERROR 'a ''b'")) == action.format("DO NOTHING", "DO NOTHING")
