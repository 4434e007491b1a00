"""A clause of a change is used or refused by its name, whatever the parser makes of it, now and in later releases."""

import inspect
import re

import pyarrow as pa
import pytest
from attrs import evolve
from sqlglot import exp, parse_one

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import General, Insert, Local, _change_of, read_change
from ballista_py.sql.parse.kind import engine_sql, tokens_of
from ballista_py.sql.parse.query_clauses import CARRIED, require_carried
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.text import read
from ballista_py.sql.parse.used_clauses import USED, is_given, require_used

WHOLE = {
    exp.Insert: "with a as (select 1 as i) insert into t (i) by name select * from a on conflict (i) do update "
    "set i = 1 where true returning i",
    exp.Update: "with a as (select 1 as i) update t as x set i = 1 from a where x.i = a.i returning *",
    exp.Delete: "with a as (select 1 as i) delete from t as x using a where x.i = a.i returning *",
    exp.Merge: "merge into t using u on t.i = u.i when matched and u.i > 1 then delete when not matched by source then "
    "update set i = 1 when not matched then insert (i) values (1)",
    exp.Create: "create table if not exists t (i int primary key, j int not null default 1 check (j > 0), "
    "primary key (i), constraint c check (i > 0), check (i > 0)) with (file_format = 'parquet')",
    exp.Drop: "drop table if exists t cascade",
    exp.TruncateTable: "truncate t",
}
EXPRESSIONS = sorted(
    (kind for _, kind in inspect.getmembers(exp, inspect.isclass) if issubclass(kind, exp.Expr)),
    key=lambda kind: kind.__name__,
)


def nodes_of(kind):
    """A statement and a node in it, for every statement that has a node of the kind at a place that is looked at."""
    for sql in WHOLE.values():
        tree = parse_one(sql, dialect="duckdb")
        for node in tree.walk():
            inside_query = isinstance(node, exp.Query) or node.find_ancestor(exp.Query, exp.With) is not None
            if type(node) is kind and not inside_query and not (kind is exp.Table and node.parent_select):
                yield tree, node


def test_every_whole_statement_is_taken():
    for sql in WHOLE.values():
        require_used(parse_one(sql, dialect="duckdb"))


