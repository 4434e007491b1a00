"""Rows that meet others of their primary key, and rows that a change gives: what one DuckDB does with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.coordinator.writes.kept_answers import ANSWERS_PREFIX
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, SchemaMismatch, SqlError
from ballista_py.state.stores.store import open_store

pytestmark = pytest.mark.cluster
COLUMNS = "(id bigint primary key, g varchar, v int, w double)"
# One after the other, on a table that is empty at first.
STATEMENTS = """
insert into t values (1,'a',1,1.5),(2,'b',2,2.5),(3,'c',3,null)
insert into t values (1,'z',9,9.0),(4,'d',4,4.0) on conflict do nothing
insert into t values (1,'z',9,9.0),(5,'d',4,4.0) on conflict (id) do update set g = excluded.g, v = t.v + excluded.v
insert or replace into t values (2,'rep',7,null),(6,'n',6,6.0)
insert or ignore into t values (2,'no',7,null),(7,'n',6,6.0)
insert or replace into t (v, id) values (77, 3), (88, 8)
insert or replace into t by name select 9 as id, 'byname' as g
insert into t as q (id, v) values (1, 9) on conflict (id) do update set v = 0 where q.v > 5 returning *, v * 2 as d
insert into t values (10,'x',1,1),(11,'y',2,2) returning id, upper(g) as ug
insert into t values (10,'x',1,1) on conflict do nothing returning id
insert into t by name select 12 as id, 'n' as g returning g, id
update t set v = v + 1 where id in (1,2) returning id, v
update t set g = 'all' returning *
update t set (g, v) = ('tuple', 4) where id = 1 returning *
update t set (g, v) = (upper(g), v + 1) where id < 4
update t set v = s.x from (select 2 as id, 99 as x) s where t.id = s.id returning t.id, t.v
delete from t where id = 7 returning *
delete from t where id = 7 returning *
delete from t where id > 9 returning id, g
delete from t using (select 3 as id) s where t.id = s.id returning t.*
merge into t using (select 1 as id, 5 as n union all select 50, 6) s on t.id = s.id when matched then update set v = n \
when not matched then insert (id, v) values (s.id, s.n) returning merge_action, id, v
merge into t using (select 51 as id, 'm' as g) s using (id) when not matched then insert by name
merge into t using (select 1 as id, 'm' as g, 3 as v, 1.0 as w) s using (id) when matched then update set *
merge into t using (select 60 as id, 'm' as g, 3 as v, 1.0 as w) s using (id) when not matched then insert * returning *
merge into t using (select 1 as id) s using (id) when matched then error
merge into t using (select 1 as id) s using (id) when matched and t.v < 0 then error 'never' when matched then delete
merge into t using (select 1 as id, 'm' as g) s using (id) when matched then error 'no ' || s.g || case when \
s.id > 0 then t.v end
merge into t using (select 900 as id, 'm' as g) s using (id) when not matched then error concat('x', s.id)
merge into t using (select 1 as id, 'm' as g, 4 as v, 2.0 as w) s using (id) when matched and t.v < 0 then error \
(select max(g) from t) when matched then update by name returning id, v
insert into t by position select 61, 'p', 1, 1.5
insert into t (id, g) select 62, 'hex' where x'00ff' = unhex('00ff')
update t set g = 'hex' where unhex('00') = x'00' and id = 1
insert into t select id + 100, g, v, w from t on conflict do nothing
insert into t select id, g || '!', v, w from t where id < 4 on conflict do update set g = excluded.g returning id, g
insert into t values (1,'f',1,1),(1,'second',2,2) on conflict (id) do update set g = excluded.g
with src as (select 3 as i, 'w' as g) insert or replace into t (id, g) select i, g from src returning *
insert into t values (null,'f',1,1) on conflict do nothing
insert into t values (1,'f',1,1) on conflict (g) do nothing
insert into t values (1,'f',1,1) on conflict (id) do update set nosuch = 5
insert into t values (1,'f',1,1) on conflict (id) do nothing returning nosuch
insert into t values (1,'f',1,1),(200,'f',1,1) on conflict (id) do update set g = excluded.g where false
insert or replace into t select i, 'r' || i, i, i from range(2000) r(i)
insert into t values (70,'f',1,1) on conflict (id) do update set v = 1 / 0 where excluded.g
insert into t default values
insert into t values (2,'own',1,1),(300,'own',2,2) on conflict (id) do update set id = excluded.id, g = excluded.g
insert into t values (2,'own',8,8) on conflict (id) do update set ID = EXCLUDED.id, v = excluded.v + t.v returning *
delete from t where id in (select max(id) from t) returning id
"""


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


@pytest.fixture
def keyed(small):
    small.sql(f"create table keyed {COLUMNS} partitioned by (bucket(4, id))")
    yield "keyed"
    small.drop_table("keyed")


def rows(answer: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in answer.to_pylist()), key=repr)


LAYOUTS = [
    "partitioned by (bucket(4, id))",
    *(pytest.param(layout, marks=pytest.mark.long) for layout in ("partitioned by (truncate(id, 100))", "")),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_statement_does_and_gives_what_a_single_node_does(small, layout):
    small.sql(f"create table t {COLUMNS} {layout}")
    refused = 0
    with duckdb.connect() as single:
        single.execute(f"create table t {COLUMNS}")
        for statement in filter(None, STATEMENTS.replace("\\\n", "").splitlines()):
            try:
                expected = single.sql(statement).to_arrow_table() if "returning" in statement else None
                count = single.execute(statement).fetchall()[0][0] if expected is None else 0
            except duckdb.Error:
                refused += 1
                with pytest.raises(BallistaError):
                    small.sql(statement)
            else:
                answer = small.sql(statement)
                if expected is None:
                    assert answer.to_pylist() == [{"affected_rows": count}], statement
                else:
                    assert difference(answer, expected) is None, f"{statement}: {answer}"
            left = single.sql("select * from t").to_arrow_table()
            assert difference(small.sql("select * from t"), left) is None, statement
    assert refused == 8
    small.drop_table("t")


def test_what_is_asked_without_a_key_is_refused_by_name(small, keyed):
    small.sql("create table plain (id bigint, v int)")
    for statement, reason in {
        "insert into plain values (1, 1) on conflict do nothing": "has no primary key",
        "insert or replace into plain values (1, 1)": "has no primary key",
        "insert into keyed (id) values (1) on conflict (id) do update set id = 2": "cannot set column 'id'",
        "insert into keyed (id) values (1) on conflict (id) do update set v = (select 1)": "a query in it",
    }.items():
        with pytest.raises(SqlError, match=reason):
            small.sql(statement)
    with pytest.raises(SqlError, match="has no primary key"):
        small.ingest("plain", pa.table({"id": [1], "v": pa.array([1], pa.int32())}), mode="upsert")
    assert rows(small.sql("insert into plain default values returning *")) == [(None, None)]
    small.drop_table("plain")


def batch(*ids: int, v: int = 0) -> pa.Table:
    values = [list(ids), [f"g{n}" for n in ids], pa.array([v] * len(ids), pa.int32()), [n / 2 for n in ids]]
    return pa.table(dict(zip(("id", "g", "v", "w"), values, strict=True)))


def test_upserted_rows_take_the_place_of_those_of_their_keys_all_or_none(small, keyed):
    with small.client() as client:
        assert client.upsert(keyed, batch(1, 2, 3)) == 3
        assert client.upsert(keyed, batch(3, 4, 5, v=1).to_reader()) == 3
        assert [client.upsert(keyed, batch(5, 6, v=2), token="once") for _ in range(3)] == [2, 2, 2]
        client.sql("update keyed set v = 9 where id = 6")
        assert client.upsert(keyed, batch(6, 5, v=2), token="once") == 2
        for wrong, error, reason in (
            (batch(6, 7, v=3), SqlError, "token 'once' was used"),
            (batch(7, 8, 7), SqlError, "two rows have the primary key id = 7: nothing was changed"),
            (batch(1).drop_columns(["w"]), SchemaMismatch, "column"),
        ):
            with pytest.raises(error, match=reason):
                client.upsert(keyed, wrong, token="once" if "token" in reason else None)
        assert client.upsert(keyed, batch()) == 0
    found = small.sql("select id, v from keyed order by id")
    assert rows(found) == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 9)]


def test_a_key_is_there_once_whoever_meets(small, keyed):
    """Many at once, for the same new keys: each is there once, and every answer adds up."""

    def put(number: int) -> int:
        with small.client() as client:
            client.upsert(keyed, batch(number % 3, 10, v=number))
            answer = client.sql(
                "insert into keyed (id, v) values (20, 1), (21, 1) on conflict (id) do update set v = keyed.v + 1"
            )
            return answer.to_pylist()[0]["affected_rows"]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(put, range(12))) == [2] * 12
    found = {row["id"]: row["v"] for row in small.sql("select id, v from keyed").to_pylist()}
    assert sorted(found) == [0, 1, 2, 10, 20, 21]
    assert small.sql("select count(*) as n from keyed").to_pylist() == [{"n": 6}]
    assert (found[20], found[21]) == (12, 12)


def test_what_a_statement_returned_is_told_again_and_it_is_applied_once(small, keyed):
    for statement, token in (
        ("insert into keyed values (1, 'a', 1, 1.0), (2, 'b', 1, 1.0) returning id, v", "put"),
        ("update keyed set v = v + 1 returning id, v", "change"),
        (
            "insert into keyed (id, v) values (2, 5), (3, 5) on conflict (id) do update set v = 50 returning id, v",
            "on",
        ),
        ("delete from keyed where id = 1 returning id, v", "end"),
    ):
        first = small.sql(statement, token=token)
        assert first.num_rows
        assert small.sql(statement, token=token).equals(first)
        with pytest.raises(SqlError, match="was used for another statement"):
            small.sql(f"{statement}, w", token=token)
    assert rows(small.sql("select id, v from keyed")) == [(2, 50), (3, 5)]
    store = open_store(small.state_location)
    for entry in list(store.list(ANSWERS_PREFIX)):
        store.delete(entry.key)
    with pytest.raises(SqlError, match="the statement was applied, once, and what it returned is no longer kept"):
        small.sql(statement, token=token)
    assert rows(small.sql("select id, v from keyed")) == [(2, 50), (3, 5)]


def test_rows_come_back_through_the_driver_and_the_command_line(small, keyed):
    from adbc_driver_flightsql import dbapi

    with dbapi.connect(small.flight_sql_url()) as connection, connection.cursor() as cursor:
        cursor.execute("insert into keyed (id, v) values (1, 1), (2, 2) returning id, v * 10 as w")
        assert rows(cursor.fetch_arrow_table()) == [(1, 10), (2, 20)]
        cursor.execute("update keyed set v = v + 1 where id = ? returning v", (2,))
        assert cursor.fetchall() == [(3,)]
        cursor.execute("insert or replace into keyed (id, v) values (2, 7)")
        cursor.execute("delete from keyed where id = 1 returning *")
        assert cursor.fetch_arrow_table().column_names == ["id", "g", "v", "w"]
        assert connection.adbc_get_table_schema("keyed") is not None
    statement = "delete from keyed returning id, v"
    said = subprocess.run(
        [sys.executable, "-m", "ballista_py.node", "sql", "--json", "--connect", small.addresses()[0], statement],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    assert json.loads(said.stdout)["rows"] == [{"id": 2, "v": 7}]
    assert small.sql("select count(*) as n from keyed").to_pylist() == [{"n": 0}]


def test_more_than_can_be_kept_is_refused_before_it_is_done(small):
    small.sql("create table wide as select i from range(70) r(i)")
    with pytest.raises(BallistaError, match="RETURNING gives more than 64 MiB of rows: nothing was changed"):
        small.sql("delete from wide returning repeat('x', 1000000)")
    assert small.sql("delete from wide where i < 60 returning i").num_rows == 60
    assert small.sql("select count(*) as n from wide").to_pylist() == [{"n": 10}]
    small.drop_table("wide")


def test_several_tables_are_dropped_together_or_none(small):
    for name in ("one", "two", "three"):
        small.sql(f"create table {name} (i int)")
    with pytest.raises(SqlError, match="table 'four' does not exist: nothing was dropped"):
        small.sql("drop table one, four, two")
    for _ in range(2):
        small.sql("drop table one, two", token="both")
    small.sql("create table one (i int)")
    small.sql("drop table one, two", token="both")
    small.sql("drop table if exists four, three")
    left = {row["table"] for row in small.sql("show tables").rename_columns(["table"]).to_pylist()}
    assert left & {"one", "two", "three"} == {"one"}
    small.drop_table("one")
