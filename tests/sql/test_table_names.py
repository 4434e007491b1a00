"""`main.t` and `ballista.main.t` mean `t`: where a table can stand, and nowhere else; nothing moves in the text."""

from __future__ import annotations

import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.parse.creates import read_like
from ballista_py.sql.parse.kind import engine_sql, tokens_of
from ballista_py.sql.parse.table_names import catalog_query, plain_table, told_tables, unqualified

SAME = [
    ("select main.t.id from main.t", "select t.id from t"),
    ("select * from ballista.main.t a join main.u b on a.x = b.y, main.v", "select * from t a join u b on a.x = b.y, v"),  # noqa: E501
    ('select "main"."T".a from "Ballista".MAIN."T"', 'select "T".a from "T"'),
    ("select 1 from main.t where a in (select q from main.w, ballista.main.x)", "select 1 from t where a in (select q from w, x)"),  # noqa: E501
    ("insert into main.t (a, b) select a, b from main.u", "insert into t (a, b) select a, b from u"),
    ("update main.t set a = main.t.b", "update t set a = t.b"),
    ("delete from ballista.main.t where main.t.id = 4", "delete from t where t.id = 4"),
    ("merge into main.t using main.u on main.t.a = u.a when matched then delete", "merge into t using u on t.a = u.a when matched then delete"),  # noqa: E501
    ("drop table if exists main.t", "drop table if exists t"),
    ("create table if not exists main.t (a int)", "create table if not exists t (a int)"),
    ("truncate main.t", "truncate t"),
    ("alter table main.t add column z int", "alter table t add column z int"),
    ("alter table main.t rename to ballista.main.u", "alter table t rename to u"),
    ('alter table t rename to "main"."größe 1"', 'alter table t rename to "größe 1"'),
    ("comment on table main.t is 'main.t'", "comment on table t is 'main.t'"),
    ("describe main.t", "describe t"),
    ("desc main.t", "desc t"),
    ("summarize main.t", "summarize t"),
    ("select * from (desc main.t) order by 1 desc, 2", "select * from (desc t) order by 1 desc, 2"),
    ("with a as (select 1) update main.t set a = 1", "with a as (select 1) update t set a = 1"),
    ("select view, a as update from main.t order by view desc", "select view, a as update from t order by view desc"),
    ("create or replace view main.v as select 1", "create or replace view v as select 1"),
    ("drop view if exists main.v", "drop view if exists v"),
    ("comment on view main.v is 'x'", "comment on view v is 'x'"),
    ("alter view main.v rename to main.w", "alter view v rename to w"),
    ("show columns from main.t", "show columns from t"),
    ("show create table ballista.main.t", "show create table t"),
    ("explain analyze select * from main.t", "explain analyze select * from t"),
    ("select extract(year from main.t.d), trim(both 'x' from main.t.s) from main.t", "select extract(year from t.d), trim(both 'x' from t.s) from t"),  # noqa: E501
]  # fmt: skip
LEFT = [
    "with t as (select 1) select * from main.t",
    "select main.t from t as main",
    "select main from t",
    "select extract(year from main.d) from t",
    "select 1 from t where a is distinct from main.d",
    "select 'from main.t' from t",
    "select main.t from u",
    "select * from other.t",
    "select * from main.range(3)",
    "select * from a.main.t",
    "alter table t rename a to main",
    "copy t to main.t",
]


@pytest.mark.parametrize(("qualified", "plain"), SAME)
@pytest.mark.parametrize("newline", [" ", "\n"])
def test_a_table_may_be_named_with_its_schema_and_catalog(qualified, plain, newline):
    text = qualified.replace(" ", newline, 1)
    found = engine_sql(text)
    assert found.split() == plain.split()
    assert len(found) == len(text)
    assert found.count("\n") == text.count("\n")


@pytest.mark.parametrize("sql", LEFT)
def test_what_may_mean_something_else_stays_as_it_is(sql):
    assert unqualified(sql) == sql


@pytest.mark.parametrize(
    ("sql", "said"), [("other.t", "all tables are in the schema main"), ("a b", "is no table")]
)
def test_other_names_of_tables_are_refused(sql, said):
    with pytest.raises(SqlError, match=said):
        plain_table(tokens_of(sql)[1])


@pytest.mark.parametrize("dialect", [None, "spark", "postgres"])
@pytest.mark.parametrize("form", ["like {}", "(like {})", "(a int, like {})"])
def test_like_of_another_schema_is_no_table_of_ours_in_any_dialect(dialect, form):
    if form[0] == "l" and dialect == "postgres":
        form = "(like {} including all)"
    text = engine_sql(f"create table t {form.format('ballista.main.kv')}", dialect)
    found = read_like(text)
    assert found is not None
    assert [piece.source for piece in found.pieces] == ["kv"]
    with pytest.raises(SqlError, match=r"system\.kv' is no table here: all tables are in the schema main"):
        read_like(engine_sql(f"create table t {form.format('system.kv')}", dialect))
    with pytest.raises(SqlError, match=r"plain names|is no table"):
        read_change(engine_sql(f"create table system.t {form.format('kv')}", dialect))


@pytest.mark.parametrize("name", ["u", "main.u", "ballista.U", 'ballista."main".u'])
def test_a_new_name_of_a_table_is_read_as_any_other(name):
    for dialect in (None, "spark", "postgres"):
        quoted = name.replace('"', "`") if dialect == "spark" else name
        assert read_change(engine_sql(f"alter table main.t rename to {quoted}", dialect)).action.to == "u"
    with pytest.raises(SqlError, match=r"'other\.u' is no table here: all tables are in the schema main"):
        read_change("alter table t rename to other.u")


ENDS = [
    "limit 5",
    "nulls last",
    "nulls first limit 3",
    "offset 2",
    "fetch first 3 rows only",
    ", node_id asc nulls last",
    "union all select 'a'",
    "",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("table", ["runtime.nodes", "ballista.runtime.nodes", "information_schema.tables"])
def test_what_stands_behind_an_order_is_no_table(table, end):
    """`desc limit 5` described a table `limit`, which nobody may read together with those that say how it is."""
    plain = table.rpartition(".")[2]
    for text in (
        f"select node_id from {table} order by node_id desc {end}",
        f"select * from (select a, row_number() over (partition by b order by (c) desc nulls last) from {table} order by f(a) desc {end}) x",  # noqa: E501
        f"from {table} order by coalesce(a, 'b') desc {end}",
        f"with x as (select * from {table} order by a desc {end}) select * from x order by b desc {end}",
    ):
        found = catalog_query(text)
        assert found is not None
        assert found.split() == text.replace(table, f'"{plain}"').split()
        assert told_tables(text) == (table.removeprefix("ballista."),)


@pytest.mark.parametrize("word", ["view", "update", "truncate"])
def test_a_column_may_be_called_as_a_statement_begins(word):
    for text in (
        f"select {word} from runtime.nodes",
        f"select a as {word} from runtime.nodes where {word} is null order by {word} nulls last",
        f"select max({word}) {word} from runtime.nodes n group by n.{word} having {word} like 'x' limit 1",
        f"select 1 from runtime.nodes join runtime.jobs on {word} between 1 and 2 and {word} in ('a', 'b')",
    ):
        assert catalog_query(text) is not None, text