@pytest.mark.parametrize("kind", sorted(USED, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_every_argument_that_is_not_used_is_refused_by_its_name(kind):
    """Those that a newer parser adds are among them: what is listed is what is used."""
    assert USED[kind] <= set(kind.arg_types), "a listed argument is no longer one of the parser"
    refused = 0
    for key in set(kind.arg_types) - USED[kind] | {"argument_of_a_later_release"}:
        for tree, node in nodes_of(kind):
            if is_given(node.args.get(key)):
                continue
            node.set(key, exp.Literal.number(1))
            with pytest.raises(SqlError, match="cannot be run here"):
                require_used(tree)
            refused += 1
            break
    wanted = len(set(kind.arg_types) - USED[kind]) + 1
    assert refused == wanted, f"{kind.__name__}: {refused} of {wanted} refused"


@pytest.mark.parametrize("kind", EXPRESSIONS, ids=lambda kind: kind.__name__)
def test_every_class_of_the_parser_is_a_known_change_a_query_or_refused(kind):
    text, tokens = tokens_of("insert into t values (1)")
    statement = StatementText(text, tokens)
    try:
        kind()
    except TypeError:  # no node, but what several have in common
        return
    if kind in WHOLE:
        return
    if issubclass(kind, exp.Query):
        assert _change_of(kind(), statement) is None
        return
    with pytest.raises(SqlError, match="cannot be run here"):
        _change_of(kind(), statement)


@pytest.mark.parametrize(
    ("sql", "clause"),
    [
        ("delete from t where i = 1 limit 1", "LIMIT"),
        ("delete from t order by i", "ORDER BY"),
        ("update t set i = 1 limit 1", "LIMIT"),
        ("update t set i = 1 order by i", "ORDER BY"),
        ("truncate t partition (g = 1)", "PARTITION"),
        ("truncate table t restart identity", "IDENTITY"),
        ("insert overwrite t select 1 returning i", "OVERWRITE"),
        ("insert into t replace where i = 1 select 1", "REPLACE WHERE"),
        ("insert into t values (1) on conflict (i) where i > 1 do nothing", "WHERE behind the columns"),
        ("insert into t values (1) on conflict on constraint c do nothing", "a name of a constraint"),
        ("insert into t values (1) on conflict (i) do update set i = (select 1)", "a query in it"),
        ("insert into t values (1) returning i into x", "INTO"),
        ("insert into t as x values (1)", "an alias of the table"),
        ("insert into a.t values (1)", "a schema"),
        ("with a as (select 1) insert into t with b as (select 2) select * from b", "two WITH"),
        ("create table c (i int) as select 5", "columns and AS"),
        ("create temp view c as select 1", "TEMP VIEW"),
        ("create view c with (a = 1) as select 1", "WITH before AS"),
        ("drop view c cascade", "CASCADE"),
        ("create temp table c (i int)", "TEMPORARY"),
        ("create table c (i int, unique (i))", "UNIQUE (i)' cannot be declared here: a table has one unique key"),
        ("create table c (i int unique)", "UNIQUE' of column 'i' cannot be declared here: a table has one"),
        ("create table c (i int, constraint u unique (i))", "CONSTRAINT u UNIQUE (i)"),
        ("create table c (i int, foreign key (i) references d (i))", "FOREIGN KEY"),
        ("create table c (i int, foreign key (i) references d (i))", "ask with a join"),
        (
            "create table c (i int references d (i))",
            "declared here: tables do not look at each other, ask with a join",
        ),
        ("create table c (i int, j int as (i + 1))", "declared here: compute the column where it is needed"),
        (
            "create table c (i int, j int generated always as (i) virtual)",
            "cannot be VIRTUAL here: compute the column",
        ),
        ("create table c (i int, j int generated always as (i) stored, k int)", "cannot be STORED here: compute"),
        ("create table c (v varchar collate nocase)", "declared here: texts are compared by their bytes"),
        ("create table c (i int default random())", "a default is a constant"),
        ("create table c (i int, b int default i)", "a default is a constant"),
        ("create table c (i int references d (i))", "REFERENCES"),
        ("create table c (i int) with (colour = 'red')", "colour"),
        ("drop table a, b.c", "plain names"),
    ],
)
def test_a_clause_that_is_not_used_is_named(sql, clause):
    with pytest.raises(SqlError) as caught:
        read_change(sql)
    assert clause.lower() in caught.value.message.lower()


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("delete from t order by a limit 1", "mysql"),
        ("update t set a = 1 limit 1", "mysql"),
        ("insert into t partition (g = 1) select 1", "spark"),
        ("insert overwrite directory 'x' select 1", "spark"),
        ("truncate table t partition (g = 1)", "spark"),
        ("insert ignore into t values (1)", "mysql"),
        ("delete from only t", "postgres"),
        ("drop table t purge", "spark"),
        ("delete a from a join b on a.i = b.i", "mysql"),
        ("create table a like b", "mysql"),
        ("create table a like b using parquet", "spark"),
        ("create table a (like b) with (fillfactor = 70)", "postgres"),
        ("create table a clone b", "snowflake"),
        ("create table a as select 1 as i with no data", "postgres"),
        ("create table a (i int) engine = InnoDB", "mysql"),
        ("create table a (i int) with (fillfactor = 70)", "postgres"),
        ("create table a (i int) without rowid", "sqlite"),
        ("insert into t select * from s distribute by i", "spark"),
        ("insert into t select * from s cluster by i", "hive"),
        ("insert into t select * from s sort by i limit 3", "hive"),
        ("insert into t select * from (select * from s sort by i limit 3) as x", "hive"),
        ("delete from t where i in (select i from s sort by i limit 1)", "spark"),
        ("with q as (select * from s distribute by i) select * from q", "spark"),
        ("insert into t select * from s prewhere i = 1", "clickhouse"),
        ("select * from s limit 1 by i", "clickhouse"),
        ("select * from s partition (p0)", "mysql"),
        ("select * from s version as of 1", "databricks"),
        ("select * from s at (offset => -60)", "snowflake"),
        ("select * into x from s", "tsql"),
        ("delete from t using t join s on t.i = s.i where s.i = 1", "mysql"),
        ("update t set i = 1 from t join s on t.i = s.i", "tsql"),
        ("update x set i = 1 from t as x where x.i = 1", "tsql"),
    ],
)
def test_a_clause_of_another_dialect_is_refused_before_it_is_translated(sql, dialect):
    with pytest.raises(SqlError, match=r"cannot be run here|is not read here"):
        engine_sql(sql, dialect)


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("create table a (i int auto_increment)", "mysql"),
        ("create table a (i int comment 'x')", "spark"),
        ("create table a (i int, index j (i))", "mysql"),
        ("create table a (i int generated always as (j + 1), j int)", "spark"),
        ("create table a (i int invisible)", "mysql"),
    ],
)
def test_what_a_column_of_another_dialect_cannot_be_is_refused_before_it_is_translated(sql, dialect):
    with pytest.raises(SqlError, match=r"cannot be declared here|is not read here"):
        engine_sql(sql, dialect)


