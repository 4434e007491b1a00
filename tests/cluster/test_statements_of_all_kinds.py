"""Statements of every kind through every entry: each runs, or says by its name that it does not and what to do."""

from __future__ import annotations

import re

import adbc_driver_flightsql.dbapi as flightsql
import pytest
from typer.testing import CliRunner

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, SqlError, TimeLimit
from ballista_py.node.cli.app import app

TAKEN = """
from t insert
(select 1)
(values (1))
((select 1) union (select 2))
unpivot t on v into name n value w
pivot t on g using sum(v)
pivot t on g
from t select g, count(*) group by all
describe
select * from (describe main.t)
create or replace table parted (a int, b int) partition by (bucket(2, a))
create or replace table parted (a int, b int) partitioned by (b, bucket(2, a))
insert overwrite parted values (1, 2)
insert overwrite parted partition (b = 2) select 1
alter table parted rename to main.parts
alter table if exists main.parts rename to "ballista"."main"."parted"
drop table if exists main.nowhere, parted, nowhere_too
""".strip().splitlines()
REFUSED = """
alter table t add constraint c check (id > 0)
alter view v rename to w
alter sequence s restart
alter database d rename to e
analyze
analyze t
vacuum
vacuum analyze t
attach 'x.db' as y
detach y
begin
begin transaction
start transaction read only
commit
end
rollback
abort
savepoint a
release a
call pragma_version()
call current_setting('x')
checkpoint
force checkpoint
comment on database d is 'x'
copy from database a to b
create temp view v as select 1
create recursive view v(a) as select 1
create macro f(a) as a
create function f(a) as a + 1
create macro f(a) as table select a
create schema s
create sequence s
create type e as enum ('a')
create index i on t (id)
create unique index i on t (id)
create secret s (type s3)
create persistent secret s (type s3)
create temp table x (a int)
create or replace temp table x as select 1
create database d
create user u
create role r
create trigger tr after insert on t execute procedure f()
create extension x
drop schema s
drop schema if exists s cascade
drop index i
drop sequence s
drop type e
drop macro f
drop function f
drop macro table f
drop secret s
drop database d
drop trigger tr
explain insert into t values (1,'',1)
explain create table x (a int)
explain begin
export database 'x'
import database 'x'
install httpfs
load httpfs
force install httpfs
update extensions
grant select on t to u
revoke select on t from u
set threads = 1
set session threads = 1
set global threads = 1
set variable x = 1
set schema main
set search_path = 'main'
set time zone 'UTC'
reset threads
reset variable x
pragma table_info('t')
pragma version
pragma enable_profiling
use main
use ballista
use other
show variables
show functions
show all
show settings
lock table t
listen x
notify x
declare c cursor for select 1
fetch 1 from c
close c
do $$ begin end $$
cluster t
reindex table t
refresh t
rename table t to u
replace into t values (1,'',1)
select * into x from t
insert into nosuch values (1)
kill 1
merge into t using t on true
truncate t, t
optimize t
cache table t
msck repair table t
hello world
;
-- nothing
/* nothing */
select 1; select 2
insert into t values (3,'',1); delete from t
with x as (delete from t returning *) select * from x
select * from t for update
table nosuch
values
describe nosuch
summarize nosuch
show nosuch
show create table nosuch
show tables from other
explain
show
select
insert
update
delete
drop
create
alter
copy
explain analyze
explain (analyze) select 1
explain verbose select 1
with
with x as (select 1)
call
set
pragma
select * from other.t
select * from a.b.t
with x as (insert into t values (1) returning *) select * from x
select * from (show t)
select * from t at (version => 1)
select $x
select cast(1 as a.b)
values (default)
""".strip("\n").splitlines()
# Of these the first words are in the answer, and what to do instead.
NAMED = re.compile(
    r"(?:ATTACH|DETACH|BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE|CALL|CHECKPOINT|FORCE|EXPORT|IMPORT|INSTALL|"
    r"LOAD|GRANT|REVOKE|SET|RESET|PRAGMA|USE|LOCK|VACUUM|ANALYZE|KILL|REFRESH|REPLACE|PREPARE|EXECUTE|DEALLOCATE|"
    r"(?:CREATE|DROP|ALTER)(?= .*\b(VIEW|SCHEMA|SEQUENCE|TYPE|MACRO|FUNCTION|INDEX|SECRET|DATABASE|USER|ROLE|TRIGGER"
    r"|EXTENSION)\b))\b",
    re.IGNORECASE,
)
# Words of the inside: of parsers and engines, of objects, of other entries.
INTERNAL = re.compile(
    r"internal error|Only (?:one|plain) SELECT|\(met |query node|base table|<class|object at 0x|sqlglot|"
    r"exp\.|Traceback|_ref\b|"
    r"\bINT(?:8|16|32|64)\b|decimal128|\bint64\b|DOCTYPE|\n"
)


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        cluster.sql("create table t (id bigint not null, g varchar, v double) partitioned by (bucket(4, id))")
        cluster.sql("insert into t values (1, 'x', 1.5), (2, 'y', 2.5)")
        yield cluster


