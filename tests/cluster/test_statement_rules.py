"""A statement does all of what it says or nothing, says why in the user's own words, and leaves nothing behind."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import ballista_py
from ballista_py import LocalCluster
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, ConfigError, SqlError

pytestmark = pytest.mark.cluster
SRC = Path(ballista_py.__file__).parent
COLUMNS = "id bigint, g bigint, s varchar, year varchar, ts timestamp"
ROWS = (
    "(1, 1, 'a', 'year', timestamp '2024-05-06'), (2, 1, 'ab', 'day', timestamp '2024-05-07'), "
    "(3, 2, null, 'day', null)"
)
GAUGES = re.compile(r"^node_tasks_active\S* (\S+)$", re.M)
PLAIN = ("hit", "hit_2", "place", "number", "row", "rows", "one", "c0", "f0", "b0", "r", "groups", "low", "high")


@pytest.fixture(scope="module")
def site():
    with LocalCluster(schedulers=1, executors=1) as cluster, duckdb.connect() as single:
        single.execute("set TimeZone = 'UTC'")
        for place in (cluster.sql, single.execute):
            for table in ("t", "u"):
                keys = " partitioned by (bucket(2, id))" if place == cluster.sql else ""
                place(f"create table {table} ({COLUMNS}){keys}")
                place(f"insert into {table} values {ROWS}")
        yield cluster, single


def same(cluster, single, table: str) -> bool:
    rows = single.sql(f"select * from {table}").to_arrow_table()
    return difference(cluster.sql(f"select * from {table}"), rows) is None


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "statement",
    [
        "delete from t where id = 1 limit 1",
        "delete from t order by id",
        "delete * from t",
        "update t set s = 'x' limit 1",
        "truncate t partition (g = 1)",
        "insert overwrite t select * from t",
        "insert into t replace where g = 1 select * from t",
        "create table c (i int) as select 5",
        "with a as (select 1) insert into t (id) with b as (select 2) select * from b",
        "insert into t (id) values (1) on conflict do nothing",
        "create or replace table t as select * from t",
        "truncate t; truncate u",
    ],
)
def test_a_clause_that_is_not_carried_out_changes_nothing(site, statement):
    cluster, single = site
    with pytest.raises(SqlError):
        cluster.sql(statement)
    assert same(cluster, single, "t")
    assert cluster.sql("show tables")["name"].to_pylist() == ["t", "u"]


@pytest.mark.parametrize(
    "statement",
    [
        "update t set s = date_trunc(year, ts)::varchar where ts is not null",
        "update t set s = s || 'x' where s ^@ 'a'",
        "delete from t where starts_with(s, 'a') and s ^@ 'zz'",
        "update t set (s, g) = ('both', 7) where id = 2",
        "insert into t (id, s) with a as (select 8 as id) select id, 'with' from a",
        "with a as (select 9 as id) insert into t by name select id, 'named' as s from a",
        "update t set s = case when id = 1 then 'set' else ' where ' end, year = default where id < 3 -- end",
        "delete from t as x using u where x.id = u.id and u.g = 2",
        "update t set s = id > 1 where id < 3",
        "update t set s = id = 1 or id <> 2, g = 5 where id < 3",
        "update t set s = u.g < t.id from u where t.id = u.id",
        "merge into t using u on t.id = u.id when matched then update set s = u.g >= t.id",
    ],
)
def test_expressions_mean_what_the_engine_reads(site, statement):
    cluster, single = site
    done = single.execute(statement).fetchall()
    assert cluster.sql(statement).to_pylist() == [{"affected_rows": done[0][0]}]
    assert same(cluster, single, "t")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("insert into t (id)\nselect nope from t", "nope"),
        ("with a as (select 1) insert into t (id) select nope from a", "nope"),
        ("insert into t values (1, nope, 'a', 'b', null)", "nope"),
        ("update t set s = s,\n g = nope", "nope"),
        ("delete from t where id = 1 and nope = 2", "nope"),
        ("delete from t using u where t.id = u.nope", "u.nope"),
        ("create table c as select nope from t", "nope"),
        ("create table c (i int, j nosuch)", "nosuch"),
        ("describe select nope from t", "nope"),
        ("explain select nope from t", "nope"),
        ("select 1 from t where nope", "nope"),
        ("delete from t where limit 1", "limit"),
    ],
)
def test_the_position_of_an_error_is_one_in_the_text_of_the_user(site, statement, found):
    cluster, _ = site
    with pytest.raises(SqlError) as caught:
        cluster.sql(statement)
    before = statement[: statement.index(found)]
    place = (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    assert (caught.value.details["line"], caught.value.details["column"]) == place, caught.value


FAILING = (
    "insert into t select id from t",
    "insert into t (id, nope) select id, g from t",
    "insert into t (id) select s from u",
    "insert into t (id) select (s || 'x')::bigint from t",
    "create table t as select id from t",
    "create table c as select id::hugeint as id from t",
    "create table c partitioned by (nope) as select * from t",
    "merge into t using u on t.id = u.id when matched then update set id = s::bigint",
    "update t set id = (s || 'x')::bigint where s is not null",
    "update t set nope = 1",
    "delete from t using u where t.id = u.nope",
    "select (s || 'x')::bigint from t",
    "explain analyze select (s || 'x')::bigint from t",
    "describe select nope from t",
    "summarize select nope from t",
    "begin",
)


def test_a_statement_that_fails_leaves_nothing_running(site, wait_until):
    cluster, _ = site
    for statement in FAILING:
        with pytest.raises(BallistaError):
            cluster.sql(statement)
    with cluster.client() as client:
        for _ in range(3):
            client.stream("select a.id from t a, t b").cancel()
    require_nothing_running(cluster, wait_until)


def require_nothing_running(cluster, wait_until) -> None:
    """Neither a task, a statement, a leg nor a call of anybody else is left at any node."""
    with cluster.client() as client:
        wait_until(lambda: not [task for task in client.tasks() if task["outcome"] == "running"])
    for node in cluster.node_ids:
        wait_until(
            lambda node=node: not [t for t in cluster.shown(node, "/tasks")["tasks"] if t["outcome"] == "running"]
        )
        wait_until(lambda node=node: set(GAUGES.findall(cluster.shown(node, "/metrics"))) == {"0.0"})


def internal_names() -> list[str]:
    """Every name that the code writes into SQL and calls its own, by a look at the code, and some that it may."""
    found = set()
    for path in SRC.rglob("*.py"):
        found |= set(re.findall(r"""["' ({,.](__[a-z][a-z_]*[a-z])\b(?!__)""", path.read_text()))
        found |= set(re.findall(r"\bas ([a-z_]{1,20})\b", " ".join(re.findall(r'f"[^"]*"', path.read_text()))))
    return sorted((found | set(PLAIN)) - {"id"})