@pytest.mark.parametrize("kind", sorted(CARRIED, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_every_clause_of_a_query_that_is_not_carried_over_is_refused_by_its_name(kind):
    assert CARRIED[kind] <= set(kind.arg_types), "a listed argument is no longer one of the parser"
    for key in set(kind.arg_types) - CARRIED[kind] | {"argument_of_a_later_release"}:
        with pytest.raises(SqlError, match=r"cannot be run here|is not read here"):
            require_carried(kind(**{key: exp.Literal.number(1)}))


def test_the_common_clauses_of_queries_are_carried_over():
    sql = (
        "with q as (select distinct a, count(*) as n from s join u using (i) where a > 1 group by rollup (a) "
        "having count(*) > 1 order by a desc nulls last limit 3 offset 1) select * from q union all select * from r"
    )
    tables = {
        name: pa.schema([("i", pa.int64()), ("a", pa.int64()), ("n", pa.int64())][:width])
        for name, width in (("s", 2), ("u", 1), ("r", 3))
    }
    tables["r"] = pa.schema([("a", pa.int64()), ("n", pa.int64())])
    assert engine_sql(sql, "postgres", tables).lower().startswith("with q as (select distinct a")


NARROWING = [
    ("delete from t partition (p0)", "mysql"),
    ("delete from t order by i limit 1", "mysql"),
    ("delete from t limit 1", "duckdb"),
    ("delete top (1) from t", "tsql"),
    ("update t partition (p0) set i = 1", "mysql"),
    ("update t set i = 1 order by i limit 1", "mysql"),
    ("update t join s on t.i = s.i set t.i = 1", "mysql"),
    ("delete from t version as of 1", "databricks"),
    ("delete from t at (offset => -60) where i = 1", "snowflake"),
    ("delete from t tablesample (1 percent)", "spark"),
    ("delete from t on cluster c where i = 1", "clickhouse"),
    ("insert into t partition (g = 1) select i from s", "spark"),
    ("truncate table t partition (g = 1)", "spark"),
]


@pytest.mark.parametrize(("sql", "dialect"), NARROWING)
def test_nobody_is_told_to_leave_out_what_says_which_rows_change(sql, dialect):
    with pytest.raises(SqlError, match="cannot be run here: ") as caught:
        require_used(parse_one(sql, dialect=dialect), dialect)
    assert "leave" not in caught.value.message
    assert re.search(r"which rows|every column its value", caught.value.message)


def test_only_clauses_that_change_no_row_may_be_left_out():
    """Whatever else a parser knows or will know, of a table or of a statement over it."""
    for kind in (exp.Update, exp.Delete, exp.Merge, exp.Insert, exp.TruncateTable):
        for tree, node in [pair for of in USED for pair in nodes_of(of) if isinstance(pair[0], kind)]:
            for key in set(node.arg_types) - USED[type(node)] | {"argument_of_a_later_release"}:
                if is_given(node.args.get(key)):
                    continue
                changed = tree.copy()
                place = [type(item) for item in tree.walk()].index(type(node))
                list(changed.walk())[place].set(key, exp.Literal.number(1))
                with pytest.raises(SqlError) as caught:
                    require_used(changed)
                harmless = ("hint", "hints", "only", "indexed", "settings", "identity")
                assert "leave it out" not in caught.value.message or key in harmless


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("update ignore t set i = 1", "mysql"),
        ("update or ignore t set i = 1", "sqlite"),
        ("select transform(a) using 'cat' from s", "duckdb"),
        ("delete from t where", "mysql"),
        ("insert into t values (1) as new", "mysql"),
    ],
)
def test_no_object_of_the_parser_is_shown(sql, dialect):
    with pytest.raises(SqlError) as caught:
        read_change(engine_sql(sql, dialect)) or read(engine_sql(sql, dialect), described=False)
    assert not re.search(r"<|Token|sqlglot|\bexp\.", caught.value.message)


def test_a_table_without_data_is_refused_in_words():
    with pytest.raises(SqlError, match="WITH NO DATA cannot be run here"):
        read_change("create table a as select 1 as i with no data")


def test_a_column_named_with_a_catalog_is_refused_with_the_name_that_it_has():
    for sql in ("delete from t where ballista.main.t.k = 1", "update t set i = 1 where ballista.main.t.k = 1"):
        with pytest.raises(SqlError, match=r"'ballista\.main\.t\.k' is no column: .* as t\.k"):
            read_change(sql)
    assert isinstance(read_change("delete from t where t.main.t.k = 1"), Local)  # fields of a struct


