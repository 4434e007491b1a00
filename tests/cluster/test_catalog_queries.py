"""What a cluster says of its tables, by every way in: information_schema, SHOW, names with schema and catalog."""

from __future__ import annotations

import adbc_driver_flightsql.dbapi as flightsql
import duckdb
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SqlError

DECLARED = (
    """create table things (id bigint primary key, "a b" varchar not null, size decimal(10, 2), f double, r float,
    "größe" integer, l integer[], s struct(x integer, y varchar), t timestamp, u utinyint,
    b boolean, check (id > 0))""",
    "create table others (k integer, v varchar)",
)
COUNTED = (
    "create table counted (k integer default 1 + 2, d date default date '2024-02-29', s varchar not null default "
    "'it''s', i integer[] default [1, 2], primary key (k, s))"
)
# What looks through a query for the columns of tables, and what does not.
DESCRIBED = (
    "from things",
    "select * from things",
    "select things.*, v from things left join others on k = id",
    'select id, id + 1 as next, "a b" as named from ballista.main.things where id > 1 order by id',
    "select * from counted",
    "select k as i, s, d from counted as c",
    "select i, s from (select k as i, s, d from counted)",
    "with c as (from counted) from c",
    "select k, s from counted union all select k, v from others",
    "select s from counted group by s",
    "select distinct k, s from counted",
    "select count(*), max(s) as s from counted",
    "select * exclude (d) replace (upper(s) as s) from counted",
    "(select s from counted)",
    "values (1, 'a')",
    "select 1 as x, null as y, now() as z",
    'select * from counted where s in (select "a b" from things)',
    "select unnest(i) as u, s from counted",
    "select t.s, x from counted as t, (values (1)) as v(x)",
)


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        for number, text in enumerate(DECLARED):
            cluster.sql(f"{text} partitioned by ({'bucket(4, id)' if number == 0 else 'k'})")
        cluster.sql("comment on column things.f is 'half'")
        cluster.sql("comment on table things is 'all'")
        yield cluster


@pytest.fixture(scope="module")
def one():
    """One DuckDB whose database is called as the cluster's."""
    with duckdb.connect() as connection:
        connection.execute("attach ':memory:' as ballista")
        connection.execute("use ballista")
        for text in DECLARED:
            connection.execute(text)
        connection.execute("comment on column things.f is 'half'")
        connection.execute("comment on table things is 'all'")
        yield connection


QUERIES = (
    "select * from information_schema.tables where table_catalog = 'ballista' order by table_name",
    "select * from information_schema.columns where table_catalog = 'ballista' order by table_name, ordinal_position",
    "from information_schema.schemata select * where catalog_name = 'ballista' and schema_name = 'main'",
    "select * from information_schema.key_column_usage where table_schema = 'main'",
    "select * exclude (constraint_name) from information_schema.table_constraints where table_catalog = 'ballista' "
    "and table_schema = 'main' order by table_name, constraint_type, constraint_name",
    "with c as (select * from information_schema.columns where table_schema = 'main') select t.table_name, count(*) "
    "from c join information_schema.tables as t on c.table_name = t.table_name group by all order by all",
    "select columns.column_name from information_schema.columns where table_name = 'others' order by ordinal_position",
    "show tables",
    "show tables from main",
    "show all tables",
    "describe",
    "show select id, \"a b\" as named from things",
    "show (select count(*) from others)",
    "show from others",
    "describe main.others",
    "select main.things.id from ballista.main.things",
    "select * from (describe things)",
    "with d as (describe main.things) select column_name, \"null\" from d where key = 'PRI' order by all",
    "select a.column_name, t.table_name from (describe others) a left join information_schema.tables t on true "
    "where t.table_catalog = 'ballista' order by all",
)  # fmt: skip