def test_columns_and_tables_named_like_our_own_are_changed_and_read_as_any_other(site):
    cluster, single = site
    names = internal_names()
    assert {"hit", "__partition", "place", "number"} <= set(names)
    assert len(names) > 25
    taken = [
        name for name in names if name in ("__partition", "__file_id", "rowid") or name.startswith("__ballista_")
    ]
    for name in (*taken, "rowid", "__PARTITION"):
        with pytest.raises(ConfigError, match="a name that is taken"):
            cluster.sql(f'create table refused (id int, "{name}" int)')
    free = [name for name in names if name not in taken]
    columns = ", ".join(f'"{name}" boolean' for name in free)
    for place in (cluster.sql, single.execute):
        keys = " partitioned by (bucket(2, id))" if place == cluster.sql else ""
        place(f"create table named (id bigint, {columns}, check (id < 100)){keys}")
    values = ", ".join("true" if number % 2 else "false" for number in range(len(free)))
    opposite = ", ".join("false" if number % 2 else "true" for number in range(len(free)))
    flipped = ", ".join(f'"{name}" = not "{name}"' for name in free)
    statements = [
        f"insert into named values (1, {values}), (2, {opposite}), (3, {values})",
        f'update named set {flipped} where id = 1 or "{free[0]}"',
        *(f'update named set "{name}" = not "{name}" where id = 1 or "{name}"' for name in PLAIN[:5]),
    ]
    statements += [
        f'update named set id = id + 10 where "{free[0]}" or id = 3',
        f'delete from named as x using u where x.id = u.id and x."{free[1]}"',
        f'merge into named using u on named.id = u.id when matched then update set "{free[2]}" = null '
        "when not matched then insert (id) values (u.id + 50)",
        f'delete from named where not "{free[3]}"',
    ]
    for statement in statements:
        expected = single.execute(statement).fetchall()
        assert cluster.sql(statement).to_pylist() == [{"affected_rows": expected[0][0]}], statement
        assert same(cluster, single, "named"), statement
    for query in (
        f'select "{free[0]}" as k, count(*) as n, count(distinct "{free[1]}") as d from named group by 1',
        f'select a.id from named a join named b on a.id = b.id and a."{free[2]}" is not distinct from b."{free[3]}"',
        f'select id from named where "{free[4]}" is null or id in (select id from named where "{free[5]}" is null)',
    ):
        rows = single.sql(query).to_arrow_table()
        assert difference(cluster.sql(query), rows) is None, query