def test_the_query_of_an_insert_stands_where_it_stood_in_the_text():
    sql = "with a as (select 1)\ninsert into t (i, j) by name\n  select * from a where x = '(' -- end"
    change = read_change(sql)
    assert isinstance(change, Insert)
    assert change.query.index("select * from a") == sql.index("select * from a")
    assert change.query.split() == [
        "with",
        "a",
        "as",
        "(select",
        "1)",
        "select",
        "*",
        "from",
        "a",
        "where",
        "x",
        "=",
        "'('",
    ]
    assert read_change("insert into t values (1, '(')").query.strip() == "values (1, '(')"


@pytest.mark.parametrize(
    ("sql", "where", "assignments"),
    [
        ("delete from t where s ^@ 'a' || 'b' -- all", "s ^@ 'a' || 'b'", None),
        ("delete from t", None, None),
        ("update t as x set s = date_trunc(year, ts), i = [1, 2][1] where i = 2", "i = 2", 2),
        ("update t set s = ' where ', j = {'a': 1, 'b': 2}.a", None, 2),
        ("update t set s = case when i = 1 then 'set' end, i = f(1, (2), 'x,)')", None, 2),
    ],
)
def test_the_expressions_of_a_local_change_are_those_of_the_text(sql, where, assignments):
    change = read_change(sql)
    assert isinstance(change, Local)
    assert change.where == where
    assert (change.assignments is None) if assignments is None else len(change.assignments or ()) == assignments
    for _, value in change.assignments or ():
        assert value in sql


def test_a_predicate_that_the_parser_misreads_prunes_nothing():
    assert read_change("delete from t where i = 1").tree is not None
    assert read_change("delete from t where i = 1 and s ^@ 'a' || 'b'").tree is None
    assert read_change("update t set i = 1 where date_trunc(year, ts) = ts").tree is None


def test_what_is_no_single_assignment_runs_as_a_whole_in_the_text_of_the_user():
    for sql in (
        "update t set (i, j) = row(1, 2)",
        "update t set i = (select 1)",
        "delete from t using u where t.i = u.i",
    ):
        change = read_change(sql)
        assert isinstance(change, General)
        assert change.text == sql


def test_columns_that_are_set_together_are_told_one_by_one():
    change = read_change("update t set (i, j) = (f(1, 2), (j)), k = 3 where i > 0 returning (i)")
    assert change.assignments == (("i", "f(1, 2)"), ("j", "(j)"), ("k", "3"))
    assert (change.where, change.returning) == ("i > 0", "(i)")


def test_checks_are_kept_as_they_were_written():
    change = read_change("create table t (s varchar check (s ^@ 'a'), i int, check (i > 0 and s <> ')'))")
    assert change.checks == ("s ^@ 'a'", "i > 0 and s <> ')'")


def test_keys_of_a_window_are_no_keys_of_the_table():
    change = read_change("create table t as select row_number() over (partition by g) as n from u")
    assert change.partition_by == ()
    change = read_change("create table t partitioned by (bucket(4, n), lower(s)) as select 1 as n, 'a' as s")
    assert change.partition_by == ("bucket(4, n)", "lower(s)")


def test_what_a_table_is_to_have_is_read_in_whatever_form_it_is_said():
    made = read_change(
        "create table c (i int constraint a check (i > 0) default -5 not null, t varchar default 'a, not null, b' "
        'constraint k primary key, "N n" int[] default [1, (2)] null, b bool default null not null, '
        "constraint two check (i < 9)) partitioned by (bucket(2, t)) with (file_format = 'vortex')"
    )
    assert made.columns == (("i", False), ("t", False), ("N n", True), ("b", False))
    assert made.defaults == (("i", "-5"), ("t", "'a, not null, b'"), ("N n", "[1, (2)]"))
    assert (made.primary_key, made.checks) == (("t",), ("i > 0", "i < 9"))
    named = read_change("create table c (i int, j int, constraint k primary key (i, j))")
    assert named.primary_key == ("i", "j")
    assert named == evolve(
        read_change("create table c (i int, j int, primary key (i, j))"), declaration=named.declaration
    )


def test_a_table_is_not_like_any_number_of_others():
    with pytest.raises(SqlError, match="at most 100 others, not 20000"):
        read_change("create table t (" + "like s, " * 20_000 + "a int)")
    assert len(read_change("create table t (" + "like s, " * 100 + "a int)").pieces) == 100