@pytest.fixture(scope="module")
def cursor(small):
    with flightsql.connect(small.flight_sql_url(), autocommit=True) as connection, connection.cursor() as made:
        yield made


def by_client(small, cursor, sql):
    small.sql(sql)


def by_cli(small, cursor, sql):
    CliRunner().invoke(app, ["sql", "--connect", small.addresses()[0], "--", sql], catch_exceptions=False)


def by_adbc(small, cursor, sql):
    cursor.execute(sql)
    cursor.fetch_arrow_table()


ENTRIES = (by_client, by_cli, by_adbc)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_can_be_run_is_run(small, cursor, entry):
    for sql in TAKEN:
        entry(small, cursor, sql)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_cannot_be_run_names_itself_and_nothing_of_the_inside(small, cursor, entry):
    assert len(REFUSED) >= 130
    wrong = []
    for sql in REFUSED:
        try:
            entry(small, cursor, sql)
        except (BallistaError, flightsql.Error) as error:
            said = str(error)
            named = NAMED.match(sql)
            if INTERNAL.search(said):
                wrong.append(f"{sql}: {said}")
            elif named and not (f"{sql.split()[0].upper()} " in said and "cannot be run here: " in said):
                wrong.append(f"{sql} is not named: {said}")
        else:
            wrong.append(f"{sql}: no error")
    assert not wrong, "\n".join(wrong)
    assert small.sql("select count(*) as n from t").to_pylist() == [{"n": 2}]


def test_every_entry_says_the_same(small, cursor):
    for sql in REFUSED:
        if sql.startswith(("copy", "select $x")):  # files are the client library's, parameters those of ADBC
            continue
        with pytest.raises(BallistaError) as here:
            by_client(small, cursor, sql)
        with pytest.raises(flightsql.Error) as there:
            by_adbc(small, cursor, sql)
        told = re.sub(r" \(line .*", "", here.value.message).lower()
        assert told[:60] in str(there.value).lower(), (sql, told, str(there.value))


def test_a_client_keeps_options_and_prepared_texts(small):
    with small.client() as client:
        assert client.sql("prepare q as select id from t where g = $1 and id > $2").num_rows == 0
        assert client.sql("execute q('x', 0)").to_pylist() == [{"id": 1}]
        client.sql("set dialect = spark")
        assert client.sql("select date_format(date '2020-01-02', 'yyyy') as a").to_pylist() == [{"a": "2020"}]
        assert client.sql("execute q('y', 0)").to_pylist() == [{"id": 2}]
        client.sql("reset all")
        client.sql("set statement_timeout = '200ms'")
        with pytest.raises(TimeLimit):
            client.sql("select count(*) from range(1000000) a, range(1000000) b")
        client.sql("set statement_timeout to default")
        client.sql("prepare add as insert into t values ($1, 'z', 0)")
        assert client.sql("execute add(77)").to_pylist() == [{"affected_rows": 1}]
        assert client.sql("delete from t where id = 77").to_pylist() == [{"affected_rows": 1}]
        with pytest.raises(SqlError, match="no value for the parameter 2"):
            client.sql("execute q('x')")
        client.sql("deallocate all")


def test_a_session_of_flight_sql_is_told_by_statements_what_it_is_told_by_options(small):
    cookies = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}
    with (
        flightsql.connect(small.flight_sql_url(), db_kwargs=cookies, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("select 1")
        cursor.fetchall()
        cursor.execute("set dialect = spark")
        cursor.execute("select date_format(date '2020-01-02', 'yyyy') as a")
        assert cursor.fetchall() == [("2020",)]
        cursor.execute("reset all")
        with pytest.raises(flightsql.Error):
            cursor.execute("select date_format(date '2020-01-02', 'yyyy') as a")
        with pytest.raises(flightsql.Error, match="no option 'engine'"):
            cursor.execute("set engine = spark")
        with pytest.raises(flightsql.Error, match="PREPARE cannot be run here"):
            cursor.execute("prepare q as select 1")


def test_a_session_without_cookies_has_no_options_to_set(small, cursor):
    with pytest.raises(flightsql.Error, match="keeps cookies"):
        cursor.execute("set dialect = spark")