@pytest.mark.parametrize("name", ["f0", "b0", "rows", "groups", "__new", "__before"])
def test_tables_named_like_our_own_relations_are_changed_and_read_as_any_other(site, name):
    cluster, single = site
    for place in (cluster.sql, single.execute):
        place(f"create table {name} (id bigint primary key, v varchar)")
        for statement in (
            f"insert into {name} values (1, 'a'), (2, 'b')",
            f"insert into {name} select id + 2, v from {name}",
            f"update {name} set v = v || (select count(*) from {name})::varchar where id > 1",
            f"merge into {name} using t on t.id = {name}.id when matched then update set v = t.s "
            f"when not matched then insert values (t.id + 100, 'm')",
            f"delete from {name} where id in (select x.id from {name} x join {name} y on x.id = y.id where x.id = 4)",
        ):
            place(statement)
    assert same(cluster, single, name)
    query = f"select v, count(*) as n from {name} where id > (select min(id) from {name}) group by v"
    assert difference(cluster.sql(query), single.sql(query).to_arrow_table()) is None


def test_the_command_line_and_flight_sql_take_every_kind_of_statement(cli, site):
    cluster, _ = site
    at = ("--connect", cluster.addresses()[0])
    assert "affected_rows" in cli("sql", *at, "create table shell (id int)").stdout
    assert '"affected_rows": 2' in cli("sql", *at, "--json", "insert into shell values (1), (2)").stdout
    assert "column_name" in cli("sql", *at, "describe shell").stdout
    refused = cli("sql", *at, "create index i on shell (id)")
    assert refused.returncode == 1
    assert "CREATE INDEX cannot be run here: " in refused.stderr
    assert "affected_rows" in cli("sql", *at, "drop table shell").stdout
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with dbapi.connect("grpc://" + cluster.addresses()[0]) as connection, connection.cursor() as cursor:
        for statement in ("describe t", "show tables", "explain select * from t", "summarize t"):
            cursor.execute(statement)
            assert pa.Table.num_rows.__get__(cursor.fetch_arrow_table()) > 0, statement
        for statement in ("begin", "create index i on t (id)", "pragma x"):
            with pytest.raises(Exception, match="cannot be run here: "):
                cursor.execute(statement)


def test_rows_without_names_become_structs_by_their_places(site):
    cluster, _ = site
    cluster.sql("create table rows_of (id int, a struct(x int, y varchar)[], b struct(x int, y varchar))")
    for text in (
        "values (1, [row(1, 'a'), row(2, 'b')], null)",
        "values (2, null, (2, 'b')), (3, null, null), (4, null, {'y': 'd', 'x': 4})",
        "select id + 4, null, row(id + 4, 'e') from rows_of where id = 1",
    ):
        cluster.sql(f"insert into rows_of {text}")
    found = cluster.sql("select a, b from rows_of order by id").to_pylist()
    assert found[0]["a"] == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    assert [row["b"] and tuple(row["b"].values()) for row in found[1:]] == [(2, "b"), None, (4, "d"), (5, "e")]
    cluster.sql("drop table rows_of")


