"""A table is called as people call things: by every door, in each statement, in the store, and after a restart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, SqlError

pytestmark = pytest.mark.cluster
# Some are names that the engines give to relations of their own, but for a blank.
NAMES = ("größe 1", "表-2", "new rows", "2024")
MORE = ("order", "no rows", "r", "rows before", "initial values", "ñandú ελ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("names")


@pytest.fixture(scope="module")
def cluster(folder):
    with LocalCluster(schedulers=1, executors=2, state_location=folder.as_uri()) as cluster:
        yield cluster


def ids(cluster, name: str) -> list[int]:
    return sorted(cluster.sql(f'select id from "{name}"')["id"].to_pylist())


@pytest.mark.parametrize("name", NAMES)
def test_each_statement_knows_it(cluster, name):
    q = f'"{name}"'
    cluster.sql(f"create table {q} (id int primary key, s varchar) partitioned by (bucket(2, id))")
    cluster.sql(f"insert into {q} values (1, 'a'), (2, 'b'), (3, 'c')")
    cluster.sql(f"insert into main.{q.upper() if name.isascii() else q} values (4, 'd') on conflict do nothing")
    cluster.sql(f"alter table {q} add column n int default 7")
    cluster.sql(f"update {q} set s = 'x' where id = 1")
    cluster.sql(f"update {q} as t set s = s || t.s where t.id in (select id from {q} where id > 3)")
    cluster.sql(f"delete from {q} where id = 2")
    returned = cluster.sql(f"delete from {q} where id = 3 returning id, n")
    assert returned.to_pylist() == [{"id": 3, "n": 7}]
    cluster.sql(
        f"merge into {q} t using (select 9 as id) n using (id) when not matched then insert (id) values (9)"
    )
    rows = pa.table({"id": pa.array([1, 5], pa.int32()), "s": ["up", "new"], "n": pa.array([1, 2], pa.int32())})
    cluster.client().upsert(name, rows)
    with pytest.raises(BallistaError, match="primary key"):
        cluster.ingest(name, rows)
    assert ids(cluster, name) == [1, 4, 5, 9]
    joined = cluster.sql(f"select {q}.s from {q} join {q} b using (id) where {q}.id = 1")
    assert joined["s"].to_pylist() == ["up"]
    pivoted = cluster.sql(f"pivot {q} on s using count(*) group by n order by n")
    assert "up" in pivoted.column_names
    assert cluster.sql(f"describe {q}")["column_name"].to_pylist() == ["id", "s", "n"]
    assert f"CREATE TABLE {q} " in cluster.sql(f"show create table {q}")["statement"][0].as_py()
    assert cluster.sql(f"summarize {q}").num_rows == 3
    cluster.sql(f"create table like_it (like {q})")
    cluster.sql(f"insert overwrite like_it select * from {q}")
    cluster.sql(f'create table {q[:-1]} too" as select * from like_it')
    assert ids(cluster, f"{name} too") == [1, 4, 5, 9]
    assert name in cluster.explain(f"select * from {q}")
    cluster.sql(f'drop table like_it, "{name} too"')
    assert name in cluster.sql("show tables")["name"].to_pylist()
    asked = f"select table_name from information_schema.tables where table_name = '{name}'"
    assert cluster.sql(asked).num_rows == 1


@pytest.mark.parametrize("name", MORE)
def test_no_name_is_one_that_an_engine_needs_for_itself(cluster, name):
    cluster.sql(f'create table "{name}" (id int primary key)')
    cluster.sql(f'insert into "{name}" values (1), (2)')
    cluster.sql(f'alter table "{name}" add column n int default 7')
    returned = cluster.sql(
        f'update "{name}" set n = id where id in (select id from "{name}" where id > 1) returning n'
    )
    assert returned["n"].to_pylist() == [2]
    assert cluster.sql(f'select sum(n) as s from "{name}"')["s"].to_pylist() == [9]
    cluster.sql(f'drop table "{name}"')


@pytest.mark.parametrize("dialect", ["spark", "postgres"])
def test_other_dialects_name_it_in_their_way(cluster, dialect):
    q = "`größe 1`" if dialect == "spark" else '"größe 1"'
    found = cluster.sql(f"select count(*) as c from {q} where id > 1", dialect=dialect)
    assert found["c"].to_pylist() == [3]
    cluster.sql(f"create table {q.replace('1', '3')} (a int)", dialect=dialect)
    cluster.sql(f"insert into {q.replace('1', '3')} values (1)", dialect=dialect)
    cluster.sql(f"drop table {q.replace('1', '3')}", dialect=dialect)


def test_flight_sql_and_its_metadata_have_it(cluster):
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with dbapi.connect(cluster.flight_sql_url()) as connection, connection.cursor() as cursor:
        cursor.execute('select s from "größe 1" where id = ?', (1,))
        assert cursor.fetchall() == [("up",)]
        cursor.adbc_ingest("naïve table", pa.table({"a": [1, 2]}), mode="create")
        cursor.execute('select sum(a) from "naïve table"')
        assert cursor.fetchall() == [(3,)]
        schema = connection.adbc_get_table_schema("表-2")
        assert schema.names == ["id", "s", "n"]
        cursor.execute('drop table "naïve table"')


def test_the_command_line_has_it_and_looks_after_its_files(cluster, folder, cli):
    done = cli("storage", "verify", folder.as_uri())
    assert all(f"{name}: 2 partitions" in done.stdout for name in NAMES), done
    done = cli("storage", "history", folder.as_uri(), "größe 1", "expr0=1")
    assert done.returncode == 0, done
    done = cli("storage", "collect", folder.as_uri())
    assert done.returncode == 0, done
    done = cli("storage", "repair", folder.as_uri())
    assert done.returncode == 0, done


def test_nodes_find_it_again(cluster):
    before = {name: ids(cluster, name) for name in NAMES}
    cluster.kill("executor-1")
    cluster.start("executor-1")
    assert {name: ids(cluster, name) for name in NAMES} == before


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("a/b", "'/' cannot be in it"),
        ("a.b", "'.' cannot be in it"),
        ("a\\b", "cannot be in it"),
        ("a'b", "cannot be in it"),
        ("a\x07b", "the sign U\\+0007"),
        ("a\u200db", "the sign U\\+200D"),
        ("a\u00a0b", "the sign U\\+00A0"),
        ("☃", "cannot be in it"),
        (" a", "begins or ends with a blank"),
        ("new rows ", "begins or ends with a blank"),
        ("ü" * 32, "at most 63 bytes"),
        ("a" * 129, "at most 128 characters"),
        ("u\u0308", "form NFC"),
        ("Öl", "write the others small, as in 'öl'"),
        ("_", "has no letter"),
        ("--", "has no letter"),
    ],
)
def test_what_is_no_name_is_refused_with_the_reason(cluster, name, named):
    before = cluster.sql("show tables")["name"].to_pylist()
    with pytest.raises((SqlError, ConfigError), match=named):
        cluster.sql(f'create table "{name}" (a int)')
    with pytest.raises(BallistaError, match=f"{named}|small letters"):
        cluster.ingest(name, pa.table({"a": [1]}), mode="create")
    assert cluster.sql("show tables")["name"].to_pylist() == before


def test_columns_of_the_longest_name_are_kept(cluster):
    name = "ü" * 31 + "x"
    cluster.sql(f'create table "{name}" (id int) partitioned by (bucket(2, id))')
    cluster.sql(f'insert into "{name}" select range from range(2)')
    assert ids(cluster, name) == [0, 1]
    cluster.sql(f'drop table "{name}"')