@pytest.mark.parametrize("sql", QUERIES)
def test_the_catalog_is_shown_as_one_duckdb_shows_it_through_every_entry(small, one, sql):
    wanted = one.sql(sql).to_arrow_table()
    answer = small.sql(sql)
    assert answer.column_names == wanted.column_names
    assert answer.to_pylist() == wanted.to_pylist()
    with flightsql.connect(small.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        assert cursor.fetch_arrow_table().to_pylist() == wanted.to_pylist()


def test_a_query_is_described_with_the_constraints_of_the_columns_it_shows(small, one):
    small.sql(f"{COUNTED} partitioned by (bucket(2, k))")
    one.execute(COUNTED)
    for query in ("counted", *DESCRIBED):
        wanted = one.sql(f"describe {query}").to_arrow_table().to_pylist()
        assert small.sql(f"describe {query}").to_pylist() == wanted, query
    small.sql("drop table counted")
    one.execute("drop table counted")


def test_parameters_of_adbc_reach_the_catalog(small):
    with flightsql.connect(small.flight_sql_url(), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            "select column_name from information_schema.columns where table_name = ? order by 1", ("others",)
        )
        assert cursor.fetchall() == [("k",), ("v",)]


def test_databases_and_schemas_have_the_names_that_tables_may_be_called_by(small, one):
    assert small.sql("show databases").to_pylist() == [{"database_name": "ballista"}]
    assert small.sql("show columns from main.others").equals(small.sql("describe others"))
    names = small.sql("select table_name from ballista.information_schema.tables order by 1")["table_name"]
    assert names.to_pylist() == ["others", "things"]
    shown, wanted = small.sql("show schemas"), one.sql("show schemas").to_arrow_table()
    assert shown.schema == wanted.schema
    assert shown.to_pylist() == [row for row in wanted.to_pylist() if row["database_name"] == "ballista"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from information_schema.tables, others", "cannot be read together with table 'others'"),
        ("select * from information_schema.nosuch", "nosuch"),
        (
            "select * from (describe things), others",
            "DESCRIBE of a table cannot be read together with table 'others'",
        ),
        ("select * from (describe nosuch)", "Table 'nosuch' does not exist"),
        ("create table z as select * from (describe things)", "cannot be a part of another statement"),
        ("explain select * from information_schema.tables", "cannot be a part of another statement"),
        ("select * from other.information_schema.tables", "name it as information_schema.tables"),
    ],
)
def test_what_the_catalog_does_not_have_is_refused_by_name(small, sql, said):
    with pytest.raises(SqlError, match=said):
        small.sql(sql)


CHANGES = (
    "insert into main.others values (1, 'a'), (2, 'b')",
    "insert into ballista.main.others (v, k) select v, k + 10 from main.others",
    "update main.others set v = 'c' where main.others.k = 2",
    "delete from ballista.main.others where others.k = 11",
    "merge into main.others using (select 1 as k) s on others.k = s.k when matched then update set v = 'm'",
    "create table main.made as select * from main.others",
    "insert into made select * from ballista.main.made",
    "drop table main.made",
)


def test_changes_name_tables_with_schema_and_catalog(small, one):
    for sql in CHANGES:
        one.execute(sql)
        small.sql(sql)
        if "drop" not in sql:
            table = "made" if "made" in sql else "others"
            look = f"select * from main.{table} order by all"
            assert small.sql(look).to_pylist() == one.sql(look).to_arrow_table().to_pylist()


@pytest.mark.parametrize(
    "sql",
    [
        "select rowid from others",
        "select others.rowid from others",
        "select * from others where rowid = 1",
        "delete from others where rowid = 1",
        "update others set v = 'x' where rowid = 0",
        "update others set v = rowid::varchar",
    ],
)
def test_row_ids_are_refused_by_name(small, sql):
    before = small.sql("select * from others order by all")
    with pytest.raises(SqlError, match=r"^rowid cannot be used here"):
        small.sql(sql)
    assert small.sql("select * from others order by all").equals(before)


def test_a_table_that_spark_declares_takes_rows_in_sparks_order(small):
    small.sql("create table sparked (b string, a int) using parquet partitioned by (b)", dialect="spark")
    small.sql("insert into sparked values (1, 'x')", dialect="spark")
    assert small.sql("select * from sparked").to_pylist() == [{"a": 1, "b": "x"}]
    text = small.sql("show create table sparked").to_pylist()[0]["statement"]
    assert "PARTITIONED BY" in text
    small.sql("drop table sparked")