@pytest.fixture(scope="module")
def nested(site):
    cluster, _ = site
    cluster.sql(
        "create table nested (id int primary key, s varchar, p struct(x int, y varchar), m map(varchar, int))"
    )
    yield cluster
    cluster.sql("drop table if exists nested")


EMPTY = (
    "insert into nested values ({}, 'a', null, map {{}})",
    "insert into nested (m, id) values (map {{}}, {}), (map {{'x': 1}}, -{})",
    "insert into nested (id, m) select {}, map {{}}",
    "insert into nested by name select map {{}} as m, {} as id, row(1, 'a') as p",
    "insert into nested by name (select row(1, 'a') as p, {} as ID)",
    "with q as (select {} as i) insert into nested (id, m) select i, map([], []) from q returning m",
    "insert into nested (id, m) values ({}, map()) on conflict do nothing",
    "update nested set m = map {{}}::map(varchar, int) where id < {}",
    "delete from nested where m = map {{}}::map(varchar, int) and id = {}",
)


def test_maps_without_entries_and_rows_without_names_are_those_of_their_column(nested):
    with duckdb.connect() as single:
        single.execute(
            "create table nested (id int primary key, s varchar, p struct(x int, y varchar), m map(varchar, int))"
        )
        for number, form in enumerate(EMPTY, 1):
            sql = form.format(number, number)
            nested.sql(sql)
            single.execute(sql)
        for query in ("from nested order by id", "select id, map {}::map(int, int) as e from nested order by id"):
            assert nested.sql(query).to_pylist() == single.sql(query).to_arrow_table().to_pylist()
        assert nested.sql("select map {}::map(int, int) as e, count(*) as n from nested group by e").num_rows == 1


@pytest.mark.parametrize(
    "sql",
    [
        "insert into nested (id, s) values (1, 'a'), (!nope, 2)",
        "insert into nested (id, s) values\n (1, 2),\n (2, 'b'), (3, upper(!nope))",
        "insert into nested (id, s) values (1, default), (2, 'b'), (3,\n !nofun(3))",
        "insert into nested (id, p) select 1, row(1, !nope)",
        "insert into nested by name\nselect 1 as id, row(1, !nope) as p",
        "with q as (select 1 as i)\ninsert into nested (id, p) select i, row(1, !nope) from q",
        "insert into nested (id, p) values (1, !row(1, 2, 3))",
        "insert into nested (id, s) values (1, 'a'), (!nope, 2) returning id",
        "insert into nested (id, m) select 1, map {} from t where !nope = 3",
    ],
)
def test_a_place_in_an_insert_is_one_in_the_text_of_the_user(nested, sql):
    place = sql.index("!")
    line, column = sql.count("\n", 0, place) + 1, place - (sql.rfind("\n", 0, place) + 1) + 1
    with pytest.raises(SqlError) as raised:
        nested.sql(sql.replace("!", ""))
    assert raised.value.message.endswith(f"(line {line}, column {column})"), raised.value.message
    assert (raised.value.details["line"], raised.value.details["column"]) == (line, column)


@pytest.mark.parametrize("rows", ["values (1, 2)", "(values (1, 2))"])
def test_values_have_no_names_to_insert_by(nested, rows):
    with pytest.raises(SqlError, match="BY NAME needs a query that names its columns"):
        nested.sql(f"insert into nested by name {rows}")


def test_the_new_name_of_a_table_may_have_its_schema(nested):
    nested.sql("create table before (a int)")
    nested.sql("alter table before rename to main.between")
    nested.sql('alter table main.between rename to "ballista"."main"."after it"')
    assert nested.sql('select * from "after it"').num_rows == 0
    nested.sql('drop table "after it"')


