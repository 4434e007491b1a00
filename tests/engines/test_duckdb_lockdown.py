"""User SQL in a box: what a statement must not reach, wall by wall."""

from __future__ import annotations

import os

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.duckdb.guard import Guard
from ballista_py.errors import BallistaError, ConfigError, MergeTooLarge, SqlError
from ballista_py.storage.formats.files import LocalFile, RowsAtHand

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def engine():
    made = DuckDBEngine()
    made.create_table("t", SCHEMA)
    made.create_table("hidden", SCHEMA)
    yield made
    made.close()


FORBIDDEN = [
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from '/etc/passwd'",
    'select * from "/etc/passwd"',
    "select * from glob('/etc/*')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from read_parquet('http://127.0.0.1:9/x.parquet')",
    "copy t to '/tmp/out.csv'",
    "copy (select 1) to '/tmp/out.parquet'",
    "export database '/tmp/out'",
    "attach '/tmp/other.db'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "pragma database_list",
    "call pragma_version()",
    "create table x (i int)",
    "insert into t values (1)",
    "delete from t",
    "drop table t",
    "update t set n = 1",
    "truncate t",
    "with x as (insert into t values (1) returning *) select * from x",
    "begin",
    "use memory.held",
    "create secret (type http)",
    "explain select 1",
    "show tables",
    "select * from (show databases)",
    "from held.t1",
    "from memory.held.t1",
    "from t1",
    "from hidden",
    "select * from t where n in (select n from hidden)",
    "select (select max(n) from hidden) from t",
    "with c as (select * from hidden) select * from c",
    "from temp.main.t",
    "from query('select 1')",
    "from query_table('t')",
    "from duckdb_settings()",
    "from duckdb_databases()",
    "from duckdb_tables",
    "from information_schema.tables",
    "from pg_catalog.pg_tables",
    "from sqlite_master",
    "from json_execute_serialized_sql(json_serialize_sql('select 1'))",
    "select current_setting('temp_directory')",
    "select system.main.current_setting('temp_directory')",
    "select 'temp_directory'.current_setting()",
    "select getvariable('x')",
    "select nextval('s')",
    "from python_arrow_scan(1, 2, 3)",
    "from arrow_scan(1, 2, 3)",
    "from force_checkpoint()",
    "select write_log('x')",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_a_statement_reaches_nothing_but_its_relations(engine, sql):
    with pytest.raises(SqlError) as raised:
        list(engine.query(sql, {"t": []}).batches())
    assert "\n" not in raised.value.message
    with pytest.raises(SqlError):
        engine.describe(sql, {"t": SCHEMA})


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/etc/*')",
        "copy (select 1) to '/tmp/ballista-escaped.csv'",
        "attach '/tmp/ballista-escaped.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set allowed_directories = ['/etc']",
        "set threads = 1",
        "export database '/tmp/ballista-escaped'",
    ],
)
@pytest.mark.parametrize("where", ["held data", "described catalog"])
def test_behind_the_guard_the_database_itself_has_no_access(engine, sql, where):
    engine.describe("select 1", {})
    connection = engine._root if where == "held data" else engine._binder._tables.holding({})
    with pytest.raises(duckdb.Error):
        connection.cursor().execute(sql).fetchall()
    assert not [name for name in os.listdir("/tmp") if name.startswith("ballista-escaped")]


def test_variables_of_the_process_are_no_tables(engine):
    secrets = pa.table({"password": ["hunter2"]})
    with pytest.raises(SqlError):
        engine.query("select * from secrets")
    with pytest.raises(duckdb.Error):
        engine._root.cursor().sql("select * from secrets").fetchall()
    assert secrets.num_rows == 1


@pytest.mark.parametrize("sql", ["select nope from t", "select * from t join t using (n)", "select t.x from t"])
def test_messages_hold_no_names_of_internals(engine, sql):
    with pytest.raises(SqlError) as raised:
        engine.query(sql, {"t": []})
    for internal in ("held", "memory", "main", "temp.", "__file_id", "Did you mean", "/"):
        assert internal not in raised.value.message


def test_the_tag_of_the_file_is_not_a_column(engine):
    with pytest.raises(SqlError):
        engine.query("select __file_id from t", {"t": []})


@pytest.mark.parametrize(
    ("sql", "once", "many"),
    [
        ("select * from a", {"a"}, set()),
        ("select * from A join b using (n)", {"a", "b"}, set()),
        ("select * from a x join a y using (n)", set(), {"a"}),
        ("with c as (select * from a) select * from c", {"a"}, set()),
        ("with c as (select * from a) select * from c x, c y", set(), {"a"}),
        ("with c as (select * from a), d as (select * from c) select * from d x, d y", set(), {"a"}),
        ("with c as (select * from a), d as (select * from c) select * from d", {"a"}, set()),
        ("with a as (select * from a) select * from a", set(), {"a"}),
        ("select (select max(n) from a) from b", {"b"}, {"a"}),
        ("select * from b where n in (from a)", {"b"}, {"a"}),
        ("with recursive r as (select n from a union select n from r, b) select * from r", set(), {"a", "b"}),
        ("select * from (pivot a on n in (1) using sum(n))", set(), {"a"}),
        ("select 1", set(), set()),
        ("select * from (select * from a) x, lateral (select x.n) y", {"a"}, set()),
    ],
)
def test_the_guard_knows_what_is_surely_scanned_once(engine, sql, once, many):
    statement = Guard(engine._root).check(sql, ["a", "b"])
    assert (statement.once, statement.many) == (once, many)


def test_a_query_beyond_memory_and_spill_space_is_named_as_such(tmp_path):
    engine = DuckDBEngine(memory_limit="40MB", temp_directory=str(tmp_path / "full"))
    (tmp_path / "full").write_text("a file where the spill folder should be")
    query = engine.query("select i, md5(i::varchar) as h from range(5000000) r(i) order by h")
    with pytest.raises(MergeTooLarge) as raised:
        list(query.batches())
    assert str(tmp_path) not in raised.value.message
    assert 'engine="spark"' in raised.value.message
    assert [b.to_pydict() for b in engine.query("select 1 as one").batches()] == [{"one": [1]}]
    engine.close()


def test_a_query_beyond_its_spill_space_is_named_as_such_and_leaves_it_free(tmp_path):
    engine = DuckDBEngine(str(tmp_path), memory_limit="60MB", threads=2, max_spill_bytes=10 << 20)
    query = engine.query("select i, md5(i::varchar) as h from range(3000000) r(i) order by h")
    with pytest.raises(MergeTooLarge, match="max_spill_bytes"):
        list(query.batches())
    small = engine.query("select i, md5(i::varchar) as h from range(1000) r(i) order by h")
    assert sum(batch.num_rows for batch in small.batches()) == 1_000
    engine.close()


def test_a_query_beyond_memory_spills_and_succeeds(tmp_path):
    engine = DuckDBEngine(str(tmp_path / "e"), memory_limit="60MB", threads=2)
    query = engine.query("select i, md5(i::varchar) as h from range(1000000) r(i) order by h")
    assert sum(batch.num_rows for batch in query.batches()) == 1_000_000
    engine.close()
    assert os.listdir(tmp_path / "e") == []


@pytest.mark.parametrize("at_hand", [False, True])
def test_rows_beyond_memory_are_held_in_the_file_of_the_engine(tmp_path, at_hand):
    rows, parts = 1_000_000, 8  # 64 MB that cannot be packed
    engine = DuckDBEngine(str(tmp_path / "e"), memory_limit="40MB", threads=1)
    engine.create_table("t", SCHEMA)
    total = 0
    for number in range(parts):
        values = np.random.default_rng(number).integers(0, 1 << 62, rows)
        total += int((values & 1023).sum())
        table = pa.table({"n": values})
        if at_hand:
            engine.load("t", [RowsAtHand(file_id=number, rows=table)])
            continue
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(table, path, compression="none", use_dictionary=False)
        engine.load("t", [LocalFile(file_id=number, path=path)])
    found = engine.query("select sum(n & 1023) as s, count(*) as c from t", scans={"t": range(parts)})
    assert [batch.to_pydict() for batch in found.batches()] == [{"s": [total], "c": [rows * parts]}]
    engine.close()


def test_a_folder_holds_nothing_of_an_earlier_engine(tmp_path):
    (tmp_path / "engine.duckdb").write_bytes(b"left by a killed process")
    (tmp_path / "engine.duckdb.wal").write_bytes(b"torn")
    (tmp_path / "mine.txt").write_text("stays")
    engine = DuckDBEngine(str(tmp_path))
    engine.create_table("t", SCHEMA)
    engine.close()
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_without_keeping_order_every_row_comes_once():
    engine = DuckDBEngine(keeps_order=False, threads=2)
    query = engine.query("select i from range(1000000) r(i)")
    assert sorted(n for batch in query.batches() for n in batch.column(0).to_pylist()) == list(range(1_000_000))
    ordered = engine.query("select i from range(300000) r(i) order by i desc")
    assert [n for batch in ordered.batches() for n in batch.column(0).to_pylist()] == list(range(299_999, -1, -1))
    engine.close()


@pytest.mark.parametrize("options", [{"memory_limit": "much"}, {"threads": 0}])
def test_options_that_duckdb_refuses_are_a_config_error(options):
    with pytest.raises(ConfigError):
        DuckDBEngine(**options)


def test_an_unusable_folder_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        DuckDBEngine(str(tmp_path / "file" / "below"))


def test_columns_that_differ_in_case_only_are_refused(engine):
    with pytest.raises(BallistaError, match="'cased'"):
        engine.create_table("cased", pa.schema([("a", pa.int8()), ("A", pa.int8())]))