@pytest.mark.parametrize(
    "sql",
    [
        "insert into times values (3, {})",
        "insert into times select 3, {}",
        "update times set t = {}",
        "update times set t = {} where id in (select id from times)",
        "merge into times using (select 1 as id) n using (id) when matched then update set t = {}",
        "insert into times values (1, null) on conflict do update set t = {}",
        "create table times_too as select {} as t",
        "create table times_too (t time default {})",
        "alter table times add column u time default {}",
        "select {} as t, id from times",
        "select max({}) as t from times",
        "select [{}] as t",
    ],
)
def test_the_time_after_the_last_is_refused_where_it_would_be_kept_or_shown(times, sql):
    with pytest.raises(BallistaError, match=r"24:00:00|time after 23:59:59"):
        times.sql(sql.format("time '24:00:00'"))
    assert times.sql("select * from times where t < '24:00:00' order by id").num_rows == 2


@pytest.fixture(scope="module")
def times(site):
    cluster, _ = site
    cluster.sql("create table times (id int primary key, t time)")
    cluster.sql("insert into times values (1, '00:00:00'), (2, '23:59:59.999999')")
    yield cluster
    cluster.sql("drop table times")


@pytest.mark.parametrize("keys", ["", " partitioned by (bucket(4, id))"])
def test_a_change_has_one_moment_in_all_partitions_and_files(site, keys):
    cluster, _ = site
    cluster.sql(f"create table moments (id int, ts timestamptz default now(), d date){keys}")
    for start in range(0, 400, 100):  # files of their own
        cluster.sql(f"insert into moments (id, ts) select i + {start}, null from range(100) r(i)")
    for value in ("now()", "default", "current_localtimestamp()", "main.now()"):
        assert cluster.sql(f"update moments set ts = {value}, d = current_date where ts is not null or id >= 0")
        assert cluster.sql("select count(distinct ts) as n, count(ts) as c from moments").to_pylist() == [
            {"n": 1, "c": 400}
        ]
    assert cluster.sql("delete from moments where ts < now() - interval 1 day").to_pylist() == [
        {"affected_rows": 0}
    ]
    with pytest.raises(SqlError, match=r"nowhere.*line 1, column 37"):
        cluster.sql("update moments set ts = now() where nowhere = 1")
    cluster.sql("drop table moments")


@pytest.mark.parametrize(
    "statement",
    [
        "merge into {t} using (x join y using (id)) s on {t}.id = s.id when matched then update set a = s.b",
        "merge into {t} using (x inner join y on x.id = y.id) on {t}.id = y.id when matched then update set a = b + 5",
        "update {t} set a = s.b + 1 from (x join y using (id)) s where s.id = {t}.id",
        "update {t} set a = y.b + 2 from ((x join y using (id))) where x.id = {t}.id",
        "delete from {t} using (x join y using (id)) s where s.id = {t}.id and s.b = 120",
    ],
)
def test_a_join_in_brackets_is_a_source_of_a_change(site, statement):
    cluster, _ = site
    with duckdb.connect() as single:
        for place in (cluster.sql, single.execute):
            for table in ("brackets", "x", "y"):
                place(f"create table {table} (id int, {'b' if table == 'y' else 'a'} int)")
                place(f"insert into {table} values (1, 120), (2, 121), (3, 122)")
            place(statement.format(t="brackets"))
        told = cluster.sql("select * from brackets")
        assert difference(told, single.sql("select * from brackets").to_arrow_table()) is None
    with pytest.raises(SqlError, match="read_csv"):
        cluster.sql("update brackets set a = 1 from (x join read_csv('/etc/passwd') using (id)) where x.id = 1")
    cluster.sql("drop table brackets, x, y")


@pytest.mark.parametrize("statement", ["set statement_timeout = '1ms'", "PREPARE p AS select 1", "reset all"])
def test_a_statement_about_a_session_that_does_not_last_is_refused(site, statement):
    with pytest.raises(
        SqlError, match=r"is about a session, and none lasts in LocalCluster.sql: with cluster.client"
    ):
        site[0].sql(statement)
